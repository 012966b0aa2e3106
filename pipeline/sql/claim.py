"""The claim and the heartbeat; floor 1.

The claim walks ``ix_jobs_claim`` and nothing else: what waits, is halted, paused or finished is not in it, so its cost
grows with none of them. Predicates use ``statement_timestamp()``: ``clock_timestamp()`` is volatile, hence never an
index condition (measured: 751 ms against 0.26 ms). Stored times use ``clock_timestamp()``.
"""

from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    Float,
    FromClause,
    Integer,
    Select,
    SmallInteger,
    Text,
    Uuid,
    and_,
    bindparam,
    case,
    cast,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union_all,
    update,
)

from pipeline.clock import Clock
from pipeline.models import FENCES
from pipeline.sql.batch import ONE, SECOND, table, word
from pipeline.sql.ending import override
from pipeline.sql.tables import jobs, lanes, revisions, sites, stages, topics
from pipeline.states import JobState as S
from pipeline.views import Draft, TopicView

MOMENT = DateTime(timezone=True)
OLDEST = literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", BigInteger)
# How many transactions have begun since: the snapshot itself ends at the last that is over.
YOUNGER = literal_column("age(pg_snapshot_xmin(pg_current_snapshot())::xid)", Integer)


class Which(StrEnum):
    """Which of the due jobs a claim takes."""

    ALL = "all"
    TOGETHER = "together"
    ALONE = "alone"  # lost with their workers again and again: with nothing else in the same hands


@cache
def claim(clock: Clock, which: Which) -> Select[Any]:
    """Reserve the first due jobs of each prefix; returns one row a job: the fields of its ``TopicView`` and of its
    ``Draft``, each in their order there, then those of its ``Claim`` by name.

    ``which``: all; or only those that may run together with others; or only those that run by themselves.

    Binds ``prefixes`` (n, site_id, stage, priority, share, lease_seconds, floor_at, floor_id), ``token`` and
    ``worker``. At most ``share`` jobs of a prefix, from its floor on: the worker's last ``(run_at, id)``, so that dead
    index entries of finished work, which a pinned snapshot keeps, are not walked again. All share the token; each has a
    fence of its own. Charges the attempt. A lane may have a lease of its own.
    """
    p = table(
        "prefixes",
        n=Integer,
        site_id=BigInteger,
        stage=Text,
        priority=SmallInteger,
        share=Integer,
        lease_seconds=Float,
        floor_at=MOMENT,
        floor_id=BigInteger,
    )
    j = jobs.alias("j")
    now = clock.statement()
    # Looked up once, as each look-up walks all versions of the row that a pinned snapshot keeps; and for each row on
    # the way, where LIMIT keeps it: as a join it was hashed, and all that is due sorted for a few of it.
    own = override(lanes, p.c.stage, "lease_seconds")
    lane = (
        select(lanes.c.name, lanes.c.state, lanes.c.overrides, cast(own, Float).label("lease_seconds"))
        .where(lanes.c.id == j.c.lane_id)
        .limit(ONE)
        .correlate(j, p)
        .lateral("lane")
    )
    due = (
        select(j.c.id, lane.c.name, lane.c.overrides, lane.c.lease_seconds)
        .select_from(j.outerjoin(lane, true()))
        .where(
            j.c.state == word(S.PENDING),
            j.c.site_id == p.c.site_id,
            j.c.stage == p.c.stage,
            j.c.priority == p.c.priority,
            j.c.run_at <= now,
            tuple_(j.c.run_at, j.c.id) > tuple_(p.c.floor_at, p.c.floor_id),
            or_(j.c.run_until.is_(None), j.c.run_until > now),
            j.c.attempts < j.c.max_attempts,
            *{Which.ALL: (), Which.TOGETHER: (~j.c.alone,), Which.ALONE: (j.c.alone,)}[which],
            func.coalesce(lane.c.state, word("active")) == word("active"),
            *_open(p),
        )
        .order_by(j.c.run_at, j.c.id)
        .limit(p.c.share)
        .with_for_update(key_share=True, skip_locked=True, of=j)
        .correlate(p)
        .lateral("due")
    )
    lease = func.coalesce(due.c.lease_seconds, p.c.lease_seconds).label("lease_seconds")
    chosen = select(due.c.id, due.c.name, due.c.overrides, p.c.n, lease).select_from(p.join(due, true())).cte("chosen")
    # The array leads to the rows by their key. A join alone did not: the planner takes the shares for hundreds of rows,
    # and hashed them against every pending row of every site.
    keys = func.array(select(chosen.c.id).scalar_subquery(), type_=ARRAY(BigInteger))
    claimed = (
        update(jobs)
        .where(
            jobs.c.id == func.any(keys),
            jobs.c.id == chosen.c.id,
            # The guard stands in the write; said like this it leads to no index, of which all would be walked.
            jobs.c.state.is_not_distinct_from(word(S.PENDING)),
        )
        .values(
            state=word(S.RESERVED),
            attempts=jobs.c.attempts + 1,
            token=bindparam("p_token", type_=Uuid()),
            fence=FENCES.next_value(),
            reserved_by=bindparam("p_worker", type_=Text),
            reserved_at=clock.stored(),
            lease_expires_at=clock.stored() + chosen.c.lease_seconds * SECOND,
        )
        .returning(
            *jobs.c,
            chosen.c.n,
            chosen.c.lease_seconds,
            chosen.c.name.label("lane"),
            cast(override(chosen, jobs.c.stage, "deadline_seconds"), Float).label("deadline_seconds"),
        )
        .cte("claimed")
    )
    earlier = stages.alias("earlier")
    here = stages.alias("here")
    begins = ~exists().where(
        earlier.c.site_id == claimed.c.site_id, earlier.c.ordinal < here.c.ordinal, earlier.c.state != word("retired")
    ).correlate(claimed, here)
    t, r = topics.c, revisions.c
    topic = (
        *(claimed.c.topic_id, sites.c.slug, claimed.c.lane, t.slug, t.title, t.type, t.path),
        *(claimed.c.position, t.brief, claimed.c["pass"], claimed.c.round),
    )
    draft = (r.title, r.description, r.body, r.front_matter, r.lineage)
    return (
        select(
            *(column.label(f"topic_{to.name}") for to, column in zip(fields(TopicView), topic, strict=True)),
            *(column.label(f"draft_{to.name}") for to, column in zip(fields(Draft), draft, strict=True)),
            claimed.c.id,
            sites.c.slug.label("site"),
            claimed.c.site_id,
            claimed.c.stage,
            claimed.c.fence,
            claimed.c.attempts,
            claimed.c.max_attempts,
            claimed.c.slot.is_not(None).label("gated"),
            claimed.c.lease_seconds,
            revisions.c.id.label("revision_id"),
            func.coalesce(topics.c.input_hash, "").label("input_hash"),
            func.coalesce(claimed.c.approved == func.coalesce(revisions.c.content_hash, ""), false()).label("approved"),
            and_(here.c.name.is_not(None), begins).label("begins"),
            claimed.c.run_at,
            claimed.c.priority,
            claimed.c.deadline_seconds,
        )
        .select_from(
            claimed.join(sites, sites.c.id == claimed.c.site_id)
            .outerjoin(here, and_(here.c.site_id == claimed.c.site_id, here.c.name == claimed.c.stage))
            .outerjoin(topics, topics.c.id == claimed.c.topic_id)
            .outerjoin(revisions, revisions.c.id == topics.c.revision_id)
        )
        .order_by(claimed.c.n, claimed.c.run_at, claimed.c.id)
    )


@cache
def prefixes(clock: Clock, *, one_site: bool) -> Select[Any]:
    """The prefixes that have a pending job, by a loose index scan: one probe for each.

    Returns ``(site_id, stage, priority, run_at, id, ready, at, oldest, next)``: the first job of each, and whether it
    is due where site and stage are open; and with each, when that was so, the oldest transaction that was open then,
    and the next one. One row, of these alone, when there is nothing. Binds ``site_id`` when ``one_site``.
    Walks all dead entries that lie before the first jobs, which a pinned snapshot keeps.
    """

    def head(of: FromClause, *more: ColumnElement[bool]) -> Select[Any]:
        """The first job in the index, of those that ``more`` leaves."""
        mine = [of.c.site_id == bindparam("p_site_id", type_=BigInteger)] if one_site else []
        return _first(of, *mine, *more)

    seed = head(jobs.alias("first")).subquery("seed")
    walk = select(*seed.c).cte("walk", recursive=True)
    n = jobs.alias("n")
    behind = tuple_(n.c.site_id, n.c.stage, n.c.priority) > tuple_(walk.c.site_id, walk.c.stage, walk.c.priority)
    step = head(n, behind).correlate(walk).lateral("step")
    walk = walk.union_all(select(*step.c).select_from(walk.join(step, true())))
    moment = select(*_moment(clock)).cte("moment")
    return (
        select(*walk.c, and_(walk.c.run_at <= moment.c.at, *_open(walk)).label("ready"), *moment.c)
        .select_from(moment.outerjoin(walk, true()))
        .order_by(walk.c.site_id, walk.c.stage, walk.c.priority)
    )


@cache
def near(clock: Clock) -> Select[Any]:
    """As ``prefixes``, but of the ``known`` ones only from their floors on, and of others only the first of each gap
    between two of them.

    Binds ``known`` (site_id, stage, priority, floor_at, floor_id), in any order: with one that lies before all as well;
    and ``end``, the site where to stop. Before PostgreSQL 18 a gap is walked to the end of its site, in the index
    alone: 70 blocks for 10,000 dead entries.
    """
    given = table("known", site_id=BigInteger, stage=Text, priority=SmallInteger, floor_at=MOMENT, floor_id=BigInteger)
    key = (given.c.site_id, given.c.stage, given.c.priority)
    end = (bindparam("p_end", type_=BigInteger), literal_column("''", Text), literal_column("0", SmallInteger))
    # Ordered here, since texts have another order elsewhere.
    ends = (
        func.coalesce(func.lead(c).over(order_by=key), last).label(f"end_{c.key}")
        for c, last in zip(key, end, strict=True)
    )
    k = select(*given.c, *ends).cte("k")
    own, other = jobs.alias("own"), jobs.alias("other")
    mine = _first(
        own,
        *(own.c[c.key] == k.c[c.key] for c in key),
        tuple_(own.c.run_at, own.c.id) > tuple_(k.c.floor_at, k.c.floor_id),
    )
    place = tuple_(other.c.site_id, other.c.stage, other.c.priority)
    between = _first(
        other,
        place > tuple_(k.c.site_id, k.c.stage, k.c.priority),
        place < tuple_(k.c.end_site_id, k.c.end_stage, k.c.end_priority),
    )
    found = union_all(*(select(*part.correlate(k).lateral().c) for part in (mine, between))).lateral("found")
    ready = and_(found.c.run_at <= clock.statement(), *_open(found)).label("ready")
    return select(*found.c, ready, *_moment(clock)).select_from(k.outerjoin(found, true()))


def _moment(clock: Clock) -> tuple[ColumnElement[Any], ...]:
    return clock.statement().label("at"), OLDEST.label("oldest"), (OLDEST + YOUNGER).label("next")


def _first(of: FromClause, *where: ColumnElement[bool]) -> Select[Any]:
    key = (of.c.site_id, of.c.stage, of.c.priority, of.c.run_at, of.c.id)
    return select(*key).where(of.c.state == word(S.PENDING), *where).order_by(*key).limit(ONE)


@cache
def loners(clock: Clock, *, one_site: bool) -> Select[int, str, int]:
    """The ``(site_id, stage, priority)`` that have a due job which runs by itself; there are few, or none."""
    where = [jobs.c.state == word(S.PENDING), jobs.c.alone, jobs.c.run_at <= clock.statement()]
    if one_site:
        where.append(jobs.c.site_id == bindparam("p_site_id", type_=BigInteger))
    return (
        select(jobs.c.site_id, jobs.c.stage, jobs.c.priority)
        .where(*where, *_open(jobs))
        .group_by(jobs.c.site_id, jobs.c.stage, jobs.c.priority)
        .order_by(func.min(jobs.c.run_at))
    )


def _open(prefix: FromClause) -> tuple[ColumnElement[bool], ...]:
    """The prefix's site is active, and its stage is not paused there."""
    active = exists().where(sites.c.id == prefix.c.site_id, sites.c.state == word("active"))
    paused = exists().where(
        stages.c.site_id == prefix.c.site_id, stages.c.name == prefix.c.stage, stages.c.state == word("paused")
    )
    return active.correlate(prefix), ~paused.correlate(prefix)


@cache
def renew(clock: Clock) -> Select[int, str, bool]:
    """Move the leases of held jobs on; returns ``(job_id, answer, cancel_requested)`` for those still ours.

    Binds ``held`` (job_id, token, lease_seconds). ``answer`` is ``renewed`` or ``locked`` (somebody writes the row just
    now: try again). A job that is missing from the answer is gone. SKIP LOCKED in id order: waiting here would
    deadlock with batch acknowledgements, and one locked row would delay every other lease.
    """
    held = table("held", job_id=BigInteger, token=Uuid(), lease_seconds=Float)
    j = jobs.alias("j")
    mine = (
        select(j.c.id, held.c.token, held.c.lease_seconds)
        .select_from(j.join(held, (held.c.job_id == j.c.id) & (held.c.token == j.c.token)))
        .order_by(j.c.id)
        .with_for_update(key_share=True, skip_locked=True, of=j)
        .cte("mine")
    )
    renewed = (
        update(jobs)
        .where(jobs.c.id == mine.c.id, jobs.c.token == mine.c.token)  # only what is reserved has one
        .values(lease_expires_at=clock.stored() + mine.c.lease_seconds * SECOND)
        .returning(jobs.c.id)
        .cte("renewed")
    )
    h = table("held", job_id=BigInteger, token=Uuid(), lease_seconds=Float).alias("h")
    r = jobs.alias("r")
    answer = case((renewed.c.id.is_not(None), word("renewed")), else_=word("locked")).label("answer")
    return select(r.c.id, answer, r.c.cancel_requested).select_from(
        r.join(h, (h.c.job_id == r.c.id) & (h.c.token == r.c.token)).outerjoin(renewed, renewed.c.id == r.c.id)
    )
