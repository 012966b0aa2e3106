"""Sites: what people see of them, pause, resume, remove; floor 1."""

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, FromClause, Select, Text, bindparam, delete, func, or_, select, true, update
from sqlalchemy.sql.dml import Delete, ReturningUpdate, Update

from pipeline import models
from pipeline.sql.batch import ONE, not_over, word
from pipeline.sql.tables import attempts, events, findings, gates, jobs, lanes, publications, revisions, sites, topics

SITE = bindparam("p_site_id", type_=BigInteger)
TABLES = models.Base.metadata.tables


@cache
def listing() -> Select[Any]:
    """Every site as people see it, by slug. Grows with topics and live pages."""
    planned = select(func.count()).select_from(topics).where(topics.c.site_id == sites.c.id).scalar_subquery()
    live = (
        select(func.count(publications.c.topic_id.distinct()))
        .where(publications.c.site_id == sites.c.id, publications.c.live_path.is_not(None))
        .scalar_subquery()
    )
    pause = (
        select(events.c.at, events.c.actor, events.c.reason)
        .where(
            events.c.site_id == sites.c.id,
            events.c.lane_id.is_(None),
            events.c.job_id.is_(None),
            events.c.verb == word("pause"),
            ~events.c.details.has_key("stage"),  # a stage's pause is noted with its name
            sites.c.state == word("paused"),
        )
        .order_by(events.c.id.desc())
        .limit(ONE)
        .lateral("pause")
    )
    return (
        select(
            sites.c.id,
            sites.c.slug,
            sites.c.name,
            sites.c.base_url,
            sites.c.state,
            planned.label("topics"),
            live.label("live"),
            pause.c.at.label("paused_at"),
            pause.c.actor.label("paused_by"),
            pause.c.reason.label("paused_reason"),
        )
        .select_from(sites.outerjoin(pause, true()))
        .order_by(sites.c.slug)
    )


@cache
def turn(*, paused: bool) -> ReturningUpdate[int]:
    """Write the site's state, if it is the other one."""
    before, after = ("active", "paused") if paused else ("paused", "active")
    return (
        update(sites)
        .where(sites.c.id == SITE, sites.c.state == word(before))
        .values(state=word(after))
        .returning(sites.c.id)
    )


@cache
def state() -> Select[Any]:
    return select(sites.c.slug, sites.c.state).where(sites.c.id == SITE)


@cache
def running() -> Select[int]:
    """How many jobs of the site are reserved: those finish."""
    return select(func.count()).select_from(jobs).where(jobs.c.site_id == SITE, jobs.c.state == word("reserved"))


@cache
def lock_gates() -> Select[int]:
    """Lock the gates of all lanes of the site, in id order."""
    mine = select(lanes.c.id).where(lanes.c.site_id == SITE)
    return select(gates.c.id).where(gates.c.lane_id.in_(mine)).order_by(gates.c.id).with_for_update(key_share=True)


@cache
def lock() -> Select[int]:
    """Lock the site's row against whoever would refer to it."""
    return select(sites.c.id).where(sites.c.id == SITE).with_for_update()


@cache
def contents() -> Select[Any]:
    """What the database has of a site, counted. Grows with all of it."""

    def count(table: FromClause, *where: Any) -> Any:
        return select(func.count()).select_from(table).where(*where).scalar_subquery()

    live = publications.c.live_path.is_not(None)
    return select(
        count(jobs, jobs.c.site_id == SITE, not_over(jobs)).label("unfinished"),
        count(publications, publications.c.site_id == SITE, live).label("live"),
        count(lanes, lanes.c.site_id == SITE).label("lanes"),
        count(topics, topics.c.site_id == SITE).label("topics"),
        count(jobs, jobs.c.site_id == SITE).label("jobs"),
        count(attempts.join(jobs, jobs.c.id == attempts.c.job_id), jobs.c.site_id == SITE).label("attempts"),
        count(revisions, revisions.c.site_id == SITE).label("revisions"),
    )


@cache
def forget_revisions() -> Update:
    """Let no topic of the site point at a revision, so that both can go."""
    return update(topics).where(topics.c.site_id == SITE).values(revision_id=None)


def deletions() -> list[Delete]:
    """What removes a site with all that refers to it, in this order."""
    ours = {name: select(table.c.id).where(table.c.site_id == SITE) for name, table in
            (("topics", topics), ("lanes", lanes), ("jobs", jobs), ("schedules", TABLES["schedules"]))}  # fmt: skip
    of_site = or_(events.c.site_id == SITE, events.c.lane_id.in_(ours["lanes"]), events.c.job_id.in_(ours["jobs"]))
    ticks = TABLES["schedule_ticks"]
    return [
        delete(events).where(of_site),
        delete(findings).where(findings.c.topic_id.in_(ours["topics"])),
        delete(publications).where(publications.c.site_id == SITE),
        delete(revisions).where(revisions.c.site_id == SITE),
        delete(attempts).where(attempts.c.job_id.in_(ours["jobs"])),
        delete(jobs).where(jobs.c.site_id == SITE),
        delete(topics).where(topics.c.site_id == SITE),
        delete(gates).where(gates.c.lane_id.in_(ours["lanes"])),
        delete(ticks).where(ticks.c.schedule_id.in_(ours["schedules"])),
        *(delete(TABLES[name]).where(TABLES[name].c.site_id == SITE) for name in
          ("schedules", "redirects", "lanes", "stages")),
        delete(sites).where(sites.c.id == SITE),
    ]  # fmt: skip


@cache
def newest_pass() -> Select[Any]:
    """``(id, state, stage, reserved_by)`` of the unfinished pass of the topic ``slug`` of a site, if there is one."""
    return (
        select(jobs.c.id, jobs.c.state, jobs.c.stage, jobs.c.reserved_by)
        .select_from(jobs.join(topics, topics.c.id == jobs.c.topic_id))
        .where(
            topics.c.site_id == SITE,
            topics.c.slug == bindparam("p_slug", type_=Text),
            not_over(jobs),
        )
    )
