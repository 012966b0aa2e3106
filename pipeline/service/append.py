"""Planning inside a caller's own transaction: topics are appended, and there once it commits; floor 2.

The one verb that opens no transaction and has no connection: it yields statements and is sent their rows, so that one
text serves whatever connection the caller has, waiting or awaiting. It begins with a savepoint: whatever it refuses, or
the server does, leaves the caller's transaction as it was.
"""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Executable

from pipeline.clock import DatabaseClock
from pipeline.errors import Conflict, NotFound, PipelineError, Refused, SchemaError
from pipeline.service.payload import Checked, Topic, check, path_of
from pipeline.sql import append
from pipeline.sql.batch import bound
from pipeline.views import content_hash

BATCH = 1000
BATCH_LENGTH = 4 << 20
CLOCK = DatabaseClock()
LOOKS = 3  # at what others have planned, while they go on

T = TypeVar("T")
Asking: TypeAlias = Generator[tuple[Executable, dict[str, Any]], Sequence[Any], T]
"""Yields statements with their parameters, is sent their rows, and returns an answer."""

Steps: TypeAlias = "Asking[list[PlannedTopic]]"


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that is planned. ``job_id`` is its newest pass."""

    slug: str
    topic_id: int
    position: int
    job_id: int
    new: bool  # False: it was there already, just the same


@dataclass(frozen=True, slots=True)
class _Row:
    number: int  # its place in what the caller gave
    topic: Checked
    path: str


def input_hash(title: str, type: str, brief: Mapping[str, Any], added: Mapping[str, str]) -> str:
    """Hash of all that a topic's content depends on: its row, and what the stages add to it for its type."""
    return content_hash([title, type, dict(brief), dict(added)])


def appending(site: str, topics: Iterable[Topic], channel: str | None = None) -> Steps:
    """Append the topics to the ends of their lanes; returns one answer for each, in their order. Idle workers that
    listen to the ``channel`` are told with the caller's commit.

    Raises NotFound for a site that was never run, Refused for a closed lane, Conflict for a slug or path that is
    planned with other content, UsageError for what cannot be stored. An iterable that is no sequence is read a batch at
    a time; then lanes are locked as they come, and not all of them in one order.
    """
    numbered: Iterator[tuple[int, Checked]] = ((n, check(t, n)) for n, t in enumerate(topics))
    lanes: set[str] = set()
    if isinstance(topics, Sequence):
        checked = list(numbered)  # all of it, before any SQL
        numbered, lanes = iter(checked), {topic.lane for _, topic in checked}
    batches = _batches(numbered)
    first = next(batches, None)
    if first is None:
        return []
    try:
        yield append.SAVEPOINT, {}
    except Exception as error:
        if _sqlstate(error) == "25P01":
            raise Refused(
                "the connection commits each statement by itself (autocommit), so nothing was planned; begin a"
                " transaction first, and plan inside it"
            ) from error
        raise
    try:
        planned = yield from _Appending(site, channel).all(lanes, chain([first], batches))
    except GeneratorExit:
        raise
    except BaseException as error:  # an interrupt too: who goes on after it must not commit half a plan
        with suppress(Exception):  # the connection may be gone; then so is everything
            yield append.BACK, {}
            yield append.RELEASE, {}
        if (told := _translated(error)) is not None:
            raise told from error
        raise
    yield append.RELEASE, {}
    return planned


def _batches(numbered: Iterator[tuple[int, Checked]]) -> Iterator[list[tuple[int, Checked]]]:
    """Cut where there are ``BATCH`` topics, or their briefs are of ``BATCH_LENGTH`` characters."""
    batch: list[tuple[int, Checked]] = []
    length = 0
    for number, topic in numbered:
        batch.append((number, topic))
        length += len(topic.written)
        if len(batch) == BATCH or length >= BATCH_LENGTH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


class _Appending:
    """One call: the site as its transaction sees it, and the lanes that it holds."""

    def __init__(self, site: str, channel: str | None) -> None:
        self._site = site
        self._channel = channel
        self._at: dict[str, Any] = {}
        self._paths: dict[str, str] = {}
        self._prints: dict[str, dict[str, str]] = {}
        self._lanes: dict[str, int] = {}  # by name
        self._next: dict[int, int] = {}  # the next position, by lane
        self._counted: dict[int, int] = {}  # the same, as the lanes' rows have it
        self._begun = False  # something is planned

    def all(self, lanes: Set[str], batches: Iterable[list[tuple[int, Checked]]]) -> Steps:
        planned: list[PlannedTopic] = []
        yield from self._hold(lanes)
        for batch in batches:
            yield from self._hold({topic.lane for _, topic in batch} - self._lanes.keys())
            planned += yield from self._batch(batch)
        if self._next != self._counted:
            yield append.count(), counters(self._counted, self._next)
        return planned

    def _hold(self, names: Set[str]) -> Asking[None]:
        """Make the lanes that are missing, then lock all of these to the end of the caller's transaction."""
        if not names and self._at:
            return
        named = bound(slug=self._site, names=sorted(names))
        first = not self._lanes
        if not first and (yield append.missing(), {**self._at, **bound(names=sorted(names))}):
            yield from self._make(names)
        found = yield append.hold(), named
        self._read(found)
        if first and not names <= {row[5] for row in found}:
            yield append.BACK, {}  # lets go of the lanes: whoever makes some takes the stages before them
            yield from self._make(names)
            found = yield append.hold(), named
        for *_, lane_id, name, state, position in found:
            if state == "closed":
                raise Refused(
                    f"lane {name!r} is closed, so nothing was planned; plan into another, or open it:"
                    f" pipeline lanes open {self._site}/{name}"
                )
            if name is not None:
                self._lanes[name], self._next[lane_id], self._counted[lane_id] = lane_id, position, position
        if gone := names - self._lanes.keys():
            raise NotFound(f"lane {min(gone)!r} was removed meanwhile, so nothing was planned; try again")

    def _read(self, found: Sequence[Any]) -> None:
        """Note the site, of which ``append.hold`` found this."""
        if not found or not found[0][3]:
            what = f"no stages of site {self._site!r}" if found else f"no site {self._site!r}"
            raise NotFound(f"the database knows {what}; run it once: pipeline run --site {self._site}")
        site_id, paths, prints, *_ = found[0]
        self._at = bound(site_id=site_id)
        self._paths, self._prints = json.loads(paths or "{}"), json.loads(prints or "{}")

    def _make(self, names: Set[str]) -> Asking[None]:
        """Make those of the lanes that are missing, with their gates."""
        if not (yield append.share_stages(), self._at):
            raise NotFound(f"site {self._site!r} was removed meanwhile, so nothing was planned; run it once more")
        made = yield append.put_lanes(), {**self._at, **bound(names=sorted(names))}
        if made:
            yield append.put_gates(), bound(lanes=[lane_id for (lane_id,) in made])

    def _batch(self, given: Sequence[tuple[int, Checked]]) -> Steps:
        rows: dict[str, _Row] = {}
        for number, topic in given:
            twin = rows.setdefault(topic.slug, _Row(number, topic, path_of(topic, number, self._paths)))
            if twin.topic != topic:
                raise _conflict(topic.slug, "twice", f"in topics[{twin.number}] and, otherwise, in topics[{number}]")
        owners: dict[str, str] = {}
        for slug, row in rows.items():
            if (owner := owners.setdefault(row.path, slug)) != slug:
                raise _path_taken(slug, row.path, owner)
        known: dict[str, PlannedTopic] = {}
        for _ in range(LOOKS):
            added = yield from self._append([row for slug, row in rows.items() if slug not in known])
            if added or len(known) == len(rows):
                break
            taken = yield append.taken(), {**self._at, **bound(slugs=list(rows), paths=list(owners))}
            there = {slug for slug, _ in taken}
            for slug, path in taken:
                if owners.get(path, slug) != slug:
                    raise _path_taken(owners[path], path, slug)
            known = yield from self._known([row for slug, row in rows.items() if slug in there])
        # Skipped by ON CONFLICT: another transaction planned that slug, in another lane, after the look above.
        known |= yield from self._known([row for slug, row in rows.items() if slug not in known and slug not in added])
        if lost := rows.keys() - known.keys() - added.keys():
            raise Refused(f"topic {min(lost)!r} was planned and removed meanwhile, so nothing was planned; try again")
        answers = {**known, **added}
        return [
            answers[topic.slug] if rows[topic.slug].number == number else replace(answers[topic.slug], new=False)
            for number, topic in given  # given twice, it is there already the second time
        ]

    def _known(self, rows: Sequence[_Row]) -> Asking[dict[str, PlannedTopic]]:
        """Those that are planned just as given. Raises Conflict for one that is planned otherwise."""
        if not rows:
            return {}
        asked = [
            f'{{"lane":"{t.lane}","slug":"{t.slug}","type":"{t.type}","title":{json.dumps(t.title)},"brief":{t.written}}}'
            for t in (row.topic for row in rows)
        ]
        found = yield append.known(), {**self._at, **bound(topics=f"[{','.join(asked)}]")}
        known: dict[str, PlannedTopic] = {}
        for slug, topic_id, position, job_id, *same in found:
            if not all(same):
                which = [
                    name for name, equal in zip(("lane", "title", "type", "brief"), same, strict=True) if not equal
                ]
                raise _conflict(slug, "already", f"with another {' and '.join(which)}")
            known[slug] = PlannedTopic(slug, topic_id, position, job_id, new=False)
        return known

    def _append(self, rows: Sequence[_Row]) -> Asking[dict[str, PlannedTopic]]:
        """Insert these, each lane's in the order given: all, but for slugs that another takes just now; or none, when
        something of it is there."""
        if not rows:
            return {}
        slugs: dict[tuple[int, int], str] = {}
        values: list[str] = []
        until = dict(self._next)
        for row in rows:
            t, lane_id = row.topic, self._lanes[row.topic.lane]
            position = until[lane_id]
            until[lane_id] = position + 1
            slugs[lane_id, position] = t.slug
            values.append(
                f'{{"lane_id":{lane_id},"position":{position},"slug":"{t.slug}","path":"{row.path}","type":"{t.type}",'
                f'"title":{json.dumps(t.title)},"brief":{t.written},'
                f'"input_hash":"{input_hash(t.title, t.type, t.brief, self._prints.get(t.type, {}))}"}}'
            )
        # Of many batches the first is counted, and what follows at the end: every insert walks over each count.
        counts = not self._begun
        said = bound(topics=f"[{','.join(values)}]", counts=counts, channel=self._channel)
        made = yield append.add(CLOCK), {**self._at, **said}
        if made:
            self._next = until
            self._counted = dict(until) if counts else self._counted
            self._begun = True
        return {
            (slug := slugs[lane_id, position]): PlannedTopic(slug, topic_id, position, job_id, new=True)
            for topic_id, lane_id, position, job_id in made
        }


def stretches(since: Mapping[int, int], until: Mapping[int, int]) -> dict[str, Any]:
    """The positions that the lanes have counted since, as ``append.add_jobs`` takes them."""
    grown = sorted(lane_id for lane_id, position in until.items() if position > since[lane_id])
    return bound(lanes=grown, first=[since[i] for i in grown], last=[until[i] - 1 for i in grown])


def counters(since: Mapping[int, int], until: Mapping[int, int]) -> dict[str, Any]:
    """The next positions of the lanes that have counted since, as ``append.count`` takes them."""
    grown = sorted(lane_id for lane_id, position in until.items() if position > since[lane_id])
    return bound(lanes=grown, next=[until[i] for i in grown])


def _conflict(slug: str, when: str, how: str) -> Conflict:
    return Conflict(
        f"topic {slug!r} is planned {when}, {how}, so nothing was planned; plan it as it was, or under another slug"
    )


def _path_taken(slug: str, path: str, owner: str) -> Conflict:
    return Conflict(
        f"topic {slug!r} would live at {path!r}, which is {owner!r}'s, so nothing was planned; give it another slug"
    )


def _translated(error: BaseException) -> PipelineError | None:
    """What the server's refusal means here, where that is known."""
    match _sqlstate(error):
        case "23505" if "uq_topics_site_id_path" in str(error):
            return Conflict(
                "another transaction planned a topic at the same path just now, so nothing was planned; see which:"
                " pipeline topics list"
            )
        case "42P01" | "42703" | "3F000":
            return SchemaError("the schema is not there, or not up to date; run: pipeline db upgrade")
    return None


def _sqlstate(error: BaseException) -> str | None:
    told: Any = getattr(error, "orig", None) or error
    return getattr(told, "sqlstate", None) or getattr(told, "pgcode", None)
