"""A lane's verbs: list, pause, resume, and what upkeep repeats of a pause; floor 2.

Pausing takes the turn from what is pending, under the lane's row and all its gates, so that no claim walks over paused
rows. What is reserved finishes. Each is noted in events with actor and reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert

from pipeline.errors import NotFound, Refused
from pipeline.service.base import ALL, Service, Stretch, clean
from pipeline.sql import lanes
from pipeline.sql.batch import bound
from pipeline.sql.tables import events


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused something, when and why."""

    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Head:
    """The topic that a strict lane waits for."""

    position: int
    slug: str
    stage: str
    state: str
    job: int


@dataclass(frozen=True, slots=True)
class LaneLine:
    """One lane in a list."""

    lane: str
    state: str
    topics: int
    live: int
    waiting: int
    head: Head | None  # None: nothing owes a strict gate its turn
    paused: Pause | None
    on_failed: str  # "halt" or "skip"
    overrides: Mapping[str, Mapping[str, Any]]  # by stage, what it has otherwise


@dataclass(frozen=True, slots=True)
class Turned:
    """A lane or site that was paused or resumed."""

    name: str
    from_state: str
    to_state: str
    jobs: int  # that this moved
    running: int  # that are reserved, and finish


AT_ONCE = 1000  # lanes

_TURNS = {  # by verb: the states that it leaves, and the one that it reaches
    "pause": ({"active"}, "paused"),
    "resume": ({"paused"}, "active"),
    "close": ({"active", "paused"}, "closed"),
    "open": ({"closed"}, "active"),
}


class Lanes(Service):
    """What people do to lanes."""

    def list(self, site_id: int) -> list[LaneLine]:
        """A site's lanes, in the order in which they were made."""
        with self._reading() as connection:
            return [_line(row) for row in connection.execute(lanes.listing(), bound(site_id=site_id))]

    def pause(self, site_id: int, lane: str, *, actor: str, reason: str = "", dry_run: bool = False) -> Turned:
        """Let nothing of a lane begin any more. Raises Refused when it is not active, NotFound when it is not there."""
        return self._write(lambda cn: self._turn(cn, "pause", site_id, lane, actor, reason), dry_run=dry_run)

    def resume(self, site_id: int, lane: str, *, actor: str, reason: str = "", dry_run: bool = False) -> Turned:
        """Let a paused lane go on where it stood."""
        return self._write(lambda cn: self._turn(cn, "resume", site_id, lane, actor, reason), dry_run=dry_run)

    def close(self, site_id: int, lane: str, *, actor: str, reason: str = "", dry_run: bool = False) -> Turned:
        """Let nothing of a lane begin, and nothing be added to it, any more."""
        return self._write(lambda cn: self._turn(cn, "close", site_id, lane, actor, reason), dry_run=dry_run)

    def open(self, site_id: int, lane: str, *, actor: str, reason: str = "", dry_run: bool = False) -> Turned:
        """Let a closed lane go on where it stood."""
        return self._write(lambda cn: self._turn(cn, "open", site_id, lane, actor, reason), dry_run=dry_run)

    def stretch(self, site_id: int, after: str) -> Stretch:
        """The next lanes behind the one named ``after``, as many as upkeep looks at in one go."""
        asked = bound(site_id=site_id, after=after, length=AT_ONCE - 1)
        with self._reading() as connection:
            return Stretch(after, connection.execute(lanes.stretch(), asked).scalar_one_or_none())

    def settle(self, site_id: int, stretch: Stretch = ALL) -> int:
        """Take the turn from what became pending in lanes that are not active; returns how many.

        A worker's retry, or its step to a stage without limit, looks at no lane. Lanes that others hold just now are
        left for the next time: workers wait for none. Nothing is to be freed in turn: rows wait for no gate and no
        person only while a pause holds its lane's row.
        """
        with self._reading() as connection:
            asked = bound(site_id=site_id, after=stretch.after, end=stretch.end)
            found = connection.execute(lanes.strays(), asked).all()
        return sum(self._write(lambda cn, name=row.name: self._settle(cn, site_id, name)) for row in found)  # type: ignore[misc]

    def _settle(self, connection: Connection, site_id: int, lane: str) -> int:
        row = connection.execute(lanes.lock_if_free(), bound(site_id=site_id, name=lane)).one_or_none()
        if row is None or row.state == "active":
            return 0
        at = bound(site_id=site_id, lane_id=row.id)
        wanted = connection.execute(lanes.gate_ids(), at).scalars().all()
        if len(self._lock_gates(connection, wanted, wait=False)) < len(wanted):
            return 0
        return len(connection.execute(lanes.demote(), at).all())

    def _turn(self, connection: Connection, verb: str, site_id: int, lane: str, actor: str, reason: str) -> Turned:
        sources, after = _TURNS[verb]
        row = connection.execute(lanes.lock(), bound(site_id=site_id, name=lane)).one_or_none()
        if row is None:
            raise NotFound(f"no lane {lane!r} in this site; see: pipeline lanes list --site SITE")
        at = bound(site_id=site_id, lane_id=row.id)
        locked: Sequence[int] = connection.execute(lanes.lock_gates(), at).scalars().all()
        if row.state not in sources:
            hint = "; open it: pipeline lanes open SITE/LANE" if row.state == "closed" and after != "closed" else ""
            raise Refused(f"lane {lane!r} is {row.state}{' already' if row.state == after else ''}{hint}")
        connection.execute(lanes.turn(), {**at, **bound(state=after)})
        moved = {r.id for r in connection.execute(lanes.free(self._clock) if after == "active" else lanes.demote(), at)}
        if after == "active":
            moved |= {r.id for r in self._give_turns(connection, locked)}
        note(
            connection, verb, actor, reason, site_id=site_id, lane_id=row.id,
            from_state=row.state, to_state=after, details={"jobs": len(moved)},
        )  # fmt: skip
        return Turned(lane, row.state, after, len(moved), connection.execute(lanes.running(), at).scalar_one())


def note(connection: Connection, verb: str, actor: str, reason: str, **what: Any) -> None:
    """Write an event that is of no single job."""
    said = {"verb": verb, "actor": clean(actor, 200), "reason": clean(reason)}
    connection.execute(insert(events).values(**said, **what))


def _line(row: Any) -> LaneLine:
    head = pause = None
    if row.head_job is not None:
        head = Head(row.head_position, row.head_slug, row.head_stage, row.head_state, row.head_job)
    if row.paused_at is not None:
        pause = Pause(row.paused_at, row.paused_by, row.paused_reason)
    return LaneLine(row.name, row.state, row.topics, row.live, row.waiting, head, pause, row.on_failed, row.overrides)
