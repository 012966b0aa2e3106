"""Why something stands still, and what of a site goes wrong: facts for people; floor 1.

Nothing here grows with what is finished. A topic costs the same in a lane of any depth, on a site of any size: its job,
its gate, the head found by the gate's own blocker. What is asked of a lane or a site grows with what stands there.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Float,
    FromClause,
    Interval,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    or_,
    select,
    true,
)

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, SECOND, not_over, word
from pipeline.sql.ending import override
from pipeline.sql.gates import blocker, used
from pipeline.sql.tables import attempts, events, gates, jobs, lanes, sites, stages, topics, workers
from pipeline.states import FINAL, HALTING, JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
LIMIT = bindparam("p_limit", type_=BigInteger)
OVERDUE = bindparam("p_overdue_seconds", type_=Float)
OVER = tuple(word(s) for s in sorted(FINAL))
FAST = literal_column("interval '5 seconds'", Interval)
AGAIN_AND_AGAIN = literal_column("3", BigInteger)
LAST_FEW = literal_column("5", BigInteger)


@cache
def site(clock: Clock) -> Select[Any]:
    """``(id, slug, state, changed, built, assembly, now)``; ``assembly`` is the site's own unfinished job."""
    assembly = (
        select(jobs.c.id)
        .where(jobs.c.site_id == sites.c.id, jobs.c.topic_id.is_(None), not_over(jobs))
        .limit(ONE)
        .scalar_subquery()
    )
    now = clock.statement().label("now")
    return select(
        sites.c.id, sites.c.slug, sites.c.state, sites.c.changed, sites.c.built, assembly.label("assembly"), now
    ).where(sites.c.id == SITE)


@cache
def topic() -> Select[Any]:
    """``(id, slug, position, number, released, lane_id, lane, lane_state, job)`` of the topic ``slug`` of a site."""
    newest = (
        select(jobs.c.id)
        .where(jobs.c.topic_id == topics.c.id)
        .order_by(jobs.c["pass"].desc(), jobs.c.id.desc())
        .limit(ONE)
        .scalar_subquery()
    )
    return (
        select(
            topics.c.id,
            topics.c.slug,
            topics.c.position,
            topics.c["pass"].label("number"),
            topics.c.released,
            topics.c.lane_id,
            lanes.c.name.label("lane"),
            lanes.c.state.label("lane_state"),
            newest.label("job"),
        )
        .select_from(topics.join(lanes, lanes.c.id == topics.c.lane_id))
        .where(topics.c.site_id == SITE, topics.c.slug == bindparam("p_slug", type_=Text))
    )


def _seconds(span: ColumnElement[Any]) -> ColumnElement[float]:
    return cast(func.extract("epoch", span), Float)


def lease(job: FromClause, lane: FromClause, worker: FromClause) -> ColumnElement[float]:
    """How many seconds each renewal gives: the less of what the lane and the holder's note say, for the lane may say so
    only since it was claimed; NULL when neither is known."""
    known = worker.c.stages.op("->")(word("stages")).op("->>")(job.c.stage)
    own = override(lane, job.c.stage, "lease_seconds")
    return func.least(cast(own, Float), cast(known, Float))


@cache
def passes(clock: Clock) -> Select[Any]:
    """The jobs in ``ids`` with all that tells why each stands where it does."""
    last = (
        select(attempts.c.outcome, attempts.c.error_class, attempts.c.error, attempts.c.ended_at, attempts.c.worker)
        .where(attempts.c.job_id == jobs.c.id)
        .order_by(attempts.c.fence.desc())
        .limit(ONE)
        .lateral("last")
    )
    noted = (
        select(events.c.verb, events.c.actor, events.c.reason, events.c.at, events.c.to_state)
        .where(events.c.job_id == jobs.c.id)
        .order_by(events.c.id.desc())
        .limit(ONE)
        .lateral("noted")
    )
    now = clock.statement()
    since = case(
        (jobs.c.state == word(S.RESERVED), jobs.c.reserved_at),
        (jobs.c.state.in_(OVER), jobs.c.finished_at),
        else_=func.greatest(jobs.c.created_at, last.c.ended_at, noted.c.at),  # greatest() ignores NULL
    )
    return (
        select(
            jobs.c.id,
            jobs.c.lane_id,
            lanes.c.name.label("lane"),
            lanes.c.state.label("lane_state"),
            lanes.c.on_failed,
            topics.c.slug.label("topic"),
            jobs.c.position,
            jobs.c["pass"].label("number"),
            jobs.c.stage,
            stages.c.state.label("stage_state"),
            jobs.c.state,
            jobs.c.hold,
            jobs.c.alone,
            jobs.c.round,
            jobs.c.attempts,
            jobs.c.max_attempts,
            jobs.c.gate_id,
            jobs.c.run_at,
            jobs.c.run_until,
            case((jobs.c.retry_at > now, jobs.c.retry_at)).label("retry_at"),
            case((jobs.c.release_at > now, jobs.c.release_at)).label("release_at"),
            _seconds(now - jobs.c.run_at).label("due_seconds"),
            (jobs.c.run_until <= now).label("too_late"),
            jobs.c.reserved_by,
            jobs.c.reserved_at,
            jobs.c.lease_expires_at,
            _seconds(jobs.c.lease_expires_at - now).label("lease_left"),
            lease(jobs, lanes, workers).label("lease_seconds"),
            jobs.c.cancel_requested,
            jobs.c.error_class,
            since.label("since"),
            last.c.outcome.label("last_outcome"),
            last.c.error.label("last_error"),
            noted.c.verb.label("noted_verb"),
            noted.c.actor.label("noted_actor"),
            noted.c.reason.label("noted_reason"),
        )
        .select_from(
            jobs.outerjoin(lanes, lanes.c.id == jobs.c.lane_id)
            .outerjoin(topics, topics.c.id == jobs.c.topic_id)
            .outerjoin(stages, and_(stages.c.site_id == jobs.c.site_id, stages.c.name == jobs.c.stage))
            .outerjoin(workers, workers.c.name == jobs.c.reserved_by)
            .outerjoin(last, true())
            .outerjoin(noted, true())
        )
        .where(jobs.c.id == func.any(bindparam("p_ids")))
        .order_by(jobs.c.id)
    )


def _head(gate: FromClause) -> ColumnElement[int]:
    """The job for which a strict gate waits: the pass at the blocker's position that owes it its turn."""
    h = jobs.alias("h")
    return (
        select(h.c.id)
        .where(
            h.c.lane_id == gate.c.lane_id,
            h.c.position == blocker(gate),
            h.c.cleared < gate.c.ordinal,
            not_over(h),
        )
        .limit(ONE)
        .correlate(gate)
        .scalar_subquery()
    )


@cache
def gate() -> Select[Any]:
    """``(id, stage, width, passed, used, head)`` of the gate ``gate_id``; ``head`` only where it is strict."""
    head = case((gates.c.width == ONE, _head(gates)))
    return select(
        gates.c.id, gates.c.stage, gates.c.width, gates.c.passed, used(gates).label("used"), head.label("head")
    ).where(gates.c.id == bindparam("p_gate_id", type_=BigInteger))


@cache
def holders() -> Select[Any]:
    """``(id, topic, state)`` of the jobs that hold the slots of ``gate_id``, at most ``limit``."""
    return (
        select(jobs.c.id, topics.c.slug.label("topic"), jobs.c.state)
        .select_from(jobs.join(topics, topics.c.id == jobs.c.topic_id))
        .where(jobs.c.gate_id == bindparam("p_gate_id", type_=BigInteger), jobs.c.slot.is_not(None))
        .order_by(jobs.c.slot)
        .limit(LIMIT)
    )


def _newest_event(*where: ColumnElement[bool]) -> Select[Any]:
    return (
        select(events.c.verb, events.c.at, events.c.actor, events.c.reason)
        .where(events.c.job_id.is_(None), *where)
        .order_by(events.c.id.desc())
        .limit(ONE)
    )


SHUTS = (word("pause"), word("close"))
IS_OF_A_STAGE = events.c.details.op("?", is_comparison=True)(word("stage"))


@cache
def shut_lane() -> Select[Any]:
    """Who paused or closed the lane ``lane_id`` last; walks back through what was noted since."""
    return _newest_event(events.c.lane_id == bindparam("p_lane_id", type_=BigInteger), events.c.verb.in_(SHUTS))


@cache
def shut_site() -> Select[Any]:
    """Who paused the site last."""
    return _newest_event(events.c.site_id == SITE, events.c.lane_id.is_(None), events.c.verb.in_(SHUTS), ~IS_OF_A_STAGE)


@cache
def shut_stage() -> Select[Any]:
    """Who paused or retired the stage ``stage`` of a site last."""
    named = events.c.details.op("->>")(word("stage")) == bindparam("p_stage", type_=Text)
    return _newest_event(events.c.site_id == SITE, named, events.c.verb.in_([*SHUTS, word("retire")]))


@cache
def lane() -> Select[Any]:
    """``(id, name, state, on_failed)`` of the lane ``name`` of a site."""
    return select(lanes.c.id, lanes.c.name, lanes.c.state, lanes.c.on_failed).where(
        lanes.c.site_id == SITE, lanes.c.name == bindparam("p_name", type_=Text)
    )


@cache
def lane_gates() -> Select[Any]:
    """``(id, stage, width, passed, used, head, waiting)`` of a lane's gates, in the order of their stages."""
    w = jobs.alias("w")
    waiting = select(func.count()).where(w.c.gate_id == gates.c.id, w.c.state == word(S.WAITING)).scalar_subquery()
    return (
        select(
            gates.c.id,
            gates.c.stage,
            gates.c.width,
            gates.c.passed,
            used(gates).label("used"),
            case((gates.c.width == ONE, _head(gates))).label("head"),
            waiting.label("waiting"),
        )
        .where(gates.c.lane_id == bindparam("p_lane_id", type_=BigInteger))
        .order_by(gates.c.ordinal)
    )


@cache
def lane_standing() -> Select[Any]:
    """``(stage, state, count)`` of a lane's unfinished jobs. Grows with those of its site."""
    return (
        select(jobs.c.stage, jobs.c.state, func.count().label("count"))
        .where(
            jobs.c.site_id == SITE,
            jobs.c.lane_id == bindparam("p_lane_id", type_=BigInteger),
            not_over(jobs),
        )
        .group_by(jobs.c.stage, jobs.c.state)
    )


@cache
def still_lanes(clock: Clock) -> Select[Any]:
    """``(id, name, state, head, kind)`` of a site's lanes that do not move by themselves just now.

    ``head`` is that of the last strict gate, for which the whole lane waits; ``kind`` groups them: the lane's own
    state, that of its head, or ``held``, ``later``, ``lost`` (lease over), ``shut`` (stage paused). Grows with lanes.
    """
    last = (
        select(*gates.c)
        .where(gates.c.lane_id == lanes.c.id, gates.c.width == ONE)
        .order_by(gates.c.ordinal.desc())
        .limit(ONE)
        .lateral("last_gate")
    )
    head = jobs.alias("head")
    now = clock.statement()
    shut = and_(stages.c.state == word("paused"), head.c.state != word(S.RESERVED))
    kind = case(
        (lanes.c.state != word("active"), lanes.c.state),
        (head.c.state.in_([word(s) for s in sorted(HALTING)]), head.c.state),
        (head.c.hold.is_not(None), word("held")),
        (and_(head.c.state == word(S.RESERVED), head.c.lease_expires_at <= now), word("lost")),
        (and_(head.c.state == word(S.PENDING), head.c.run_at > now), word("later")),
        (shut, word("shut")),
    ).label("kind")
    found = (
        select(lanes.c.id, lanes.c.name, lanes.c.state, head.c.id.label("head"), kind)
        .select_from(
            lanes.outerjoin(last, true())
            .outerjoin(head, head.c.id == _head(last))
            .outerjoin(stages, and_(stages.c.site_id == head.c.site_id, stages.c.name == head.c.stage))
        )
        .where(lanes.c.site_id == SITE)
        .subquery("found")
    )
    return select(found).where(found.c.kind.is_not(None)).order_by(found.c.id)


@cache
def late(clock: Clock) -> Select[Any]:
    """The ids of a site's reserved jobs whose lease is over, or more than half over: each renewal restores it whole."""
    now = clock.statement()
    left = _seconds(jobs.c.lease_expires_at - now)
    return (
        select(jobs.c.id)
        .select_from(
            jobs.outerjoin(lanes, lanes.c.id == jobs.c.lane_id).outerjoin(workers, workers.c.name == jobs.c.reserved_by)
        )
        .where(
            jobs.c.site_id == SITE,
            jobs.c.state == word(S.RESERVED),
            or_(jobs.c.lease_expires_at <= now, left * literal_column("2", Float) < lease(jobs, lanes, workers)),
        )
        .order_by(jobs.c.id)
        .limit(LIMIT)
    )


@cache
def failing_fast() -> Select[Any]:
    """``(id, times)`` of a site's jobs that go on, of whose last few attempts at least three failed within seconds."""
    a = attempts.alias("a")
    few = (
        select(a.c.outcome, (a.c.ended_at - a.c.reserved_at < FAST).label("fast"))
        .where(a.c.job_id == jobs.c.id)
        .order_by(a.c.fence.desc())
        .limit(LAST_FEW)
        .correlate(jobs)
        .subquery("few")
    )
    failed = few.c.outcome.in_([word("retry"), word("failed"), word("expired")])
    fast = (
        select(func.count().label("times")).select_from(few).where(failed, few.c.fast).correlate(jobs).lateral("fast")
    )
    return (
        select(jobs.c.id, fast.c.times)
        .select_from(jobs.join(fast, true()))
        .where(
            jobs.c.site_id == SITE,
            not_over(jobs),
            jobs.c.state.in_([word(S.PENDING), word(S.RESERVED)]),
            jobs.c.attempts >= AGAIN_AND_AGAIN,
            fast.c.times >= AGAIN_AND_AGAIN,
        )
        .order_by(jobs.c.id)
        .limit(LIMIT)
    )


@cache
def unclaimed(clock: Clock) -> Select[Any]:
    """``(stage, count, since, example)``: jobs of a site, due for ``overdue_seconds`` and more, never claimed."""
    return (
        select(
            jobs.c.stage,
            func.count().label("count"),
            func.min(jobs.c.run_at, type_=DateTime(timezone=True)).label("since"),
            func.min(jobs.c.id).label("example"),
        )
        .where(
            jobs.c.site_id == SITE,
            jobs.c.state == word(S.PENDING),
            jobs.c.run_at <= clock.statement() - OVERDUE * SECOND,
            jobs.c.attempts + jobs.c.given_back + jobs.c.snoozed == literal_column("0", BigInteger),
        )
        .group_by(jobs.c.stage)
        .order_by(jobs.c.stage)
    )
