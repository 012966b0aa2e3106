"""What a worker says of a job that it holds: one function a verb, each one guarded statement for a batch; floor 1.

All bind ``acks`` (see ``ending.said``) and ``gates``, the gates that the transaction has locked. They return the rows
that were written; a row that is missing was lost, or needs a gate that was not locked.
"""

from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal_column,
    null,
    or_,
    select,
    true,
    union,
)
from sqlalchemy.sql.selectable import CTE, CompoundSelect

from pipeline.clock import Clock
from pipeline.sql.batch import GATES, ONE, SECOND, word
from pipeline.sql.ending import NO_GATE, arrive, end, gate_at, held, here_and_next, permitted, said
from pipeline.sql.gates import blocker, used
from pipeline.sql.tables import attempts, gates, jobs, lanes, stages
from pipeline.states import JobState as S

ZERO = literal_column("0", Integer)
HIGHEST = literal_column("2147483647", Integer)
TOGETHER = literal_column("2", Integer)
"""After so many attempts, the last of which was lost with its worker, a job may be what kills: it runs by itself."""


@cache
def advance(clock: Clock) -> Select[Any]:
    """To the next stage, or done after the last."""
    job = held(said())
    here, following, on_here, on_following = here_and_next(job)
    gate = gate_at(job, following)
    cleared = func.greatest(job.c.cleared, here.c.ordinal)
    at = arrive(gate, job.c.position, cleared)
    last = following.c.name.is_(None)
    unlocked = gates.alias("unlocked")
    # One that it leaves behind may have been made since they were looked for: then it says it again.
    owed = (
        exists()
        .where(
            unlocked.c.lane_id == job.c.lane_id,
            unlocked.c.ordinal > job.c.cleared,
            unlocked.c.ordinal <= func.coalesce(following.c.ordinal, HIGHEST),
            unlocked.c.id != func.all(GATES),
        )
        .correlate(job, following)
    )
    return end(
        job,
        clock,
        outcome="done",
        settles=True,
        origin=job.outerjoin(here, on_here).outerjoin(following, on_following).outerjoin(gate, true()),
        where=and_(at.allowed, ~owed),
        state=case((last, word(S.DONE)), else_=at.state),
        stage=func.coalesce(following.c.name, job.c.stage),
        cleared=cleared,
        attempts=case((last, job.c.attempts), else_=ZERO),
        max_attempts=case((last, job.c.max_attempts), else_=permitted(job, following)),
        given_back=case((last, job.c.given_back), else_=ZERO),
        snoozed=case((last, job.c.snoozed), else_=ZERO),
        approved=null(),
        gate_id=case((last, null()), else_=at.gate_id),
        slot=null(),
        retry_at=null(),
        run_at=func.greatest(job.c.release_at, clock.stored()),
        error_class=null(),
        finished_at=case((last, clock.stored())),
    )


@cache
def reject(clock: Clock) -> Select[Any]:
    """Back to ``to_stage`` (default: the first) with one round more, or to repair when no round is left.

    Keeps ``cleared``: a job that crosses a gate which it had passed takes no second turn there.
    """
    job = held(said())
    target, first = stages.alias("target"), stages.alias("first")
    gate = gate_at(job, target)
    start = (
        select(func.min(first.c.ordinal))
        .where(first.c.site_id == job.c.site_id, first.c.state != word("retired"))
        .correlate(job)
        .scalar_subquery()
    )
    named = or_(target.c.name == job.c.said_to_stage, and_(job.c.said_to_stage.is_(None), target.c.ordinal == start))
    at = arrive(gate, job.c.position, job.c.cleared)
    over = or_(job.c.round >= job.c.max_rounds, target.c.name.is_(None))
    return end(
        job,
        clock,
        outcome="rejected",
        origin=job.outerjoin(target, and_(target.c.site_id == job.c.site_id, named)).outerjoin(gate, true()),
        where=at.allowed,
        state=case((over, word(S.REPAIR)), else_=at.state),
        stage=case((over, job.c.stage), else_=target.c.name),
        round=case((over, job.c.round), else_=job.c.round + ONE),
        attempts=case((over, job.c.attempts), else_=ZERO),
        max_attempts=case((over, job.c.max_attempts), else_=permitted(job, target)),
        given_back=case((over, job.c.given_back), else_=ZERO),
        snoozed=case((over, job.c.snoozed), else_=ZERO),
        approved=null(),
        gate_id=case((over, null()), else_=at.gate_id),
        slot=null(),
        retry_at=null(),
        run_at=func.greatest(job.c.release_at, clock.stored()),
        error_class=case((over, word("rejected"))),  # no round is left: the same draft would fail again
    )


def _skips(job: CTE) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Whether the job's lane goes on over what failed; and whether every gate is locked that this would move."""
    lane, gate = lanes.alias("lane"), gates.alias("gate")
    skips = exists().where(lane.c.id == job.c.lane_id, lane.c.on_failed == word("skip")).correlate(job)
    unlocked = exists().where(gate.c.lane_id == job.c.lane_id, gate.c.id != func.all(GATES)).correlate(job)
    return skips, or_(~skips, ~unlocked)


def _later(job: CTE, clock: Clock) -> dict[str, Any]:
    """Not before the delay that the worker names, by the server's clock."""
    retry_at = clock.stored() + job.c.said_delay_seconds * SECOND
    return {"retry_at": retry_at, "run_at": func.greatest(job.c.release_at, retry_at)}


def _again(job: CTE) -> dict[str, Any]:
    """State, gate and slot of a job that is to be tried again: its turn is still its own, or it waits for one.

    A gate that was narrowed while it ran may owe another the turn, or have more in flight than it lets through; and one
    that became strict is passed by whoever owes it nothing.
    """
    gate = gates.alias("gate")
    owes = and_(job.c.position > gate.c.passed, job.c.cleared < gate.c.ordinal)
    rightful = case((gate.c.width == ONE, job.c.position == blocker(gate)), else_=used(gate) <= gate.c.width)
    goes_by = exists().where(gate.c.id == job.c.gate_id, gate.c.width == ONE, ~owes).correlate(job)
    stays = exists().where(gate.c.id == job.c.gate_id, rightful).correlate(job)
    return {
        "state": case((or_(job.c.gate_id.is_(None), goes_by, stays), word(S.PENDING)), else_=word(S.WAITING)),
        "gate_id": case((goes_by, null()), else_=job.c.gate_id),
        "slot": case((goes_by, null()), (stays, job.c.slot)),
    }


@cache
def retry(clock: Clock) -> Select[Any]:
    """Again after a delay, keeping slot and place; with no attempt left it is failed."""
    job = held(said())
    over = job.c.attempts >= job.c.max_attempts
    skips, locked = _skips(job)
    later = _later(job, clock)
    again = _again(job)
    return end(
        job,
        clock,
        outcome=case((over, word("failed")), else_=word("retry")),
        where=locked,
        state=case(
            (and_(over, skips), word(S.SKIPPED)),
            (over, word(S.FAILED)),
            else_=again["state"],
        ),
        gate_id=case((over, null()), else_=again["gate_id"]),
        slot=case((over, null()), else_=again["slot"]),
        retry_at=case((over, job.c.retry_at), else_=later["retry_at"]),
        run_at=case((over, job.c.run_at), else_=later["run_at"]),
        error_class=job.c.said_error_class,
        finished_at=case((and_(over, skips), clock.stored())),
    )


@cache
def snooze(clock: Clock) -> Select[Any]:
    """Again after a delay of at least a second; the attempt is given back."""
    job = held(said())
    return end(
        job,
        clock,
        outcome="snoozed",
        charged=false(),
        **_again(job),
        attempts=job.c.attempts - ONE,
        snoozed=job.c.snoozed + ONE,
        **_later(job, clock),
    )


@cache
def hold(clock: Clock) -> Select[Any]:
    """Wait for a person: the slot is given back, the place is kept; so is the attempt."""
    job = held(said())
    return end(
        job,
        clock,
        outcome="held",
        charged=false(),
        state=word(S.WAITING),
        hold=func.coalesce(job.c.said_hold, word("held")),  # without a reason it would wait for nobody
        attempts=job.c.attempts - ONE,
        slot=null(),
    )


@cache
def fail(clock: Clock) -> Select[Any]:
    """Failed, which halts a strict lane; or skipped where the lane says so."""
    job = held(said())
    skips, locked = _skips(job)
    return end(
        job,
        clock,
        outcome="failed",
        where=locked,
        state=case((skips, word(S.SKIPPED)), else_=word(S.FAILED)),
        error_class=job.c.said_error_class,
        finished_at=case((skips, clock.stored())),
        **NO_GATE,
    )


@cache
def repair(clock: Clock) -> Select[Any]:
    """To a person: nothing of it is tried again by itself, all of it is kept."""
    job = held(said())
    return end(job, clock, outcome="repair", state=word(S.REPAIR), error_class=job.c.said_error_class, **NO_GATE)


def _back(job: CTE, clock: Clock, *, given: ColumnElement[int]) -> dict[str, Any]:
    """Pending again at its place, due from now; ``given`` attempts come back. None left: repair."""
    left = job.c.attempts - given
    over = left >= job.c.max_attempts
    again = _again(job)
    return {
        "state": case((over, word(S.REPAIR)), else_=again["state"]),
        "attempts": left,
        "gate_id": case((over, null()), else_=again["gate_id"]),
        "slot": case((over, null()), else_=again["slot"]),
        # A new due time: work that hangs or kills its worker must not stand at the very front again.
        "run_at": func.greatest(job.c.release_at, job.c.retry_at, clock.stored()),
        "error_class": case((over, job.c.said_error_class), else_=job.c.error_class),
    }


@cache
def release(clock: Clock) -> Select[Any]:
    """Give the job back unharmed, with its attempt, at most ``max_attempts`` times."""
    job = held(said())
    free = job.c.given_back < job.c.max_attempts
    return end(
        job,
        clock,
        outcome="released",
        charged=~free,
        alone=job.c.alone,  # that it was given back says nothing of it
        given_back=case((free, job.c.given_back + ONE), else_=job.c.given_back),
        **_back(job, clock, given=case((free, ONE), else_=ZERO)),
    )


@cache
def reap(clock: Clock, *, holder_is_gone: bool) -> Select[Any]:
    """Take a job from a holder whose lease is over, or who is known to be gone.

    The lease is judged when the row is locked: a renewal that commits before keeps the job.
    """
    job = held(said(), expired_by=None if holder_is_gone else clock.stored(), skip_locked=True)
    alone = job.c.attempts >= func.least(TOGETHER, job.c.max_attempts - ONE)
    return end(job, clock, outcome="expired", alone=alone, **_back(job, clock, given=ZERO))


@cache
def expired(clock: Clock, *, one_site: bool) -> Select[Any]:
    """Candidates for reap, read without locks: ``(id, token, fence, reserved_by, over)``, the oldest leases first."""
    over = (jobs.c.lease_expires_at <= clock.statement()).label("over")
    where = [jobs.c.state == word(S.RESERVED)]
    if one_site:
        where.append(jobs.c.site_id == bindparam("p_site_id", type_=BigInteger))
    return (
        select(jobs.c.id, jobs.c.token, jobs.c.fence, jobs.c.reserved_by, over, jobs.c.stage, jobs.c.site_id)
        .where(*where)
        .order_by(jobs.c.lease_expires_at)
    )


class Reach(StrEnum):
    """Which gates a verb touches beside the one that the job leaves."""

    NEXT = "next"  # that of the stage after, and whatever owed gate lies before it
    SKIP = "skip"  # every gate of a lane that goes on over what failed
    LANE = "lane"  # every gate of the lane


@cache
def gates_touched(reach: Reach) -> Select[Any] | CompoundSelect[Any]:
    """``(job_id, gate_id)`` for the jobs in ``acks``, read before the lock so that it can be taken in id order."""
    acks = said()
    j = jobs.alias("j")
    # Asked twice below, so that it is done once and first: by the key of each job, never by way of a lane.
    mine = (
        select(j.c.id, j.c.site_id, j.c.lane_id, j.c.stage, j.c.cleared, j.c.gate_id)
        .select_from(j.join(acks, (acks.c.job_id == j.c.id) & (acks.c.token == j.c.token)))
        .cte("mine")
    )
    if reach is Reach.LANE:
        return select(mine.c.id, gates.c.id).select_from(mine.join(gates, gates.c.lane_id == mine.c.lane_id))
    left = select(mine.c.id, mine.c.gate_id).where(mine.c.gate_id.is_not(None))
    if reach is Reach.SKIP:
        skipping = and_(lanes.c.id == mine.c.lane_id, lanes.c.on_failed == word("skip"))
        touched = mine.join(lanes, skipping).join(gates, gates.c.lane_id == lanes.c.id)
    else:
        here, following, on_here, on_following = here_and_next(mine)
        # Also gates that it leaves behind without a visit, for it may have been their head: the stage was added after
        # it had gone by, or was removed before it came. After the last stage it owes no gate anything.
        owed = and_(gates.c.ordinal > mine.c.cleared, gates.c.ordinal <= func.coalesce(following.c.ordinal, HIGHEST))
        at = and_(gates.c.lane_id == mine.c.lane_id, or_(gates.c.stage == following.c.name, owed))
        touched = mine.outerjoin(here, on_here).outerjoin(following, on_following).join(gates, at)
    return union(left, select(mine.c.id, gates.c.id).select_from(touched))


@cache
def lock() -> Select[int]:
    """Lock those jobs in ``acks`` that are still the caller's, in id order."""
    acks = said()
    return (
        select(jobs.c.id)
        .select_from(jobs.join(acks, (acks.c.job_id == jobs.c.id) & (acks.c.token == jobs.c.token)))
        .order_by(jobs.c.id)
        .with_for_update(key_share=True, of=jobs)
    )


@cache
def still_held() -> Select[int]:
    """The ids of those jobs in ``acks`` whose token is still the caller's."""
    acks = said()
    return select(jobs.c.id).select_from(jobs.join(acks, (acks.c.job_id == jobs.c.id) & (acks.c.token == jobs.c.token)))


@cache
def recorded() -> Select[Any]:
    """``(fence, outcome, error_class)`` of attempts that have ended: what became of a write whose answer was lost."""
    return select(attempts.c.fence, attempts.c.outcome, attempts.c.error_class).where(
        attempts.c.fence == func.any(bindparam("p_fences"))
    )
