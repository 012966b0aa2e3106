"""How many a gate lets through at once, changed while work goes on; floor 1.

The lane rows are locked, then all of their gates, and only then is a job touched. ``gates`` are the ids of those that
change. In this order: demote, look who is reserved, set the width, move ``passed``, let everybody who stands at the
stage arrive anew, promote.
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
    exists,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.dml import ReturningUpdate

from pipeline.clock import Clock
from pipeline.sql.batch import GATES, ONE, word
from pipeline.sql.ending import arrive
from pipeline.sql.gates import demoted
from pipeline.sql.tables import gates, jobs, lanes, stages
from pipeline.states import JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
STAGE = bindparam("p_stage", type_=Text)
WIDTH = bindparam("p_width", type_=Integer)


@cache
def of_stage() -> Select[Any]:
    """``(lane_id, lane, state, gate_id, width, width_now)`` of each lane of a site that has no width of its own here.

    ``gate_id`` is NULL where the stage was never limited.
    """
    own = lanes.c.overrides.op("->")(STAGE).op("?")(literal_column("'width'", Text))
    return _standing().where(lanes.c.site_id == SITE, func.coalesce(own, literal_column("false")).is_(False))


@cache
def of_lane() -> Select[Any]:
    """The same of one lane, whatever it has."""
    return _standing().where(lanes.c.id == bindparam("p_lane_id", type_=BigInteger))


def _standing() -> Select[Any]:
    at = and_(gates.c.lane_id == lanes.c.id, gates.c.stage == STAGE)
    return (
        select(lanes.c.id.label("lane_id"), lanes.c.name.label("lane"), lanes.c.state, gates.c.id, gates.c.width)
        .select_from(lanes.outerjoin(gates, at))
        .order_by(lanes.c.id)
    )


@cache
def set_overrides() -> Any:
    """Write what the lane has otherwise than its stages."""
    lane_id = bindparam("p_lane_id", type_=BigInteger)
    return update(lanes).where(lanes.c.id == lane_id).values(overrides=bindparam("p_overrides", type_=JSONB))


@cache
def set_stage() -> Any:
    """Write the width that lanes have where they say nothing else."""
    return update(stages).where(stages.c.site_id == SITE, stages.c.name == STAGE).values(width=WIDTH)


@cache
def demote() -> ReturningUpdate[int]:
    """Let what is pending at the gates wait, and give its slots back. Waits for claims that are open."""
    j = jobs.alias("j")
    return demoted(j, j.c.gate_id == func.any(GATES))


@cache
def reserved() -> Select[Any]:
    """``(lane_id, id, stage)`` of what is reserved at the gates, in id order."""
    return (
        select(jobs.c.lane_id, jobs.c.id, jobs.c.stage)
        .where(jobs.c.gate_id == func.any(GATES), jobs.c.state == word(S.RESERVED))
        .order_by(jobs.c.id)
    )


@cache
def set_width(clock: Clock) -> Any:
    """Write the gates' width. One that becomes strict has passed nothing yet, and promises order from now on."""
    strict = cast(WIDTH, Integer) == ONE
    return (
        update(gates)
        .where(gates.c.id == func.any(GATES))
        .values(
            width=WIDTH,
            passed=case((strict, literal_column("0", BigInteger)), else_=gates.c.passed),
            strict_since=case((strict, clock.stored()), else_=gates.c.strict_since),
        )
    )


@cache
def let_go() -> Any:
    """Let what is reserved at gates that are wide open now hold no slot any more."""
    wide = exists().where(gates.c.id == jobs.c.gate_id, gates.c.width.is_(None))
    return (
        update(jobs)
        .where(jobs.c.gate_id == func.any(GATES), jobs.c.state == word(S.RESERVED), wide)
        .values(gate_id=null(), slot=null())
    )


@cache
def arrive_anew(clock: Clock) -> ReturningUpdate[int]:
    """Decide again, for all that stand idle at the gates' stages, whether they take their turn there.

    A hold keeps its job waiting, and so does a lane that is not active.
    """
    j, gate, lane = jobs.alias("j"), gates.alias("gate"), lanes.alias("lane")
    at = arrive(gate, j.c.position, j.c.cleared)
    rests = or_(j.c.hold.is_not(None), lane.c.state != word("active"))
    new = (
        select(
            j.c.id,
            j.c.state,
            at.gate_id.label("gate_id"),
            case((rests, word(S.WAITING)), else_=at.state).label("new_state"),
        )
        .select_from(
            gate.join(lane, lane.c.id == gate.c.lane_id).join(
                j, and_(j.c.lane_id == gate.c.lane_id, j.c.stage == gate.c.stage)
            )
        )
        .where(gate.c.id == func.any(GATES), j.c.state.in_([word(S.WAITING), word(S.PENDING)]))
        .order_by(j.c.id)
        .with_for_update(key_share=True, of=j)
        .cte("new")
    )
    due = func.greatest(jobs.c.release_at, jobs.c.retry_at, clock.stored())
    begins = and_(new.c.new_state == word(S.PENDING), jobs.c.state == word(S.WAITING))
    return (
        update(jobs)
        .where(jobs.c.id == new.c.id, jobs.c.state == new.c.state)
        .values(
            state=new.c.new_state,
            gate_id=new.c.gate_id,
            slot=null(),
            run_at=case((begins, due), else_=jobs.c.run_at),
        )
        .returning(jobs.c.id)
    )
