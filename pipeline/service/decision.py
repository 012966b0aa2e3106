"""What a plan decides of each topic of a file: the one rule that planning and its preview share; floor 2.

Pure: it compares what the file says with what is known, and neither reads nor writes.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import ProjectError
from pipeline.views import Planned, TopicRow


@dataclass(frozen=True, slots=True)
class Decision:
    """The topics of a file by what is to be done with them, each in the file's order."""

    new: tuple[TopicRow, ...]
    changed: tuple[TopicRow, ...]  # a new pass
    busy: tuple[TopicRow, ...]  # changed, but a pass is unfinished: a new one once that has ended
    unchanged: int
    absent: tuple[str, ...]  # known, but no longer in the file: they stay as they are
    appended: tuple[str, ...]  # new, yet before one that is known: to the end of the lane all the same
    closed: tuple[str, ...]  # new or changed, but their lane is closed

    def planned(self) -> Planned:
        """The same, counted."""
        return Planned(
            new=len(self.new),
            changed=len(self.changed),
            unchanged=self.unchanged,
            busy=len(self.busy),
            absent=self.absent,
            appended=self.appended,
            closed=self.closed,
        )


def decide(topics: Sequence[TopicRow], known: Mapping[str, Any], closed: Collection[str] = ()) -> Decision:
    """What to do with each topic; ``known`` are rows of ``sql.plan.known_topics`` by slug, ``closed`` names of lanes.

    Raises ProjectError when a topic's lane or path is another than before.
    """
    _refuse_moves(topics, known)
    differ = [t for t in topics if t.slug in known and _differs(t, known[t.slug])]
    new = tuple(t for t in topics if t.slug not in known)
    shut = tuple(t.slug for t in (*new, *differ) if t.lane in closed)
    unchanged = len(topics) - len(new) - len(differ)
    new = tuple(t for t in new if t.lane not in closed)
    differ = [t for t in differ if t.lane not in closed]
    return Decision(
        new=new,
        changed=tuple(t for t in differ if not known[t.slug].busy),
        busy=tuple(t for t in differ if known[t.slug].busy),
        unchanged=unchanged,
        absent=tuple(sorted(set(known) - {t.slug for t in topics})),
        appended=tuple(_out_of_order([t for t in topics if t.lane not in closed], known)),
        closed=shut,
    )


def _differs(topic: TopicRow, row: Any) -> bool:
    """Whether the file says something else than what the newest pass was planned for, or began with."""
    return bool(row.input_hash != topic.input_hash or (row.made_from is not None and row.made_from != topic.input_hash))


def _refuse_moves(topics: Sequence[TopicRow], known: Mapping[str, Any]) -> None:
    for topic in topics:
        row = known.get(topic.slug)
        if row is None:
            continue
        if row.lane != topic.lane:
            raise ProjectError(
                f"line {topic.line}: topic {topic.slug!r} belongs to lane {row.lane!r} and cannot move to"
                f" {topic.lane!r} by the file alone; set its lane back, or:"
                f" pipeline topics move {row.site}/{topic.slug} --lane {topic.lane}"
            )
        if row.path != topic.path:
            raise ProjectError(
                f"line {topic.line}: topic {topic.slug!r} lives at {row.path!r} and cannot move to {topic.path!r};"
                " set its path back, or give it a new slug"
            )


def _out_of_order(topics: Sequence[TopicRow], known: Mapping[str, Any]) -> list[str]:
    """New topics that the file puts before one that is planned already: their lane has gone past that place."""
    later: dict[str, bool] = defaultdict(bool)
    late: list[str] = []
    for topic in reversed(topics):
        if topic.slug in known:
            later[topic.lane] = True
        elif later[topic.lane]:
            late.append(topic.slug)
    return late[::-1]
