"""An operator's verbs on jobs: cancel, requeue, skip; floor 2. Each is noted in events with actor and reason."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from pipeline.errors import NotFound, Refused
from pipeline.service.base import TRIES, Service, clean
from pipeline.sql import operate, reads
from pipeline.sql.batch import bound
from pipeline.states import TRANSITIONS, JobState
from pipeline.views import JobView


@dataclass(frozen=True, slots=True)
class Moved:
    """One job that an operator's verb moved."""

    job_id: int
    from_state: JobState
    to_state: JobState
    stage: str


class _Overtaken(Refused):
    """The verb allows the job's state, yet it was not written: it changed hands, or came to a gate, under our eyes."""


class Operate(Service):
    """What people do to jobs."""

    def cancel(self, ids: Sequence[int], *, actor: str, reason: str = "") -> list[Moved]:
        """Cancel jobs that wait or are pending; reserved ones are asked to stop. A cancelled head halts its lane."""
        return self._do("cancel", ids, actor, reason, whole_lane=False)

    def requeue(
        self, ids: Sequence[int], *, actor: str, reason: str = "", stage: str | None = None, grant: int = 5
    ) -> list[Moved]:
        """Put failed, repair and cancelled jobs back to work where they stood, or at ``stage``, with ``grant``
        attempts more."""
        return self._do("requeue", ids, actor, reason, whole_lane=False, stage=stage, grant=grant)

    def skip(self, ids: Sequence[int], *, actor: str, reason: str = "") -> list[Moved]:
        """Give jobs up for good, so that their lanes go on."""
        return self._do("skip", ids, actor, reason, whole_lane=True)

    def hasten(self, site_id: int) -> None:
        """Make an assembly that waits for more pages due now: there are none to come."""
        self._write(lambda cn: cn.execute(operate.hasten(self._clock), bound(site_id=site_id)).all())

    def _do(
        self, verb: str, ids: Sequence[int], actor: str, reason: str, *, whole_lane: bool, **more: Any
    ) -> list[Moved]:
        wanted = sorted(set(ids))
        values = bound(**{"ids": wanted, "actor": clean(actor, 200), "reason": clean(reason), "stage": None, **more})

        def body(connection: Connection) -> list[Moved]:
            touched = operate.gates_touched(whole_lane=whole_lane, entering=verb == "requeue")
            at = list(connection.execute(touched, values).scalars())
            locked = self._lock_gates(connection, at)
            statement = getattr(operate, verb)(self._clock)
            moved = [
                Moved(row.id, JobState(row.from_state), JobState(row.to_state), row.stage)
                for row in connection.execute(statement, {**values, "gates": locked})
            ]
            if len(moved) < len(wanted):
                # All or nothing: the transaction ends with the refusal.
                self._refuse(connection, verb, wanted, {m.job_id for m in moved}, more.get("stage"))
            promoted = {row.id for row in self._give_turns(connection, locked)}
            return [replace(m, to_state=JobState.PENDING) if m.job_id in promoted else m for m in moved]

        for _ in range(TRIES - 1):
            try:
                return self._write(body)
            except _Overtaken:
                continue  # its new gates are looked for, and its new state is acted upon
        return self._write(body)

    def _refuse(
        self, connection: Connection, verb: str, wanted: Sequence[int], moved: set[int], stage: str | None
    ) -> None:
        """Raise the reason why the first job that was not moved was not."""
        missing = next(i for i in wanted if i not in moved)
        statement = reads.job_list(by_site=False, by_state=False, by_ids=True)
        row = connection.execute(statement, bound(ids=[missing], limit=1)).one_or_none()
        if row is None:
            raise NotFound(f"no job {missing}; see: pipeline jobs list")
        if row.state not in TRANSITIONS[verb].sources:
            allowed = ", ".join(sorted(TRANSITIONS[verb].sources))
            hint = "; cancel it first" if row.state == "reserved" and verb == "skip" else ""
            raise Refused(f"job {missing} is {row.state}; only {allowed} can be {_PAST[verb]}{hint}")
        if verb == "requeue" and stage is not None:
            raise Refused(f"job {missing}: site {row.site} has no stage {stage!r}")
        if verb == "requeue" and row.error_class == "rejected":
            raise Refused(
                f"job {missing} was rejected in its last round: its draft must be made again;"
                f" mend its row, then: pipeline jobs requeue {missing} --stage generate"
            )
        if verb == "requeue":
            raise _Overtaken(
                f"job {missing}: its stage {row.stage!r} was retired, and none follows; name one with --stage"
            )
        raise _Overtaken(f"job {missing} moves on faster than it can be {_PAST[verb]}; try again")


_PAST = {"cancel": "cancelled", "requeue": "requeued", "skip": "skipped"}


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
