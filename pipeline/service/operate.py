"""An operator's verbs on jobs: cancel, requeue, approve, skip, grant; floor 2.

Each is noted in events with actor and reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select

from pipeline.errors import NotFound, Refused
from pipeline.service.base import TRIES, Service, clean
from pipeline.sql import assembly, lanes, operate, plan, reads
from pipeline.sql.batch import bound
from pipeline.states import ASSEMBLE, TRANSITIONS, JobState, StageState
from pipeline.views import JobView

AT_ONCE = 500  # jobs that a filter moves in one transaction


@dataclass(frozen=True, slots=True)
class Moved:
    """One job that an operator's verb moved."""

    job_id: int
    from_state: JobState
    to_state: JobState
    stage: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs of a site a verb is meant for; what is None, or empty, lets all pass."""

    site_id: int
    lane: str | None = None
    stage: str | None = None  # where they stand
    states: frozenset[JobState] = frozenset()
    error_class: str | None = None


Jobs = Sequence[int] | Filter
"""Numbers, of which all are moved or none; or a filter, which moves what still matches when its row is locked."""


@dataclass(frozen=True, slots=True)
class _Verb:
    name: str
    past: str
    statement: Select[Any]
    whole_lane: bool = False  # it locks every gate of the lane
    enters: bool = False  # it comes to a gate
    force: bool = False  # reserved ones are taken from their holders
    stage: str | None = None
    grant: int | None = None

    @property
    def sources(self) -> frozenset[JobState]:
        return TRANSITIONS[self.name].sources | ({JobState.RESERVED} if self.force else frozenset())


class _Overtaken(Refused):
    """The verb allows the job's state, yet it was not written: it changed hands, or came to a gate, under our eyes."""


class Operate(Service):
    """What people do to jobs. With ``dry_run`` it is judged by the very same statements, and nothing is kept."""

    def cancel(
        self, jobs: Jobs, *, actor: str, reason: str = "", force: bool = False, dry_run: bool = False
    ) -> list[Moved]:
        """Cancel jobs that wait or are pending; reserved ones are asked to stop. A cancelled head halts its lane.

        ``force`` takes a reservation away at once: what its holder still says is lost.
        """
        statement = operate.cancel_now(self._clock) if force else operate.cancel(self._clock)
        return self._do(_Verb("cancel", "cancelled", statement, force=force), jobs, actor, reason, dry_run)

    def requeue(
        self,
        jobs: Jobs,
        *,
        actor: str,
        reason: str = "",
        stage: str | None = None,
        grant: int = 5,
        dry_run: bool = False,
    ) -> list[Moved]:
        """Put failed, repair and cancelled jobs back to work where they stood, or at ``stage``, with ``grant``
        attempts more."""
        verb = _Verb("requeue", "requeued", operate.requeue(self._clock), enters=True, stage=stage, grant=grant)
        return self._do(verb, jobs, actor, reason, dry_run)

    def approve(self, jobs: Jobs, *, actor: str, reason: str = "", dry_run: bool = False) -> list[Moved]:
        """Let jobs go that are held for a person, each at its place: their stage runs again, and is told."""
        verb = _Verb("approve", "approved", operate.approve(self._clock), enters=True)
        return self._do(verb, jobs, actor, reason, dry_run)

    def skip(
        self, jobs: Jobs, *, actor: str, reason: str = "", force: bool = False, dry_run: bool = False
    ) -> list[Moved]:
        """Give jobs up for good, so that their lanes go on. ``force`` takes reserved ones from their holders."""
        verb = _Verb("skip", "skipped", operate.skip(self._clock), whole_lane=True, force=force)
        return self._do(verb, jobs, actor, reason, dry_run)

    def grant(self, jobs: Jobs, *, attempts: int, actor: str, reason: str = "", dry_run: bool = False) -> list[Moved]:
        """Permit so many attempts more to jobs that wait, are pending or reserved, at the stage where they stand."""
        verb = _Verb("grant", "granted attempts", operate.grant(self._clock), grant=attempts)
        return self._do(verb, jobs, actor, reason, dry_run)

    def hasten(self, site_id: int) -> bool:
        """Make an assembly that waits for more pages due now, since there are none to come; whether there was one."""
        return bool(self._write(lambda cn: cn.execute(operate.hasten(self._clock), bound(site_id=site_id)).all()))

    def _do(self, verb: _Verb, jobs: Jobs, actor: str, reason: str, dry_run: bool) -> list[Moved]:
        values = bound(actor=clean(actor, 200), reason=clean(reason), stage=verb.stage, grant=verb.grant)
        if not isinstance(jobs, Filter):
            everything = bound(lane_id=None, at=None, error_class=None, states=None)
            return self._patiently(verb, sorted(set(jobs)), {**values, **everything}, dry_run, all_or_none=True)
        values |= self._conditions(jobs)
        asked = {**values, **bound(site_id=jobs.site_id, sources=sorted(verb.sources))}
        moved: dict[int, Moved] = {}
        first: set[int] = set()
        # Again for those that still match and were not moved: they came to a gate, or changed hands, under our eyes.
        for round_ in range(TRIES):
            before = len(moved)
            with self._reading() as connection:
                found = connection.execute(operate.candidates(), asked).all()
            first = first or {row.id for row in found}  # not what comes to match later: that would never end
            ids = [row.id for row in found if row.id in first - moved.keys() and row.topic_id is not None]
            own = [row.id for row in found if row.id in first - moved.keys() and row.topic_id is None]
            for start in range(0, len(ids), AT_ONCE):
                batch = self._patiently(verb, ids[start : start + AT_ONCE], values, dry_run, all_or_none=False)
                moved |= {m.job_id: m for m in batch}
            for job_id in own:
                moved |= {m.job_id: m for m in self._patiently(verb, [job_id], values, dry_run, all_or_none=False)}
            if not (ids or own) or (round_ and len(moved) == before):
                break
        return [moved[job_id] for job_id in sorted(moved)]

    def _conditions(self, wanted: Filter) -> dict[str, Any]:
        """The filter as parameters, by which each write asks again. Raises NotFound for a lane that is not there."""
        lane_id = None
        if wanted.lane is not None:
            with self._reading() as connection:
                named = bound(site_id=wanted.site_id, name=wanted.lane)
                lane_id = connection.execute(lanes.named(), named).scalar_one_or_none()
            if lane_id is None:
                raise NotFound(f"no lane {wanted.lane!r} in this site; see: pipeline lanes list --site SITE")
        states = sorted(wanted.states) or None
        return bound(lane_id=lane_id, at=wanted.stage, error_class=wanted.error_class, states=states)

    def _patiently(
        self, verb: _Verb, ids: Sequence[int], values: dict[str, Any], dry_run: bool, *, all_or_none: bool
    ) -> list[Moved]:
        given = {**values, **bound(ids=list(ids))}
        for _ in range(TRIES - 1):
            try:
                return self._write(lambda cn: self._move(cn, verb, given, all_or_none), dry_run=dry_run)
            except _Overtaken:
                continue  # its new gates are looked for, and its new state is acted upon
        return self._write(lambda cn: self._move(cn, verb, given, all_or_none), dry_run=dry_run)

    def _move(self, connection: Connection, verb: _Verb, values: dict[str, Any], all_or_none: bool) -> list[Moved]:
        if verb.force:
            self._hold_sites(connection, values)
        if verb.enters or verb.whole_lane:
            connection.execute(operate.share_lanes(wait=True), values).all()
        touched = operate.gates_touched(whole_lane=verb.whole_lane, entering=verb.enters)
        locked = self._lock_gates(connection, list(connection.execute(touched, values).scalars()))
        given = {**values, "gates": locked}
        ids = values["p_ids"]
        moved = []
        if verb.name == "skip" and verb.force:
            # At once: cancelled, it would halt its lane; reserved, it cannot be skipped.
            moved = self._take(connection, verb, given)
            given |= bound(ids=sorted(set(ids) - {m.job_id for m in moved}))
        moved += [
            Moved(row.id, JobState(row.from_state), JobState(row.to_state), row.stage)
            for row in connection.execute(verb.statement, given)
        ]
        if all_or_none and len(moved) < len(ids):
            # The transaction ends with the refusal.
            self._refuse(connection, verb, ids, {m.job_id for m in moved})
        promoted = {row.id for row in self._give_turns(connection, locked)}
        if verb.force:
            # What its holder had done may be live already: the site is looked at again.
            ended = [m.job_id for m in moved if m.from_state is JobState.RESERVED and m.stage != ASSEMBLE]
            self._look_again(connection, sorted(connection.execute(operate.sites_of(), bound(ids=ended)).scalars()))
        moved.sort(key=lambda m: m.job_id)  # those that were taken came first
        return [replace(m, to_state=JobState.PENDING) if m.job_id in promoted else m for m in moved]

    def _take(self, connection: Connection, verb: _Verb, given: dict[str, Any]) -> list[Moved]:
        """Skip those that are reserved: cancelled first, which takes them from their holders."""
        states = given["p_states"]
        if states is not None and JobState.RESERVED not in states:
            return []
        reserved = {**given, **bound(states=[JobState.RESERVED])}
        taken = [row.id for row in connection.execute(operate.cancel_now(self._clock), reserved)]
        skipped = connection.execute(verb.statement, {**given, **bound(ids=taken, states=None)})
        return [Moved(row.id, JobState.RESERVED, JobState(row.to_state), row.stage) for row in skipped]

    def _hold_sites(self, connection: Connection, values: dict[str, Any]) -> None:
        """Lock the sites of their own jobs first, as the end of an assembly does, which it may meet. Raises Refused for
        a mixture: a page's end locks its site last."""
        rows = connection.execute(operate.kinds(), values).all()
        own = [row for row in rows if row.topic_id is None]
        if own and len(own) < len(rows):
            raise Refused(f"job {own[0].id} is a site's own; with --force name it by itself")
        if own:
            connection.execute(assembly.lock_sites(), bound(site_ids=sorted({row.site_id for row in own}))).all()

    def _refuse(self, connection: Connection, verb: _Verb, wanted: Sequence[int], moved: set[int]) -> None:
        """Raise the reason why the first job that was not moved was not."""
        missing = next(i for i in wanted if i not in moved)
        statement = reads.job_list(by_site=False, by_state=False, by_ids=True)
        row = connection.execute(statement, bound(ids=[missing], limit=1)).one_or_none()
        if row is None:
            raise NotFound(f"no job {missing}; see: pipeline jobs list")
        if row.state not in verb.sources:
            allowed = ", ".join(sorted(verb.sources))
            hints = {
                ("skip", "reserved"): "; cancel it first, or take it from its holder: --force",
                ("grant", "failed"): f"; put it back to work: pipeline jobs requeue {missing}",
                ("grant", "repair"): f"; put it back to work: pipeline jobs requeue {missing}",
            }
            hint = hints.get((verb.name, row.state), "")
            raise Refused(f"job {missing} is {row.state}; only {allowed} can be {verb.past}{hint}")
        if verb.name == "approve":
            raise Refused(
                f"job {missing} waits for its turn, not for a person; see why: pipeline explain {row.site}/{row.topic}"
            )
        if verb.name == "requeue" and verb.stage is not None:
            raise Refused(f"job {missing}: site {row.site} has no stage {verb.stage!r}")
        if verb.name == "requeue" and row.error_class == "rejected":
            stages = connection.execute(plan.known_stages(), bound(site_id=row.site_id))
            first = next((stage.name for stage in stages if stage.state != StageState.RETIRED), "NAME")
            raise Refused(
                f"job {missing} was rejected in its last round: its draft must be made again;"
                f" mend its row, then: pipeline jobs requeue {missing} --stage {first}"
            )
        if verb.name == "requeue":
            raise _Overtaken(
                f"job {missing}: its stage {row.stage!r} was retired, and none follows; name one with --stage"
            )
        raise _Overtaken(f"job {missing} moves on faster than it can be {verb.past}; try again")


def job_view(row: Any) -> JobView:
    """One row of ``reads.job_list`` as a view."""
    return JobView(
        id=row.id,
        site=row.site,
        lane=row.lane,
        topic=row.topic,
        position=row.position,
        number=row.number,
        stage=row.stage,
        state=JobState(row.state),
        round=row.round,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        run_at=row.run_at,
        reserved_by=row.reserved_by,
        lease_expires_at=row.lease_expires_at,
        error_class=row.error_class,
        error=row.error,
    )
