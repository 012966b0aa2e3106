"""What a run would do, by the rule that planning follows; floor 2. Reads in one transaction that may write nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from pipeline.service.base import Service
from pipeline.service.decision import Decision, decide
from pipeline.service.reading import Standing
from pipeline.sql import plan, preview, reads
from pipeline.sql.batch import bound
from pipeline.states import HALTING, JobState, LaneState
from pipeline.views import Planned, TopicRow


@dataclass(frozen=True, slots=True)
class Change:
    """A topic whose row differs. No column: what its stages add to it differs, or it changed during its last pass."""

    topic: str
    columns: tuple[str, ...]
    busy: bool  # under way just now: planned once that pass has ended


@dataclass(frozen=True, slots=True)
class Step:
    """One pass to come, or one that is under way (then with its stage, state and job)."""

    topic: str
    position: int
    stage: str | None = None
    state: JobState | None = None
    job: int | None = None
    hold: str | None = None

    @property
    def stands(self) -> bool:
        """Whether it waits for a person."""
        return self.state in HALTING or self.hold is not None


@dataclass(frozen=True, slots=True)
class LanePlan:
    """What a run would publish of one lane."""

    lane: str
    state: str
    strict: bool  # the order is kept
    order: tuple[Step, ...]  # those that take their turn
    again: tuple[str, ...]  # live topics whose new pass takes no turn

    @property
    def halted(self) -> Step | None:
        """The first that waits for a person, in a strict lane: nobody behind it is published."""
        return next((step for step in self.order if step.stands), None) if self.strict else None

    @property
    def moves(self) -> bool:
        """Whether a run would publish anything of it."""
        if self.state != "active":
            return False
        ahead = self.order[: self.order.index(self.halted)] if self.halted else self.order
        return bool(self.again) or any(not step.stands for step in ahead)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do."""

    state: str | None  # of the site; None: the database does not know it yet
    topics: int  # in the file
    live: int
    planned: Planned
    changes: tuple[Change, ...]
    standing: tuple[Standing, ...]
    lanes: tuple[LanePlan, ...]


class Previews(Service):
    """Looks ahead."""

    def look(self, slug: str, topics: Sequence[TopicRow], *, strict: bool) -> Preview:
        """What a run would do with the topics of a file. Raises ProjectError as planning does.

        ``strict``: a stage of the project keeps the order, which counts for lanes that are not there yet.
        """
        with self._engine.connect() as connection, connection.begin():
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            site = connection.execute(reads.site_by_slug(), bound(slug=slug)).one_or_none()
            if site is None:
                return of_a_new_site(topics, strict=strict)
            at = bound(site_id=site.id)
            known = {row.slug: row for row in connection.execute(plan.known_topics(), at)}
            there = connection.execute(preview.lanes_as_they_are(), at).all()
            decision = decide(topics, known, [lane.name for lane in there if lane.state == LaneState.CLOSED])
            differ = [known[t.slug].id for t in (*decision.changed, *decision.busy)]
            texts = {row.slug: row for row in connection.execute(preview.texts(), bound(ids=differ))}
            standing = tuple(
                Standing(stage, JobState(state), count, due, None if seconds is None else float(seconds))
                for stage, state, count, due, seconds in connection.execute(reads.unfinished(self._clock), at)
            )
            return Preview(
                state=site.state,
                topics=len(topics),
                live=connection.execute(reads.live_topics(), at).scalar_one(),
                planned=decision.planned(),
                changes=_changes(decision, texts),
                standing=standing,
                lanes=_lanes(
                    decision,
                    known,
                    there,
                    connection.execute(preview.under_way(), at).all(),
                    strict=strict,
                ),
            )


def of_a_new_site(topics: Sequence[TopicRow], *, strict: bool) -> Preview:
    """What a run would do where there is nothing yet."""
    decision = decide(topics, {})
    lanes = _lanes(decision, {}, [], [], strict=strict)
    return Preview(None, len(topics), 0, decision.planned(), (), (), lanes)


def _changes(decision: Decision, texts: Mapping[str, Any]) -> tuple[Change, ...]:
    return tuple(
        Change(topic.slug, columns_that_differ(topic, texts[topic.slug]), busy)
        for group, busy in ((decision.changed, False), (decision.busy, True))
        for topic in group
    )


def columns_that_differ(topic: TopicRow, row: Any) -> tuple[str, ...]:
    """The columns in which the file says something else than the database."""
    own = [name for name in ("title", "type") if getattr(topic, name) != getattr(row, name)]
    before, now = dict(row.brief), dict(topic.brief)
    gone = [name for name in before if name not in now]
    return (*own, *(name for name in now if name not in before or before[name] != now[name]), *gone)


def _lanes(
    decision: Decision,
    known: Mapping[str, Any],
    rows: Sequence[Any],
    passes: Sequence[Any],
    *,
    strict: bool,
) -> tuple[LanePlan, ...]:
    """Lanes that are there, then those that a plan would make, in the order of their names."""
    states = {row.name: row.state for row in rows}
    counters = {row.name: row.next_position for row in rows}
    order: dict[str, list[Step]] = {name: [] for name in states}
    again: dict[str, list[str]] = {}
    for name in sorted({t.lane for t in decision.new} - set(states)):
        order[name] = []
    for row in passes:
        step = Step(row.slug, row.position, row.stage, JobState(row.state), row.id, row.hold)
        if row.owes or not strict:
            order[row.lane].append(step)
        elif not step.stands:
            again.setdefault(row.lane, []).append(row.slug)
    for topic in sorted(decision.changed, key=lambda t: known[t.slug].position):
        again.setdefault(topic.lane, []).append(topic.slug)
    for topic in decision.new:
        position = counters.get(topic.lane, 1)
        counters[topic.lane] = position + 1
        order[topic.lane].append(Step(topic.slug, position))
    return tuple(
        LanePlan(name, states.get(name, "active"), strict, tuple(steps), tuple(again.get(name, ())))
        for name, steps in order.items()
    )
