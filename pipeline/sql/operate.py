"""What an operator does to jobs: cancel, requeue, approve, skip, grant; floor 1.

Candidates are read without locks, gates are locked in id order, then the write repeats the whole guard. Each write
notes an event with the state that it left.
"""

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    false,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.sql.selectable import CTE

from pipeline.clock import Clock
from pipeline.sql import noting
from pipeline.sql.batch import GATES, ONE, not_over, word
from pipeline.sql.ending import NO_GATE, NOBODY, arrive, reservation
from pipeline.sql.tables import attempts, gates, jobs, lanes, revisions, stages, topics
from pipeline.states import ASSEMBLE, ROUNDS, TRANSITIONS, JobState as S

IDS = func.any(bindparam("p_ids"))
FORCED = "forced"  # the error class of what a person took from its holder
STAGE = bindparam("p_stage", type_=Text)
GRANT = bindparam("p_grant", type_=Integer)


@cache
def gates_touched(*, whole_lane: bool, entering: bool = False) -> Select[Any]:
    """The ids of the gates that the jobs in ``ids`` stand at; of the stage that they enter; or all of their lanes."""
    at_stage = or_(gates.c.stage == func.coalesce(STAGE, jobs.c.stage), gates.c.ordinal == _nearest(jobs))
    reach = true() if whole_lane else or_(gates.c.id == jobs.c.gate_id, at_stage if entering else false())
    return (
        select(gates.c.id)
        .select_from(jobs.join(gates, gates.c.lane_id == jobs.c.lane_id))
        .where(jobs.c.id == IDS, reach)
        .distinct()
    )


@cache
def share_lanes(*, wait: bool) -> Select[int]:
    """Keep the lanes of the jobs in ``ids`` as they are: while one comes to a gate, or leaves one, none is made there.

    Without ``wait`` only those that are free. Returns their ids.
    """
    mine = select(jobs.c.lane_id).where(jobs.c.id == IDS)
    return (
        select(lanes.c.id)
        .where(lanes.c.id.in_(mine))
        .order_by(lanes.c.id)
        .with_for_update(read=True, skip_locked=not wait)
    )


@cache
def in_lanes() -> Select[int]:
    """Those of the jobs in ``ids`` that stand in the ``lane_ids``."""
    wanted = func.any(bindparam("p_lane_ids", type_=ARRAY(BigInteger)))
    return select(jobs.c.id).where(jobs.c.id == IDS, jobs.c.lane_id == wanted).order_by(jobs.c.id)


def _nearest(job: FromClause) -> ColumnElement[int]:
    """The ordinal of the stage where a job stands, or of the next one when that was retired."""
    stood, later = stages.alias("stood"), stages.alias("later")
    here = select(stood.c.ordinal).where(stood.c.site_id == job.c.site_id, stood.c.name == job.c.stage)
    return (
        select(func.min(later.c.ordinal))
        .where(
            later.c.site_id == job.c.site_id,
            later.c.ordinal >= here.correlate(job).scalar_subquery(),
            later.c.state != word("retired"),
        )
        .correlate(job)
        .scalar_subquery()
    )


def picked(job: FromClause) -> list[ColumnElement[bool]]:
    """What a person filters by; each condition that is NULL lets all pass."""
    lane, at = bindparam("p_lane_id", type_=BigInteger), bindparam("p_at", type_=Text)
    error, states = bindparam("p_error_class", type_=Text), bindparam("p_states", type_=ARRAY(Text))
    return [
        or_(lane.is_(None), job.c.lane_id == lane),
        or_(at.is_(None), job.c.stage == at),
        or_(error.is_(None), job.c.error_class == error),
        or_(states.is_(None), job.c.state == func.any(states)),
    ]


@cache
def candidates() -> Select[Any]:
    """``(id, topic_id)`` of a site's jobs in ``sources`` that the filter picks, read without locks.

    Walks what is unfinished.
    """
    return (
        select(jobs.c.id, jobs.c.topic_id)
        .where(
            jobs.c.site_id == bindparam("p_site_id", type_=BigInteger),
            not_over(jobs),
            jobs.c.state == func.any(bindparam("p_sources", type_=ARRAY(Text))),
            *picked(jobs),
        )
        .order_by(jobs.c.id)
    )


@cache
def kinds() -> Select[Any]:
    """``(id, topic_id, site_id)`` of the jobs in ``ids``; a site's own job has no topic."""
    return select(jobs.c.id, jobs.c.topic_id, jobs.c.site_id).where(jobs.c.id == IDS).order_by(jobs.c.id)


@cache
def sites_of() -> Select[int]:
    """The sites of the jobs in ``ids``."""
    return select(jobs.c.site_id).where(jobs.c.id == IDS).distinct()


def _chosen(verb: str) -> CTE:
    """The jobs in ``ids`` that the verb allows and the filter still picks, locked in id order, as they were."""
    j = jobs.alias("j")
    sources = [word(s) for s in sorted(TRANSITIONS[verb].sources)]
    return (
        select(*j.c)
        .where(j.c.id == IDS, j.c.state.in_(sources), *picked(j))
        .order_by(j.c.id)
        .with_for_update(key_share=True, of=j)
        .cte("chosen")
    )


def _act(
    verb: str,
    job: CTE,
    *,
    origin: FromClause | None = None,
    where: ColumnElement[bool] | None = None,
    ended_at: ColumnElement[datetime] | None = None,
    **new: Any,
) -> Select[Any]:
    """Write ``new`` into the chosen jobs and note the event; returns ``(id, from_state, to_state, stage, site_id)``.

    With ``ended_at`` it takes reservations away, and records them as attempts that were cancelled then.
    """
    decided = (
        select(*job.c, *(cast(value, jobs.c[key].type).label(f"new_{key}") for key, value in new.items()))
        .select_from(job if origin is None else origin)
        .where(true() if where is None else where)
        .cte("decided")
    )
    written = noting.written(decided, new)
    ours = decided.join(written, written.c.id == decided.c.id)
    noted = noting.noted(verb, decided, ours, written)
    if ended_at is not None:
        ours = ours.outerjoin(taken := _record(decided, ours, ended_at), taken.c.fence == decided.c.fence)
    return (
        select(
            decided.c.id,
            decided.c.state.label("from_state"),
            written.c.state.label("to_state"),
            written.c.stage,
            decided.c.site_id,
        )
        .select_from(ours.join(noted, noted.c.job_id == decided.c.id))
        .order_by(decided.c.id)
    )


def _record(decided: CTE, ours: FromClause, ended_at: ColumnElement[datetime]) -> CTE:
    """The attempts of those that were reserved: whoever takes a token away records it."""
    record = {
        **reservation(decided, ended_at),
        "outcome": word("cancelled"),
        "charged": true(),
        "error_class": word(FORCED),
    }
    rows = select(*record.values()).select_from(ours).where(decided.c.fence.is_not(None))
    return insert(attempts).from_select(list(record), rows).returning(attempts.c.fence).cte("taken")


@cache
def cancel_now(clock: Clock) -> Select[Any]:
    """Cancel what waits, is pending or reserved; a reservation is taken away, so that its holder writes nothing."""
    job = _chosen("cancel")
    return _act(
        "cancel",
        job,
        where=or_(job.c.gate_id.is_(None), job.c.gate_id == func.any(GATES)),
        ended_at=clock.stored(),
        state=word(S.CANCELLED),
        hold=null(),
        cancel_requested=false(),
        **NO_GATE,
        **NOBODY,
    )


@cache
def grant(clock: Clock) -> Select[Any]:
    """Permit ``grant`` attempts more at the stage where it stands."""
    job = _chosen("grant")
    return _act("grant", job, max_attempts=job.c.max_attempts + GRANT)


@cache
def cancel(clock: Clock) -> Select[Any]:
    """Cancel what waits or is pending; a reserved job is asked to stop, and its holder told at the next heartbeat."""
    job = _chosen("cancel")
    running = job.c.state == word(S.RESERVED)
    return _act(
        "cancel",
        job,
        where=or_(job.c.gate_id.is_(None), job.c.gate_id == func.any(GATES)),
        state=case((running, word(S.RESERVED)), else_=word(S.CANCELLED)),
        hold=null(),
        cancel_requested=running,
        gate_id=case((running, job.c.gate_id)),
        slot=case((running, job.c.slot)),
    )


@cache
def requeue(clock: Clock) -> Select[Any]:
    """Back to work at the stage where it stood, or at ``stage``, with ``grant`` attempts more.

    When its stage was retired meanwhile, it goes on to the next one, and begins there with ``grant`` attempts.
    Another stage begins a new round there. A pass with no round left needs a stage: the same draft would fail again.
    """
    job = _chosen("requeue")
    target, gate = stages.alias("target"), gates.alias("gate")
    assembly = job.c.stage == word(ASSEMBLE)
    moved = and_(STAGE.is_not(None), ~assembly)
    fresh = or_(moved, and_(~assembly, target.c.name != job.c.stage))
    at = arrive(gate, job.c.position, job.c.cleared)
    known = or_(assembly, target.c.state != word("retired"))
    goal = or_(target.c.name == STAGE, and_(STAGE.is_(None), target.c.ordinal == _nearest(job)))
    has_round = or_(STAGE.is_not(None), job.c.error_class.is_distinct_from("rejected"))
    round_ = case((moved, job.c.round + ONE), else_=job.c.round)
    return _act(
        "requeue",
        job,
        origin=job.outerjoin(target, and_(target.c.site_id == job.c.site_id, goal)).outerjoin(
            gate, and_(gate.c.lane_id == job.c.lane_id, gate.c.stage == target.c.name)
        ),
        where=and_(at.allowed, known, has_round),
        state=at.state,
        stage=case((assembly, job.c.stage), else_=target.c.name),
        approved=case((fresh, null()), else_=job.c.approved),
        gate_id=at.gate_id,
        slot=null(),
        round=round_,
        max_rounds=case((moved, round_ + literal_column(str(ROUNDS))), else_=job.c.max_rounds),
        attempts=case((fresh, literal_column("0")), else_=job.c.attempts),
        max_attempts=case((fresh, GRANT), else_=job.c.attempts + GRANT),
        retry_at=null(),
        run_at=func.greatest(job.c.release_at, clock.stored()),
        cancel_requested=false(),
        alone=false(),
        error_class=null(),
    )


@cache
def approve(clock: Clock) -> Select[Any]:
    """Let go what was held for a person, at its place; it is approved with the draft that it has now."""
    job, gate = _chosen("approve"), gates.alias("gate")
    at = arrive(gate, job.c.position, job.c.cleared)
    draft = (
        select(revisions.c.content_hash)
        .select_from(topics.join(revisions, revisions.c.id == topics.c.revision_id))
        .where(topics.c.id == job.c.topic_id)
        .correlate(job)
        .scalar_subquery()
    )
    return _act(
        "approve",
        job,
        origin=job.outerjoin(gate, and_(gate.c.lane_id == job.c.lane_id, gate.c.stage == job.c.stage)),
        where=and_(at.allowed, job.c.hold.is_not(None)),
        state=at.state,
        hold=null(),
        approved=func.coalesce(draft, literal_column("''", Text)),
        gate_id=at.gate_id,
        run_at=func.greatest(job.c.release_at, clock.stored()),
    )


@cache
def skip(clock: Clock) -> Select[Any]:
    """Give the job's turn up for good; its lane goes on. Every gate of the lane is locked, wherever the job stood."""
    gate = gates.alias("gate")
    job = _chosen("skip")
    unlocked = select(gate.c.id).where(gate.c.lane_id == job.c.lane_id, gate.c.id != func.all(GATES)).correlate(job)
    return _act(
        "skip",
        job,
        where=~unlocked.exists(),
        state=word(S.SKIPPED),
        hold=null(),
        finished_at=clock.stored(),
        **NO_GATE,
    )


@cache
def hasten(clock: Clock) -> ReturningUpdate[Any]:
    """Make the assemblies of a site that wait for their time due now."""
    return (
        update(jobs)
        .where(
            jobs.c.site_id == bindparam("p_site_id", type_=BigInteger),
            jobs.c.stage == word(ASSEMBLE),
            jobs.c.state == word(S.PENDING),
            jobs.c.retry_at.is_(None),
            jobs.c.run_at > clock.statement(),
        )
        .values(run_at=clock.stored())
        .returning(jobs.c.id)
    )
