"""Where topics stand: move one in its lane, or to another, and put a new one into the middle; floor 2.

Only beyond what every strict gate of the lane has passed: there nobody was released yet, so that a new order breaks no
promise. Lanes come first, then all of their gates, then the passes of the stretch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlalchemy import Connection

from pipeline.errors import NotFound, Refused
from pipeline.service.base import Service, clean
from pipeline.sql import places, plan
from pipeline.sql.batch import bound, rows
from pipeline.states import JobState, LaneState
from pipeline.views import TopicRow


@dataclass(frozen=True, slots=True)
class Place:
    """A lane, and a position in it."""

    lane: str
    position: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A topic that was moved, or put in."""

    slug: str
    before: Place | None  # None: it is new
    after: Place


class Places(Service):
    """The verbs on places."""

    def move(
        self,
        site_id: int,
        slug: str,
        *,
        before: str | None = None,
        after: str | None = None,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> Moved:
        """Move a topic in its lane, to stand right before or right after another.

        Raises NotFound, and Refused when the lane has reached one of the places, or somebody works there just now.
        """

        def body(connection: Connection) -> Moved:
            row = self._topic(connection, site_id, slug)
            lanes = connection.execute(places.lock_lanes(), bound(site_id=site_id, names=[row.lane])).all()
            gates = connection.execute(places.lock_gates(), bound(lane_ids=[lane.id for lane in lanes])).all()
            row = self._still_in(connection, site_id, slug, row.lane)
            _refuse_over(row, slug)
            mate = self._still_in(connection, site_id, (before or after) or "", row.lane)
            if mate.id == row.id:
                raise Refused(f"topic {slug!r} cannot stand before or after itself")
            to = (
                mate.position - (mate.position > row.position)
                if before
                else mate.position + (mate.position < row.position)
            )
            if to != row.position:
                state = self._turn(connection, gates, row, to)
                if state == JobState.RESERVED:
                    _refuse_running(row, slug)
                said = {"position": row.position, "to": to}
                self._note(connection, row, state, actor, reason, said, [g.id for g in gates])
            return Moved(slug, Place(row.lane, row.position), Place(row.lane, to))

        return self._write(body, dry_run=dry_run)

    def move_to_lane(
        self, site_id: int, slug: str, lane: str, *, actor: str, reason: str = "", dry_run: bool = False
    ) -> Moved:
        """Move a topic to the end of another lane. Raises Refused while it is reserved, or when that lane is closed."""

        def body(connection: Connection) -> Moved:
            row = self._topic(connection, site_id, slug)
            if row.lane == lane:
                raise Refused(f"topic {slug!r} is in lane {lane!r} already")
            lanes = connection.execute(places.lock_lanes(), bound(site_id=site_id, names=[row.lane, lane])).all()
            target = next((x for x in lanes if x.name == lane), None)
            if target is None:
                raise NotFound(f"no lane {lane!r} in this site; see: pipeline lanes list --site SITE")
            if target.state == LaneState.CLOSED:
                raise Refused(f"lane {lane!r} is closed; open it first: pipeline lanes open SITE/LANE")
            gates = connection.execute(places.lock_gates(), bound(lane_ids=[x.id for x in lanes])).all()
            row = self._still_in(connection, site_id, slug, row.lane)
            _refuse_over(row, slug)
            at = bound(topic_id=row.id, lane_id=target.id)
            states = {r.id: r.state for r in connection.execute(places.lock_passes(), at)}
            state = states.get(row.job_id)
            if state == JobState.RESERVED:
                _refuse_running(row, slug)
            connection.execute(places.change_lane(), at)
            connection.execute(places.count_up(), at)
            connection.execute(places.change_lane_of_passes(self._clock), at)
            connection.execute(places.placed(self._clock), at)
            place = Place(lane, target.next_position)
            said = {"lane": row.lane, "position": row.position, "to_lane": lane, "to": place.position}
            self._note(connection, row, state, actor, reason, said, [g.id for g in gates])
            return Moved(slug, Place(row.lane, row.position), place)

        return self._write(body, dry_run=dry_run)

    def insert(
        self, site_id: int, topic: TopicRow, before: str, *, actor: str, reason: str = "", dry_run: bool = False
    ) -> Moved:
        """Plan a new topic right before another of its lane, which has not reached that place. Raises as ``move``."""

        def body(connection: Connection) -> Moved:
            lanes = connection.execute(places.lock_lanes(), bound(site_id=site_id, names=[topic.lane])).all()
            if not lanes:
                raise NotFound(f"no lane {topic.lane!r} in this site; see: pipeline lanes list --site SITE")
            if lanes[0].state == LaneState.CLOSED:
                raise Refused(f"lane {topic.lane!r} is closed; open it first: pipeline lanes open SITE/LANE")
            gates = connection.execute(places.lock_gates(), bound(lane_ids=[lanes[0].id])).all()
            mate = self._still_in(connection, site_id, before, topic.lane)
            locked = [g.id for g in gates]
            self._append(connection, site_id, topic, locked)
            row = self._topic(connection, site_id, topic.slug)
            state = self._turn(connection, gates, row, mate.position)
            said = {"position": mate.position, "new": True}
            self._note(connection, row, state, actor, reason, said, locked)
            return Moved(topic.slug, None, Place(topic.lane, mate.position))

        return self._write(body, dry_run=dry_run)

    def _append(self, connection: Connection, site_id: int, topic: TopicRow, locked: Sequence[int]) -> None:
        """The topic and its pass at the end of the lane; nobody has got a turn yet."""
        at_site = bound(site_id=site_id)
        if connection.execute(places.topic(), {**at_site, **bound(slug=topic.slug)}).one_or_none() is not None:
            raise Refused(f"topic {topic.slug!r} is planned already; move it: pipeline topics move SITE/SLUG")
        new = {
            "n": 0, "lane": topic.lane, "slug": topic.slug, "path": topic.path, "title": topic.title,
            "type": topic.type, "brief": dict(topic.brief), "input_hash": topic.input_hash,
        }  # fmt: skip
        added = connection.execute(plan.add_topics(), {**at_site, "topics": [new]}).one()
        connection.execute(plan.count_positions(), {**at_site, **bound(names=[topic.lane])})
        wanted = {"ids": rows([{"id": added.id}]), "gates": list(locked)}
        connection.execute(plan.add_jobs(self._clock), {**at_site, **wanted})

    def _turn(self, connection: Connection, gates: Sequence[Any], row: Any, to: int) -> str | None:
        """Bring the topic of ``row`` to position ``to`` of its lane; all between make room.

        Returns the state that its pass had, read under the lock: a claim may have been faster.
        """
        first, last = sorted((row.position, to))
        for gate in gates:
            if gate.width == 1 and gate.passed >= first:
                raise Refused(
                    f"lane {row.lane!r} has released up to position {gate.passed} at stage {gate.stage!r}; a topic can"
                    f" move beyond that only, and not from or to position {first}"
                )
        at = bound(lane_id=row.lane_id, first=first, last=last, back=1 if to < row.position else -1)
        connection.execute(places.lock_stretch(), at).all()
        states = {r.id: r.state for r in connection.execute(places.lock_passes(), bound(topic_id=row.id))}
        connection.execute(places.demote(), at)
        if (busy := connection.execute(places.running(), at).one_or_none()) is not None:
            raise Refused(
                f"job {busy.id} of lane {row.lane!r} runs at stage {busy.stage!r} within that stretch, held by"
                f" {busy.reserved_by}; try again when it has ended: pipeline status"
            )
        connection.execute(places.turn_jobs(), at)
        connection.execute(places.turn_topics(), at)
        connection.execute(places.placed(self._clock), bound(topic_id=row.id))
        return states.get(row.job_id)

    def _note(
        self,
        connection: Connection,
        row: Any,
        state: str | None,
        actor: str,
        reason: str,
        details: dict[str, Any],
        locked: Sequence[int],
    ) -> None:
        """Give turns by the new order, and note who made it."""
        self._give_turns(connection, locked)
        said = {"actor": clean(actor, 200), "reason": clean(reason), "details": details, "before": state}
        connection.execute(places.note(), bound(topic_id=row.id, **said)).all()

    def _topic(self, connection: Connection, site_id: int, slug: str) -> Any:
        row = connection.execute(places.topic(), bound(site_id=site_id, slug=slug)).one_or_none()
        if row is None:
            raise NotFound(f"no topic {slug!r} is planned in this site; see: pipeline topics list --site SITE")
        return row

    def _still_in(self, connection: Connection, site_id: int, slug: str, lane: str) -> Any:
        """The topic, read again under the locks. Raises Refused when it is of another lane."""
        row = self._topic(connection, site_id, slug)
        if row.lane != lane:
            raise Refused(
                f"topic {slug!r} is in lane {row.lane!r}, not in {lane!r}; see: pipeline topics list --site SITE"
            )
        return row


def _refuse_running(row: Any, slug: str) -> NoReturn:
    raise Refused(
        f"topic {slug!r} is running: job {row.job_id} at {row.stage}; move it when it has ended, or stop it:"
        f" pipeline jobs cancel {row.job_id}"
    )


def _refuse_over(row: Any, slug: str) -> None:
    """Raise Refused for a topic whose passes have all ended: its place is history."""
    if row.job_id is None:
        raise Refused(f"topic {slug!r} is done or skipped; only what is still to be released can be moved")
