"""The order of a site's stages: who stands at one that was retired, and how they move on; floor 1.

Candidates are read without locks, gates are locked in id order, then the write repeats the whole guard, as for every
operator's verb.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    union,
    union_all,
    update,
)
from sqlalchemy.sql.selectable import CompoundSelect

from pipeline.clock import Clock
from pipeline.sql import noting
from pipeline.sql.batch import GATES, word
from pipeline.sql.ending import arrive, here_and_next, permitted
from pipeline.sql.tables import gates, jobs, lanes, stages
from pipeline.states import TRANSITIONS, JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
NAME = bindparam("p_name", type_=Text)
IDS = func.any(bindparam("p_ids"))
ZERO = literal_column("0", Integer)


@cache
def lock() -> Select[Any]:
    """Lock the site's stages, so that two changes of their order take turns; returns their names.

    Not the site's row: whoever makes a lane in a long transaction shares the stages, and workers must not wait for it.
    """
    return (
        select(stages.c.name).where(stages.c.site_id == SITE).order_by(stages.c.ordinal).with_for_update(key_share=True)
    )


@cache
def set_state() -> Any:
    return (
        update(stages)
        .where(stages.c.site_id == SITE, stages.c.name == NAME)
        .values(state=bindparam("p_state", type_=Text))
    )


@cache
def left_behind() -> Select[int]:
    """Ids of jobs that wait or are pending at a retired stage which another follows; at most a batch.

    Each part walks an index of what waits or is pending, so that nothing finished is read.
    """
    ids = union_all(_pending(), _at_gates(), _loose()).subquery("ids")
    return select(ids.c.id).order_by(ids.c.id).limit(bindparam("p_limit", type_=Integer))


def _retired() -> Any:
    """The site's retired stages that another follows."""
    gone, later = stages.alias("gone"), stages.alias("later")
    follows = (
        select(later.c.name)
        .where(later.c.site_id == gone.c.site_id, later.c.ordinal > gone.c.ordinal, later.c.state != word("retired"))
        .correlate(gone)
    )
    return (
        select(gone.c.name)
        .where(gone.c.site_id == SITE, gone.c.state == word("retired"), follows.exists())
        .subquery("retired")
    )


def _pending() -> Select[int]:
    retired = _retired()
    here = and_(jobs.c.site_id == SITE, jobs.c.stage == retired.c.name)
    return select(jobs.c.id).select_from(retired.join(jobs, here)).where(jobs.c.state == word(S.PENDING))


def _at_gates() -> Select[int]:
    retired = _retired()
    at = and_(gates.c.lane_id == lanes.c.id, gates.c.stage == retired.c.name)
    return (
        select(jobs.c.id)
        .select_from(
            retired.join(lanes, lanes.c.site_id == SITE).join(gates, at).join(jobs, jobs.c.gate_id == gates.c.id)
        )
        .where(jobs.c.state == word(S.WAITING))
    )


def _loose() -> Select[int]:
    """Held at an unlimited stage, or in a paused lane."""
    retired = _retired()
    here = and_(jobs.c.site_id == SITE, jobs.c.stage == retired.c.name)
    return (
        select(jobs.c.id)
        .select_from(retired.join(jobs, here))
        .where(jobs.c.state == word(S.WAITING), jobs.c.gate_id.is_(None))
    )


@cache
def gates_touched() -> CompoundSelect[int]:
    """The ids of the gates that the jobs in ``ids`` leave, and of those at the stage that follows."""
    j = select(jobs.c.id, jobs.c.site_id, jobs.c.lane_id, jobs.c.stage, jobs.c.gate_id).where(jobs.c.id == IDS).cte("j")
    here, following, on_here, on_following = here_and_next(j)
    at = and_(gates.c.lane_id == j.c.lane_id, gates.c.stage == following.c.name)
    entered = select(gates.c.id).select_from(j.join(here, on_here).join(following, on_following).join(gates, at))
    return union(select(j.c.gate_id).where(j.c.gate_id.is_not(None)), entered)


@cache
def move_on(clock: Clock) -> Select[Any]:
    """Move the jobs in ``ids`` from their retired stage to the one that follows, by the rule of arrival.

    A hold is kept: a person has still to approve. What the retired stage had tried does not count there. Each is noted
    as an event. Returns ``(id, site_id, stage, priority, state)``.
    """
    j, gate = jobs.alias("j"), gates.alias("gate")
    sources = [word(s) for s in sorted(TRANSITIONS["retire"].sources)]
    job = (
        select(*j.c)
        .where(j.c.id == IDS, j.c.state.in_(sources))
        .order_by(j.c.id)
        .with_for_update(key_share=True, of=j)
        .cte("job")
    )
    here, following, on_here, on_following = here_and_next(job)
    at = arrive(gate, job.c.position, job.c.cleared)
    leaves = or_(job.c.gate_id.is_(None), job.c.gate_id == func.any(GATES))
    new: dict[str, Any] = {
        "stage": following.c.name,
        "state": case((job.c.hold.is_not(None), word(S.WAITING)), else_=at.state),
        "gate_id": at.gate_id,
        "slot": null(),
        "approved": null(),
        "attempts": ZERO,
        "alone": literal_column("false"),
        "max_attempts": permitted(job, following),
        "given_back": ZERO,
        "snoozed": ZERO,
        "retry_at": null(),
        "run_at": func.greatest(job.c.release_at, clock.stored()),
        "error_class": null(),
    }
    decided = (
        select(*job.c, *(cast(value, jobs.c[key].type).label(f"new_{key}") for key, value in new.items()))
        .select_from(
            job.join(here, and_(on_here, here.c.state == word("retired")))
            .join(following, on_following)
            .outerjoin(gate, and_(gate.c.lane_id == job.c.lane_id, gate.c.stage == following.c.name))
        )
        .where(at.allowed, leaves)
        .cte("decided")
    )
    written = noting.written(decided, new)
    ours = decided.join(written, written.c.id == decided.c.id)
    why = func.concat(decided.c.stage, literal_column("' was retired; on to '"), written.c.stage)
    noted = noting.noted("retire", decided, ours, written, why)
    return (
        select(decided.c.id, decided.c.site_id, written.c.stage, decided.c.priority, written.c.state)
        .select_from(ours.join(noted, noted.c.job_id == decided.c.id))
        .order_by(decided.c.id)
    )
