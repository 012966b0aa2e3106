"""Prune: what of the past may go, found by topics that were made again and by a site's own jobs; floor 1.

A pass goes with its attempts, findings and events, or stays with them: an end without what led there is no record.
The newest pass of a topic stays, so that ``topics.pass`` has its row and every position of a lane its holder; so does a
site's newest assembly. What stays is not looked at: a topic of one pass is in no index that is read here.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Float,
    Integer,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.dml import Delete, ReturningInsert, Update

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, SECOND, word
from pipeline.sql.tables import attempts, events, findings, gates, jobs, sites, topics
from pipeline.states import FINAL

SITE = bindparam("p_site_id", type_=BigInteger)
AFTER = bindparam("p_after", type_=BigInteger)
UP_TO = bindparam("p_up_to", type_=BigInteger)
OLDER = bindparam("p_older_seconds", type_=Float)
ROWS = bindparam("p_rows", type_=Integer)
IDS = func.any(bindparam("p_ids"))


@cache
def site() -> Select[int]:
    """Hold the site against whoever would remove it; no row: it is gone."""
    return select(sites.c.id).where(sites.c.id == SITE).with_for_update(read=True, key_share=True)


@cache
def window(*, assemblies: bool) -> Select[int]:
    """The last id of the next ``window`` topics that were made again, or assemblies, behind ``after``; NULL: none."""
    if assemblies:
        found = select(jobs.c.id).where(jobs.c.site_id == SITE, jobs.c.topic_id.is_(None), jobs.c.id > AFTER)
        ids = found.order_by(jobs.c.id)
    else:
        found = select(topics.c.id).where(topics.c.site_id == SITE, topics.c["pass"] > ONE, topics.c.id > AFTER)
        ids = found.order_by(topics.c.id)
    some = ids.limit(bindparam("p_window", type_=Integer)).subquery("some")
    return select(func.max(some.c.id))


def _old(clock: Clock, *, assemblies: bool) -> Select[Any]:
    """``(id, topic_id)`` of finished passes in the window that are old enough, and that nobody needs any more."""
    over = (
        jobs.c.state.in_([word(s) for s in sorted(FINAL)]),
        jobs.c.finished_at < clock.statement() - OLDER * SECOND,
    )
    if assemblies:
        other = jobs.alias("other")
        newest = select(func.max(other.c.id)).where(other.c.site_id == SITE, other.c.topic_id.is_(None))
        return select(jobs.c.id, jobs.c.topic_id).where(
            jobs.c.site_id == SITE,
            jobs.c.topic_id.is_(None),
            jobs.c.id > AFTER,
            jobs.c.id <= UP_TO,
            jobs.c.id < newest.scalar_subquery(),
            *over,
        )
    strict = exists().where(gates.c.lane_id == jobs.c.lane_id, gates.c.width == ONE, gates.c.passed < jobs.c.position)
    return (
        select(jobs.c.id, jobs.c.topic_id)
        .select_from(topics.join(jobs, and_(jobs.c.topic_id == topics.c.id, jobs.c["pass"] < topics.c["pass"])))
        .where(
            topics.c.site_id == SITE,
            topics.c["pass"] > ONE,
            topics.c.id > AFTER,
            topics.c.id <= UP_TO,
            ~strict.correlate(jobs),
            *over,
        )
    )


@cache
def choose(clock: Clock, *, assemblies: bool) -> Select[int]:
    """The ids of passes to prune, locked: at most ``rows`` rows with all that belongs to them, but at least one pass.

    What another transaction has locked just now is left for the next time, so that this never waits and no deadlock
    can come of it.
    """
    chosen = (
        _old(clock, assemblies=assemblies)
        .order_by(jobs.c.id)
        .limit(ROWS)
        .with_for_update(of=jobs, skip_locked=True)
        .cte("chosen")
    )
    belongs = _attempts(chosen) + _events(chosen) + _findings(chosen)
    sized = select(chosen.c.id, (ONE + belongs).label("size")).cte("sized")
    total = func.sum(sized.c.size).over(order_by=sized.c.id)
    running = select(sized.c.id, total.label("total"), func.row_number().over(order_by=sized.c.id).label("n")).subquery(
        "running"
    )
    return select(running.c.id).where(or_(running.c.total <= ROWS, running.c.n == ONE)).order_by(running.c.id)


def _attempts(job: Any) -> Any:
    return select(func.count()).select_from(attempts).where(attempts.c.job_id == job.c.id).scalar_subquery()


def _events(job: Any) -> Any:
    return select(func.count()).select_from(events).where(events.c.job_id == job.c.id).scalar_subquery()


def _findings(job: Any) -> Any:
    theirs = and_(findings.c.topic_id == job.c.topic_id, findings.c.fence == attempts.c.fence)
    found = select(func.count()).select_from(attempts.join(findings, theirs))
    return found.where(attempts.c.job_id == job.c.id).scalar_subquery()


@cache
def count(clock: Clock, *, assemblies: bool) -> Select[Any]:
    """``(passes, attempts, events, findings)`` in the window that a prune would take."""
    old = _old(clock, assemblies=assemblies).cte("old")

    def added(number: Any) -> Any:
        return func.coalesce(func.sum(number), 0)

    return select(func.count(), added(_attempts(old)), added(_events(old)), added(_findings(old))).select_from(old)


@cache
def forget_findings() -> Delete:
    """Delete what the attempts of the passes ``ids`` found."""
    return delete(findings).where(
        jobs.c.id == IDS,
        attempts.c.job_id == jobs.c.id,
        findings.c.topic_id == jobs.c.topic_id,
        findings.c.fence == attempts.c.fence,
    )


@cache
def forget_events() -> Delete:
    return delete(events).where(events.c.job_id == IDS)


@cache
def forget_attempts() -> Select[int, Any]:
    """Delete the attempts of the passes ``ids``; returns ``(count, fence)``, the latter the greatest that is gone."""
    gone = delete(attempts).where(attempts.c.job_id == IDS).returning(attempts.c.fence).cte("gone")
    return select(func.count(), func.max(gone.c.fence))


@cache
def forget_passes() -> Delete:
    return delete(jobs).where(jobs.c.id == IDS, jobs.c.state.in_([word(s) for s in sorted(FINAL)]))


@cache
def note() -> ReturningInsert[int]:
    """The event of this prune; returns its id."""
    values = {"site_id": SITE, "verb": word("prune"), "actor": bindparam("p_actor"), "reason": bindparam("p_reason")}
    details = bindparam("p_details", type_=JSONB)
    return insert(events).values(**values, details=details).returning(events.c.id)


@cache
def add_up() -> Update:
    """Bring that event up to date, together with what it tells of."""
    event = bindparam("p_event_id", type_=BigInteger)
    return update(events).where(events.c.id == event).values(details=bindparam("p_details", type_=JSONB))
