"""The order of a site's stages as data: registered, paused, retired, restored; floor 2.

Why a run never retires: several releases of a project work side by side while a new one is rolled out, each with its
own ``PIPELINE``. If a run took out what it lacks, the older release would take the new stage out each time it runs, and
the newer one bring it back: whoever ran last would win, and pages would skip the stage in between. So a run only adds.
What it lacks stays; it works on what it knows, and says what waits for others. Taking a stage out, and bringing one
back, is a person's act, noted as an event; no release undoes it by running. (Comparing releases by a number or a time
was rejected: a rollback is an older release that is meant.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, insert, update

from pipeline.errors import NotFound, Refused, StagesError
from pipeline.project.site import Site
from pipeline.service.base import Service, clean
from pipeline.sql import assembly, gates, operate, plan, reads, stages as order
from pipeline.sql.batch import bound
from pipeline.sql.tables import events, stages
from pipeline.states import LIVE, JobState, StageState

GAP = 1000
MOVED_AT_ONCE = 1000
UPKEEP = "upkeep"  # who moves on what came to a retired stage later


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What the database needs to know of a stage class."""

    name: str
    width: int | None
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Differences:
    """How a project's stages differ from the order that the database has."""

    unknown: tuple[str, ...] = ()  # active in the database, not in PIPELINE
    retired: tuple[str, ...] = ()  # in PIPELINE, but a person took them out
    widths: tuple[tuple[str, int | None, int | None], ...] = ()  # (name, the database's, PIPELINE's)


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage of a site as the database has it."""

    name: str
    ordinal: int
    state: StageState
    width: int | None
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Retired:
    """What became of a stage that was taken out."""

    name: str
    next: str | None  # the stage to which its jobs moved on
    moved: int


Prints: TypeAlias = dict[str, dict[str, str]]
NO_PRINTS: Prints = {}


class Order(Service):
    """The verbs on a site's stages."""

    def register(self, site: Site, specs: Sequence[StageSpec], prints: Prints = NO_PRINTS) -> int:
        """Bring the site's row up to date and add the stages that are new; returns the site's id.

        ``prints``: by type of page, what the stages add to a topic's hash, for those who plan without the project at
        hand. Raises StagesError when ``PIPELINE`` cannot be reconciled with the order that jobs already follow.
        """

        values = bound(
            slug=site.slug,
            name=site.name,
            base_url=site.base_url,
            time_zone=site.time_zone,
            locale=site.locale,
            settings={"lanes": dict(site.lanes), "paths": dict(site.paths), "fingerprints": prints},
        )
        site_id = int(self._write(lambda cn: cn.execute(plan.put_site(), values).one()).id)
        # In another transaction: workers wait for the site's row, and this may wait for whoever makes a lane.
        made = self._write(lambda connection: self._arrange(connection, site_id, specs))
        if made:
            self._write(lambda connection: self._catch_up(connection, made))
        return site_id

    def _arrange(self, connection: Connection, site_id: int, specs: Sequence[StageSpec]) -> list[int]:
        """Add the stages that are new, and make the gates that are missing; the ids of those."""
        at = bound(site_id=site_id)
        known = {row.name for row in connection.execute(plan.known_stages(), at)}
        adds = not {spec.name for spec in specs} <= known
        if adds and not connection.execute(order.lock(), at).all():
            connection.execute(
                assembly.lock_sites(), bound(site_ids=[site_id])
            ).all()  # a new site: nobody works there yet
        self._register_stages(connection, site_id, specs)
        if adds:
            connection.execute(plan.touch_stages(), at)
            connection.execute(plan.lock_lanes(), at).all()
        return self._make_gates(connection, site_id)

    def _catch_up(self, connection: Connection, made: Sequence[int]) -> None:
        """When workers that did not know of these gates have ended: what they left is passed, the head has its turn."""
        locked = self._lock_gates(connection, made)
        connection.execute(plan.await_reserved(), {"gates": locked}).all()
        self._give_turns(connection, locked)

    def _register_stages(self, connection: Connection, site_id: int, specs: Sequence[StageSpec]) -> None:
        known = {row.name: row for row in connection.execute(plan.known_stages(), bound(site_id=site_id))}
        taken = {row.ordinal for row in known.values()}
        place = 0
        for index, spec in enumerate(specs):
            row = known.get(spec.name)
            if row is None:
                # Ordinals stay, those of stages that were taken out as well: the next one up is the neighbour.
                above = [o for o in taken if o > place]
                last = all(s.name not in known for s in specs[index + 1 :])
                ordinal = max(above, default=place) + GAP if last or not above else (place + min(above)) // 2
                if ordinal == place:
                    raise StagesError(f"there is no room for stage {spec.name!r} between its neighbours' ordinals")
                new = {"site_id": site_id, "ordinal": ordinal, "name": spec.name, "width": spec.width}
                connection.execute(insert(stages).values(**new, max_attempts=spec.max_attempts))
                taken.add(ordinal)
                place = ordinal
                continue
            if row.ordinal <= place:
                raise StagesError(
                    f"stage {spec.name!r} stands earlier in the database than in stages:PIPELINE; the order of stages"
                    " that jobs already follow cannot be turned round: give the class a new name"
                )
            place = row.ordinal
            if row.max_attempts != spec.max_attempts:
                connection.execute(
                    update(stages)
                    .where(stages.c.site_id == site_id, stages.c.name == spec.name)
                    .values(max_attempts=spec.max_attempts)
                )

    def _make_gates(self, connection: Connection, site_id: int) -> list[int]:
        """Make the gates that are missing, before anybody can come to their stage; each begins behind what is over."""
        made = list(connection.execute(plan.put_gates(), bound(site_id=site_id)).scalars())
        if made:
            connection.execute(gates.move_passed(), {"gates": made})
        return made

    def order(self, site_id: int) -> list[StageRow]:
        """The site's stages in their order, those that were taken out as well."""
        with self._reading() as connection:
            return _rows(connection, site_id)

    def differences(self, site_id: int, specs: Sequence[StageSpec]) -> Differences:
        """What a project with these stages should know about the order that the database has."""
        mine = {spec.name: spec for spec in specs}
        rows = self.order(site_id)
        return Differences(
            unknown=tuple(r.name for r in rows if r.name not in mine and r.state is not StageState.RETIRED),
            retired=tuple(r.name for r in rows if r.name in mine and r.state is StageState.RETIRED),
            widths=tuple(
                (r.name, r.width, mine[r.name].width) for r in rows if r.name in mine and r.width != mine[r.name].width
            ),
        )

    def retire(self, site_id: int, name: str, *, actor: str, reason: str = "", dry_run: bool = False) -> Retired:
        """Take a stage out of the order: nobody comes to it any more, and what waits or is pending there moves on.

        Reserved jobs are finished by their workers; failed, repair and cancelled ones stay until a person requeues
        them, and go on from there. Doing it again moves on what has come to stand there meanwhile. With ``dry_run``
        everything is judged and nothing written; ``moved`` is then what would be. Raises NotFound, and Refused for the
        only stage, or for the last as long as jobs stand at it: without a next one they could only be called done.
        """

        def body(connection: Connection) -> tuple[str | None, int]:
            connection.execute(order.lock(), bound(site_id=site_id)).all()
            rows = _rows(connection, site_id)
            row = _named(rows, name)
            active = [r for r in rows if r.state is not StageState.RETIRED and r.name != name]
            following = min((r for r in active if r.ordinal > row.ordinal), key=lambda r: r.ordinal, default=None)
            standing = connection.execute(reads.unfinished(self._clock), bound(site_id=site_id)).all()
            here = {JobState(state): count for stage, state, count, *_ in standing if stage == name}
            live = sum(count for state, count in here.items() if state in LIVE)
            if row.state is not StageState.RETIRED:
                if not active:
                    raise Refused(f"stage {name!r} is the only one of its site; a site without stages does nothing")
                if following is None and live:
                    raise Refused(
                        f"stage {name!r} is the last one, and {live} unfinished job{'s' * (live != 1)} stand at it;"
                        " let them end first, or skip them: pipeline jobs list"
                    )
                if not dry_run:
                    self._set(connection, site_id, name, StageState.RETIRED, "retire", actor, reason)
            return following.name if following else None, live - here.get(JobState.RESERVED, 0)

        following, idle = self._write(body)
        moved = idle if dry_run else self.move_on(site_id, actor=actor, wait=True)
        return Retired(name, following, moved)

    def restore(self, site_id: int, name: str, *, actor: str, reason: str = "") -> None:
        """Bring a stage back to its old place, for jobs that have not passed it. Raises NotFound and Refused."""

        def body(connection: Connection) -> None:
            connection.execute(order.lock(), bound(site_id=site_id)).all()
            if _named(_rows(connection, site_id), name).state is not StageState.RETIRED:
                raise Refused(f"stage {name!r} is not retired")
            self._set(connection, site_id, name, StageState.ACTIVE, "restore", actor, reason)

        self._write(body)

    def pause(self, site_id: int, name: str, *, actor: str, reason: str = "", dry_run: bool = False) -> None:
        """Let nothing be claimed at a stage any more; what runs finishes, and all places are kept. Raises NotFound and
        Refused."""
        self._turn_stage(site_id, name, StageState.PAUSED, actor, reason, dry_run)

    def resume(self, site_id: int, name: str, *, actor: str, reason: str = "", dry_run: bool = False) -> None:
        """Let a paused stage go on."""
        self._turn_stage(site_id, name, StageState.ACTIVE, actor, reason, dry_run)

    def _turn_stage(self, site_id: int, name: str, after: StageState, actor: str, reason: str, dry_run: bool) -> None:
        before, verb = (StageState.ACTIVE, "pause") if after is StageState.PAUSED else (StageState.PAUSED, "resume")

        def body(connection: Connection) -> None:
            connection.execute(order.lock(), bound(site_id=site_id)).all()
            state = _named(_rows(connection, site_id), name).state
            if state is not before:
                raise Refused(f"stage {name!r} is {state}{' already' if state is after else ''}")
            self._set(connection, site_id, name, after, verb, actor, reason)

        self._write(body, dry_run=dry_run)

    def _set(
        self, connection: Connection, site_id: int, name: str, state: StageState, verb: str, actor: str, reason: str
    ) -> None:
        connection.execute(order.set_state(), bound(site_id=site_id, name=name, state=state))
        note = {"site_id": site_id, "verb": verb, "actor": clean(actor, 200), "reason": clean(reason)}
        connection.execute(insert(events).values(**note, details={"stage": name}))

    def move_on(self, site_id: int, *, actor: str = UPKEEP, wait: bool = False) -> int:
        """Move jobs on that wait or are pending at retired stages; returns how many.

        Also what came to stand there after the stage was taken out: a worker may have been on its way, or its job was
        to be tried again. Jobs at gates that others hold just now are left for the next time, unless told to ``wait``.
        """
        if all(row.state is not StageState.RETIRED for row in self.order(site_id)):
            return 0
        moved = 0
        while count := self._write(lambda connection: self._move_batch(connection, site_id, actor, wait)):
            moved += count
        return moved

    def _move_batch(self, connection: Connection, site_id: int, actor: str, wait: bool) -> int:
        at_site = bound(site_id=site_id, limit=MOVED_AT_ONCE)
        ids = list(connection.execute(order.left_behind(), at_site).scalars())
        if not ids:
            return 0
        # A lane whose gates are being made just now is left for the next time.
        lanes = connection.execute(operate.share_lanes(wait=wait), bound(ids=ids)).scalars().all()
        ids = list(connection.execute(operate.in_lanes(), bound(ids=ids, lane_ids=list(lanes))).scalars())
        values: dict[str, Any] = bound(ids=ids, actor=clean(actor, 200))
        wanted = list(connection.execute(order.gates_touched(), values).scalars())
        locked = self._lock_gates(connection, wanted, wait=wait)
        moved = connection.execute(order.move_on(self._clock), {**values, "gates": locked}).all()
        self._give_turns(connection, locked)
        return len(moved)


def _rows(connection: Connection, site_id: int) -> list[StageRow]:
    found = connection.execute(plan.known_stages(), bound(site_id=site_id))
    return [StageRow(r.name, r.ordinal, StageState(r.state), r.width, r.max_attempts) for r in found]


def _named(rows: Sequence[StageRow], name: str) -> StageRow:
    for row in rows:
        if row.name == name:
            return row
    raise NotFound(f"no stage {name!r} in this site; there is: {', '.join(r.name for r in rows) or 'none yet'}")
