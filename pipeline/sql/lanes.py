"""Lanes: what people see of them, pause and resume; floor 1.

An operator's verbs: the lane's row is locked first (workers never lock it), then all its gates, then rows are flipped.
Whoever comes to a gate meanwhile waits for that lock, and promotes, or does not, by what it finds then.
"""

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, Text, bindparam, case, exists, func, select, true, update
from sqlalchemy.sql.dml import ReturningUpdate

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, not_over, word
from pipeline.sql.gates import demoted, within
from pipeline.sql.tables import events, gates, jobs, lanes, publications, topics
from pipeline.states import JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
LANE = bindparam("p_lane_id", type_=BigInteger)


@cache
def named() -> Select[int]:
    """The id of the lane named ``name`` of a site."""
    return select(lanes.c.id).where(lanes.c.site_id == SITE, lanes.c.name == bindparam("p_name", type_=Text))


@cache
def lock() -> Select[Any]:
    """Lock the lane named ``name`` of a site; returns ``(id, state, on_failed, overrides, next_position)``."""
    return (
        select(lanes.c.id, lanes.c.state, lanes.c.on_failed, lanes.c.overrides, lanes.c.next_position)
        .where(lanes.c.site_id == SITE, lanes.c.name == bindparam("p_name", type_=Text))
        .with_for_update(key_share=True)
    )


@cache
def lock_if_free() -> Select[Any]:
    """The same without waiting: no row while another has it."""
    return (
        select(lanes.c.id, lanes.c.state)
        .where(lanes.c.site_id == SITE, lanes.c.name == bindparam("p_name", type_=Text))
        .with_for_update(key_share=True, skip_locked=True)
    )


@cache
def gate_ids() -> Select[int]:
    return select(gates.c.id).where(gates.c.lane_id == LANE).order_by(gates.c.id)


@cache
def lock_gates() -> Select[int]:
    """Lock all gates of the lane, in id order; returns their ids."""
    return select(gates.c.id).where(gates.c.lane_id == LANE).order_by(gates.c.id).with_for_update(key_share=True)


@cache
def turn() -> ReturningUpdate[int]:
    """Write ``state`` into the lane, which is locked."""
    return update(lanes).where(lanes.c.id == LANE).values(state=bindparam("p_state", type_=Text)).returning(lanes.c.id)


@cache
def demote() -> ReturningUpdate[int]:
    """Let what is pending in the lane wait, and give its slots back; places stay. Returns the ids.

    Waits for claims that are open: what they took is reserved, and finishes.
    """
    j = jobs.alias("j")
    return demoted(j, j.c.site_id == SITE, j.c.lane_id == LANE)


@cache
def free(clock: Clock) -> ReturningUpdate[int]:
    """Make pending what waits in the lane for no gate and no person, due as it was, but not before now."""
    j = jobs.alias("j")
    chosen = (
        select(j.c.id)
        .where(j.c.lane_id == LANE, j.c.state == word(S.WAITING), j.c.gate_id.is_(None), j.c.hold.is_(None))
        .order_by(j.c.id)
        .with_for_update(key_share=True, of=j)
        .cte("chosen")
    )
    return (
        update(jobs)
        .where(jobs.c.id == chosen.c.id, jobs.c.state == word(S.WAITING))
        .values(state=word(S.PENDING), run_at=func.greatest(jobs.c.release_at, jobs.c.retry_at, clock.stored()))
        .returning(jobs.c.id)
    )


@cache
def running() -> Select[int]:
    """How many jobs of the lane are reserved: those finish."""
    return (
        select(func.count())
        .select_from(jobs)
        .where(jobs.c.site_id == SITE, jobs.c.lane_id == LANE, jobs.c.state == word(S.RESERVED))
    )


@cache
def stretch() -> Select[str]:
    """The name at which a stretch of ``length`` lanes of a site ends that begins behind ``after``; none for the last.

    Walks as many entries of an index.
    """
    return (
        select(lanes.c.name)
        .where(lanes.c.site_id == SITE, lanes.c.name > bindparam("p_after", type_=Text))
        .order_by(lanes.c.name)
        .offset(bindparam("p_length", type_=Integer))
        .limit(ONE)
    )


@cache
def strays() -> Select[Any]:
    """``(id, name)`` of lanes in a stretch that are not active, yet have pending jobs: workers' verbs ignore lanes."""
    pending = exists().where(jobs.c.site_id == SITE, jobs.c.lane_id == lanes.c.id, jobs.c.state == word(S.PENDING))
    return (
        select(lanes.c.id, lanes.c.name)
        .where(within(lanes), lanes.c.state != word("active"), pending)
        .order_by(lanes.c.id)
    )


@cache
def listing() -> Select[Any]:
    """A site's lanes as people see them, in the order in which they were made. Grows with topics.

    The head is that of the last strict gate: the topic which the whole lane waits for.
    """
    last = (
        select(gates.c.ordinal, gates.c.passed)
        .where(gates.c.lane_id == lanes.c.id, gates.c.width == ONE)
        .order_by(gates.c.ordinal.desc())
        .limit(ONE)
        .lateral("last")
    )
    head = (
        select(jobs.c.id, jobs.c.topic_id, jobs.c.position, jobs.c.stage, jobs.c.state)
        .where(
            jobs.c.lane_id == lanes.c.id,
            jobs.c.position > last.c.passed,
            jobs.c.cleared < last.c.ordinal,
            not_over(jobs),
        )
        .order_by(jobs.c.position)
        .limit(ONE)
        .lateral("head")
    )
    named = topics.alias("named")
    pause = (
        select(events.c.at, events.c.actor, events.c.reason)
        .where(
            events.c.site_id == lanes.c.site_id,
            events.c.lane_id == lanes.c.id,
            events.c.job_id.is_(None),
            events.c.verb == case((lanes.c.state == word("closed"), word("close")), else_=word("pause")),
            lanes.c.state != word("active"),
        )
        .order_by(events.c.id.desc())
        .limit(ONE)
        .lateral("pause")
    )
    count = func.count()
    waiting = (
        select(jobs.c.lane_id, count.label("waiting"))
        .where(jobs.c.site_id == SITE, jobs.c.state == word(S.WAITING))
        .group_by(jobs.c.lane_id)
        .subquery("waiting")
    )
    planned = (
        select(topics.c.lane_id, count.label("topics")).where(topics.c.site_id == SITE).group_by(topics.c.lane_id)
    ).subquery("planned")
    shown = topics.alias("shown")
    live = (
        select(shown.c.lane_id, func.count(shown.c.id.distinct()).label("live"))
        .select_from(shown.join(publications, publications.c.topic_id == shown.c.id))
        .where(publications.c.site_id == SITE, publications.c.live_path.is_not(None))
        .group_by(shown.c.lane_id)
        .subquery("live")
    )
    return (
        select(
            lanes.c.name,
            lanes.c.state,
            lanes.c.on_failed,
            lanes.c.overrides,
            func.coalesce(planned.c.topics, 0).label("topics"),
            func.coalesce(live.c.live, 0).label("live"),
            func.coalesce(waiting.c.waiting, 0).label("waiting"),
            head.c.id.label("head_job"),
            head.c.position.label("head_position"),
            named.c.slug.label("head_slug"),
            head.c.stage.label("head_stage"),
            head.c.state.label("head_state"),
            pause.c.at.label("paused_at"),
            pause.c.actor.label("paused_by"),
            pause.c.reason.label("paused_reason"),
        )
        .select_from(
            lanes.outerjoin(last, true())
            .outerjoin(head, true())
            .outerjoin(named, named.c.id == head.c.topic_id)
            .outerjoin(pause, true())
            .outerjoin(planned, planned.c.lane_id == lanes.c.id)
            .outerjoin(live, live.c.lane_id == lanes.c.id)
            .outerjoin(waiting, waiting.c.lane_id == lanes.c.id)
        )
        .where(lanes.c.site_id == SITE)
        .order_by(lanes.c.id)
    )
