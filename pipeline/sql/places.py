"""Where a topic stands: moved within its lane, to another, or put into the middle; floor 1.

The lane rows are locked first, then all of their gates. What is pending at a strict gate within the stretch is demoted,
and only *then* does one look who is reserved there: looking first would miss a claim that is open.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Select,
    Text,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, not_over, word
from pipeline.sql.ending import arrive
from pipeline.sql.tables import events, gates, jobs, lanes, topics
from pipeline.states import JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
LANE = bindparam("p_lane_id", type_=BigInteger)
TOPIC = bindparam("p_topic_id", type_=BigInteger)
FIRST, LAST = bindparam("p_first", type_=BigInteger), bindparam("p_last", type_=BigInteger)
UNFINISHED = not_over(jobs)


@cache
def topic() -> Select[Any]:
    """``(id, lane_id, lane, position, path, job_id, state, stage)`` of a site's topic, with its unfinished pass."""
    return (
        select(
            topics.c.id,
            topics.c.lane_id,
            lanes.c.name.label("lane"),
            topics.c.position,
            topics.c.path,
            jobs.c.id.label("job_id"),
            jobs.c.state,
            jobs.c.stage,
        )
        .select_from(
            topics.join(lanes, lanes.c.id == topics.c.lane_id).outerjoin(
                jobs, and_(jobs.c.topic_id == topics.c.id, UNFINISHED)
            )
        )
        .where(topics.c.site_id == SITE, topics.c.slug == bindparam("p_slug", type_=Text))
    )


@cache
def lock_lanes() -> Select[Any]:
    """Lock the lanes named in ``names`` of a site, in id order; returns ``(id, name, state, next_position)``."""
    return (
        select(lanes.c.id, lanes.c.name, lanes.c.state, lanes.c.next_position)
        .where(lanes.c.site_id == SITE, lanes.c.name == func.any(bindparam("p_names")))
        .order_by(lanes.c.id)
        .with_for_update(key_share=True)
    )


@cache
def lock_gates() -> Select[Any]:
    """Lock all gates of the ``lane_ids``, in id order; returns ``(id, lane_id, stage, width, passed)``."""
    return (
        select(gates.c.id, gates.c.lane_id, gates.c.stage, gates.c.width, gates.c.passed)
        .where(gates.c.lane_id == func.any(bindparam("p_lane_ids")))
        .order_by(gates.c.id)
        .with_for_update(key_share=True)
    )


@cache
def lock_stretch() -> Select[int]:
    """Lock the passes of a lane from ``first`` to ``last``, in id order. Waits for claims that are open."""
    return (
        select(jobs.c.id)
        .where(jobs.c.lane_id == LANE, jobs.c.position.between(FIRST, LAST))
        .order_by(jobs.c.id)
        .with_for_update(key_share=True)
    )


@cache
def demote() -> ReturningUpdate[int]:
    """Let what is pending at a strict gate of the stretch wait, and give its slot back."""
    return (
        update(jobs)
        .where(
            gates.c.id == jobs.c.gate_id,
            gates.c.width == ONE,
            jobs.c.lane_id == LANE,
            jobs.c.position.between(FIRST, LAST),
            jobs.c.state == word(S.PENDING),
        )
        .values(state=word(S.WAITING), slot=null())
        .returning(jobs.c.id)
    )


@cache
def running() -> Select[Any]:
    """``(id, stage, reserved_by)`` of what is reserved at a strict gate of the stretch."""
    return (
        select(jobs.c.id, jobs.c.stage, jobs.c.reserved_by)
        .select_from(jobs.join(gates, and_(gates.c.id == jobs.c.gate_id, gates.c.width == ONE)))
        .where(jobs.c.lane_id == LANE, jobs.c.position.between(FIRST, LAST), jobs.c.state == word(S.RESERVED))
        .order_by(jobs.c.id)
        .limit(ONE)
    )


def _turned(position: Any) -> Any:
    """The stretch turned round by one: its one end comes to the other, and the rest makes room."""
    back = bindparam("p_back", type_=BigInteger)  # 1: the last comes first; -1: the first comes last
    comes = case((back > literal_column("0"), LAST), else_=FIRST)
    goes = case((back > literal_column("0"), FIRST), else_=LAST)
    return case((position == comes, goes), else_=position + back)


@cache
def turn_jobs() -> Any:
    """Give the passes of the stretch their new places."""
    here = and_(jobs.c.lane_id == LANE, jobs.c.position.between(FIRST, LAST))
    return update(jobs).where(here).values(position=_turned(jobs.c.position))


@cache
def turn_topics() -> Any:
    """Give the topics of the stretch their new places, in one statement: the key is looked at when it ends."""
    here = and_(topics.c.lane_id == LANE, topics.c.position.between(FIRST, LAST))
    return update(topics).where(here).values(position=_turned(topics.c.position))


@cache
def placed(clock: Clock) -> Any:
    """Note that the topic has a new place from now on: what it did before says nothing about order."""
    return update(topics).where(topics.c.id == TOPIC).values(placed_at=clock.stored())


@cache
def lock_passes() -> Select[Any]:
    """Lock all passes of the topic, in id order; returns ``(id, state)``. Waits for a claim that is open."""
    return (
        select(jobs.c.id, jobs.c.state)
        .where(jobs.c.topic_id == TOPIC)
        .order_by(jobs.c.id)
        .with_for_update(key_share=True)
    )


@cache
def change_lane() -> Any:
    """Put the topic at the end of ``lane_id``, whose counter says where."""
    end = select(lanes.c.next_position).where(lanes.c.id == LANE).scalar_subquery()
    return update(topics).where(topics.c.id == TOPIC).values(lane_id=LANE, position=end)


@cache
def change_lane_of_passes(clock: Clock) -> Any:
    """Let the passes of the topic follow it to its new lane, and the unfinished one arrive there by the rule.

    Its gates are locked, and it is not reserved.
    """
    gate, lane, p = gates.alias("gate"), lanes.alias("lane"), jobs.alias("p")
    at = arrive(gate, topics.c.position, p.c.cleared)
    moves = p.c.state.in_([word(S.WAITING), word(S.PENDING)])
    rests = (p.c.hold.is_not(None)) | (lane.c.state != word("active"))
    new = (
        select(
            p.c.id,
            topics.c.lane_id,
            topics.c.position,
            case((~moves, p.c.state), (rests, word(S.WAITING)), else_=at.state).label("state"),
            case((moves, at.gate_id)).label("gate_id"),
        )
        .select_from(
            p.join(topics, topics.c.id == p.c.topic_id)
            .join(lane, lane.c.id == topics.c.lane_id)
            .outerjoin(gate, and_(gate.c.lane_id == topics.c.lane_id, gate.c.stage == p.c.stage))
        )
        .where(p.c.topic_id == TOPIC)
        .cte("new")
    )
    begins = and_(new.c.state == word(S.PENDING), jobs.c.state == word(S.WAITING))
    due = func.greatest(jobs.c.release_at, jobs.c.retry_at, clock.stored())
    return (
        update(jobs)
        .where(jobs.c.id == new.c.id)
        .values(
            lane_id=new.c.lane_id,
            position=new.c.position,
            state=new.c.state,
            gate_id=new.c.gate_id,
            slot=null(),
            run_at=case((begins, due), else_=jobs.c.run_at),
        )
    )


@cache
def count_up() -> Any:
    """Move the lane's counter behind the topic that came to its end."""
    return update(lanes).where(lanes.c.id == LANE).values(next_position=lanes.c.next_position + ONE)


@cache
def note() -> ReturningInsert[int]:
    """Note that the topic's unfinished pass was moved; ``before`` is the state it had."""
    before = bindparam("p_before", type_=Text)
    rows = (
        select(
            topics.c.site_id,
            topics.c.lane_id,
            jobs.c.id,
            word("move"),
            before,
            jobs.c.state,
            bindparam("p_actor", type_=Text),
            bindparam("p_reason", type_=Text),
            bindparam("p_details", type_=events.c.details.type),
        )
        .select_from(topics.join(jobs, and_(jobs.c.topic_id == topics.c.id, UNFINISHED)))
        .where(topics.c.id == TOPIC)
    )
    columns = ["site_id", "lane_id", "job_id", "verb", "from_state", "to_state", "actor", "reason", "details"]
    return insert(events).from_select(columns, rows).returning(events.c.id)
