"""What people and progress displays ask; floor 1. No query here grows with finished work, but where it says so."""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Float,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
)

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, SECOND, not_over, word
from pipeline.sql.tables import attempts, gates, jobs, lanes, publications, revisions, sites, topics
from pipeline.states import HALTING, JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
UNFINISHED = not_over(jobs)


@cache
def site_by_slug() -> Select[Any]:
    return select(sites.c.id, sites.c.slug, sites.c.state, sites.c.changed, sites.c.built, sites.c.fingerprint).where(
        sites.c.slug == bindparam("p_slug", type_=Text)
    )


@cache
def all_sites() -> Select[Any]:
    return select(sites.c.id, sites.c.slug, sites.c.state).order_by(sites.c.slug)


@cache
def unfinished(clock: Clock) -> Select[Any]:
    """``(stage, state, count, due, next_at)`` of a site's unfinished jobs."""
    due = func.count().filter(jobs.c.state == word(S.PENDING), jobs.c.run_at <= clock.statement())
    next_at = func.min(jobs.c.run_at).filter(jobs.c.state == word(S.PENDING), jobs.c.run_at > clock.statement())
    seconds = func.extract("epoch", next_at - clock.statement())
    return (
        select(jobs.c.stage, jobs.c.state, func.count(), due, seconds)
        .where(jobs.c.site_id == SITE, UNFINISHED)
        .group_by(jobs.c.stage, jobs.c.state)
    )


@cache
def live_topics() -> Select[Any]:
    """How many topics of a site are live. Grows with live pages."""
    return select(func.count(publications.c.topic_id.distinct())).where(
        publications.c.site_id == SITE, publications.c.live_path.is_not(None)
    )


@cache
def planned_topics() -> Select[Any]:
    """How many topics a site has. Grows with them."""
    return select(func.count()).select_from(topics).where(topics.c.site_id == SITE)


def _last_error() -> Any:
    newest = attempts.alias("newest")
    return (
        select(newest.c.error)
        .where(newest.c.job_id == jobs.c.id)
        .order_by(newest.c.fence.desc())
        .limit(ONE)
        .scalar_subquery()
    )


@cache
def job_list(
    *,
    by_site: bool,
    by_state: bool,
    by_ids: bool = False,
    by_lane: bool = False,
    by_stage: bool = False,
    by_error: bool = False,
) -> Select[Any]:
    """Jobs for people, by id; binds ``limit`` and what it filters by."""
    where = []
    if by_site:
        where.append(jobs.c.site_id == SITE)
    if by_state:
        where.append(jobs.c.state == func.any(bindparam("p_states")))
    if by_ids:
        where.append(jobs.c.id == func.any(bindparam("p_ids")))
    if by_lane:
        where.append(lanes.c.name == bindparam("p_lane", type_=Text))
    if by_stage:
        where.append(jobs.c.stage == bindparam("p_at", type_=Text))
    if by_error:
        where.append(jobs.c.error_class == bindparam("p_error_class", type_=Text))
    if not by_state and not by_ids:
        where.append(UNFINISHED)
    return (
        select(
            jobs.c.id,
            jobs.c.site_id,
            sites.c.slug.label("site"),
            lanes.c.name.label("lane"),
            topics.c.slug.label("topic"),
            jobs.c.position,
            jobs.c["pass"].label("number"),
            jobs.c.stage,
            jobs.c.state,
            jobs.c.round,
            jobs.c.attempts,
            jobs.c.max_attempts,
            jobs.c.run_at,
            jobs.c.reserved_by,
            jobs.c.lease_expires_at,
            jobs.c.error_class,
            case((jobs.c.state != word(S.DONE), _last_error())).label("error"),
        )
        .select_from(
            jobs.join(sites, sites.c.id == jobs.c.site_id)
            .outerjoin(lanes, lanes.c.id == jobs.c.lane_id)
            .outerjoin(topics, topics.c.id == jobs.c.topic_id)
        )
        .where(*where)
        .order_by(jobs.c.id)
        .limit(bindparam("p_limit"))
    )


@cache
def halted() -> Select[Any]:
    """``(id, waiting)`` of a site's jobs that need a person, with how many wait behind each in its lane."""
    behind, gate = jobs.alias("behind"), gates.alias("gate")
    waiting = (
        select(func.count())
        .select_from(behind.join(gate, and_(gate.c.id == behind.c.gate_id, gate.c.width == ONE)))
        .where(
            behind.c.lane_id == jobs.c.lane_id, behind.c.position > jobs.c.position, behind.c.state == word(S.WAITING)
        )
        .scalar_subquery()
    )
    return (
        select(jobs.c.id, waiting.label("waiting"))
        .where(jobs.c.site_id == SITE, jobs.c.state.in_([word(s) for s in sorted(HALTING)]))
        .order_by(jobs.c.id)
        .limit(bindparam("p_limit"))
    )


@cache
def topic_list(*, by_lane: bool) -> Select[Any]:
    """Topics of a site by lane and position, each with its newest pass and what is live of it."""
    newest = (
        select(jobs.c.id, jobs.c.stage, jobs.c.state)
        .where(jobs.c.topic_id == topics.c.id)
        .order_by(jobs.c["pass"].desc(), jobs.c.id.desc())
        .limit(ONE)
        .lateral("newest")
    )
    where = [topics.c.site_id == SITE]
    if by_lane:
        where.append(lanes.c.name == bindparam("p_lane", type_=Text))
    live = (
        select(publications.c.topic_id, func.min(publications.c.live_path).label("live_path"))
        .where(publications.c.site_id == SITE)
        .group_by(publications.c.topic_id)
        .subquery("live")
    )
    return (
        select(
            topics.c.slug,
            topics.c.title,
            topics.c.type,
            lanes.c.name.label("lane"),
            topics.c.position,
            topics.c.path,
            topics.c["pass"].label("number"),
            newest.c.id.label("job_id"),
            newest.c.stage,
            newest.c.state,
            live.c.live_path,
        )
        .select_from(
            topics.join(lanes, lanes.c.id == topics.c.lane_id)
            .outerjoin(newest, literal_column("true"))
            .outerjoin(live, live.c.topic_id == topics.c.id)
        )
        .where(*where)
        .order_by(lanes.c.id, topics.c.position)
    )


@cache
def topic_detail() -> Select[Any]:
    return (
        select(
            topics.c.id,
            topics.c.slug,
            topics.c.title,
            topics.c.type,
            lanes.c.name.label("lane"),
            topics.c.position,
            topics.c.path,
            topics.c.brief,
            topics.c["pass"].label("number"),
            topics.c.revisions,
            revisions.c.title.label("draft_title"),
            revisions.c.description,
            revisions.c.body,
            revisions.c.content_hash,
        )
        .select_from(
            topics.join(lanes, lanes.c.id == topics.c.lane_id).outerjoin(
                revisions, revisions.c.id == topics.c.revision_id
            )
        )
        .where(topics.c.site_id == SITE, topics.c.slug == bindparam("p_slug", type_=Text))
    )


@cache
def topic_attempts() -> Select[Any]:
    """The attempts of a topic's newest pass, in their order."""
    newest = select(func.max(jobs.c.id)).where(jobs.c.topic_id == bindparam("p_topic_id", type_=BigInteger))
    return (
        select(
            attempts.c.stage,
            attempts.c.round,
            attempts.c.outcome,
            attempts.c.reserved_at,
            attempts.c.ended_at,
            attempts.c.worker,
            attempts.c.error_class,
            attempts.c.error,
        )
        .where(attempts.c.job_id == newest.scalar_subquery())
        .order_by(attempts.c.fence)
    )


@cache
def topic_publications() -> Select[Any]:
    return select(
        publications.c.target,
        publications.c.live_path,
        publications.c.live_hash,
        publications.c.first_at,
        publications.c.changed_at,
    ).where(publications.c.topic_id == bindparam("p_topic_id", type_=BigInteger), publications.c.live_path.is_not(None))


@cache
def delays(clock: Clock) -> Select[Any]:
    """``(stage, overdue, stuck)``: due for ``overdue_seconds`` and not claimed; reserved, and the lease is over."""
    now = clock.statement()
    late = jobs.c.run_at <= now - bindparam("p_overdue_seconds", type_=Float) * SECOND
    overdue = func.count().filter(jobs.c.state == word(S.PENDING), late)
    stuck = func.count().filter(jobs.c.state == word(S.RESERVED), jobs.c.lease_expires_at <= now)
    return (
        select(jobs.c.stage, overdue.label("overdue"), stuck.label("stuck"))
        .where(jobs.c.site_id == SITE, UNFINISHED, jobs.c.state.in_([word(S.PENDING), word(S.RESERVED)]))
        .group_by(jobs.c.stage)
    )


@cache
def paces(clock: Clock) -> Select[Any]:
    """``(site_id, stage, done, seconds)``: how many attempts were done at each stage in the last ``seconds``.

    That is 300, or less where the newest 10,000 reservations reach less far back: it looks at no more than those.
    """
    newest = (
        select(attempts.c.job_id, attempts.c.stage, attempts.c.outcome, attempts.c.ended_at)
        .order_by(attempts.c.fence.desc())
        .limit(literal_column("10000", Integer))
        .cte("newest")
    )
    now = clock.statement()
    span = select(func.count().label("found"), func.min(newest.c.ended_at).label("oldest")).cte("span")
    back = cast(func.extract("epoch", now - span.c.oldest), Float)
    whole = literal_column("300", Float)
    seconds = case(
        (span.c.found < literal_column("10000", Integer), whole),
        else_=func.least(func.greatest(back, literal_column("1", Float)), whole),
    )
    return (
        select(jobs.c.site_id, newest.c.stage, func.count().label("done"), func.max(seconds).label("seconds"))
        .select_from(newest.join(jobs, jobs.c.id == newest.c.job_id).join(span, literal_column("true")))
        .where(newest.c.outcome == word("done"), newest.c.ended_at > now - whole * SECOND)
        .group_by(jobs.c.site_id, newest.c.stage)
    )
