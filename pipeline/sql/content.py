"""Revisions, findings, and what a stage may ask of its site; floor 1."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.sql.batch import ONE, not_over, table, word
from pipeline.sql.tables import attempts, findings, jobs, lanes, publications, revisions, stages, topics

SITE = bindparam("p_site_id", type_=BigInteger)


@cache
def add_revisions(*, guarded: bool = False) -> Any:
    """Insert the drafts in ``drafts`` as the newest revisions of their topics, and make them current.

    Returns ``(id, number)``. ``guarded``: only where the current revision is still ``seen``.
    """
    new = table(
        "drafts",
        topic_id=BigInteger,
        fence=BigInteger,
        title=Text,
        description=Text,
        title_key=Text,
        description_key=Text,
        body=Text,
        front_matter=JSONB,
        content_hash=Text,
        lineage=JSONB,
    )
    given = [c for c in new.c if c.key != "topic_id"]
    rows = select(
        topics.c.site_id, topics.c.id, topics.c.revisions + 1, bindparam("p_origin", type_=Text), *given
    ).select_from(new.join(topics, topics.c.id == new.c.topic_id))
    if guarded:
        rows = rows.where(topics.c.revision_id.is_not_distinct_from(bindparam("p_seen", type_=BigInteger)))
    added = (
        insert(revisions)
        .from_select(["site_id", "topic_id", "number", "origin", *(c.key for c in given)], rows)
        .returning(revisions.c.id, revisions.c.topic_id, revisions.c.number)
        .cte("added")
    )
    return (
        update(topics)
        .where(topics.c.id == added.c.topic_id)
        .values(revision_id=added.c.id, revisions=added.c.number)
        .returning(added.c.id, added.c.number)
    )


@cache
def draft() -> Select[Any]:
    """A topic of a site with its current revision and its unfinished pass; what there is not is NULL."""
    unfinished = not_over(jobs)
    first = (
        select(stages.c.name)
        .where(stages.c.site_id == SITE, stages.c.state != word("retired"))
        .order_by(stages.c.ordinal)
        .limit(ONE)
        .scalar_subquery()
    )
    return (
        select(
            topics.c.id,
            topics.c.title.label("topic_title"),
            topics.c.revision_id,
            revisions.c.number,
            revisions.c.title,
            revisions.c.description,
            revisions.c.body,
            revisions.c.front_matter,
            revisions.c.lineage,
            jobs.c.id.label("job_id"),
            jobs.c.state,
            jobs.c.stage,
            jobs.c.error_class,
            jobs.c.reserved_by,
            first.label("first"),
        )
        .select_from(
            topics.outerjoin(revisions, revisions.c.id == topics.c.revision_id).outerjoin(
                jobs, and_(jobs.c.topic_id == topics.c.id, unfinished)
            )
        )
        .where(topics.c.site_id == SITE, topics.c.slug == bindparam("p_slug", type_=Text))
    )


@cache
def lock_pass() -> Select[int]:
    """Lock the unfinished pass of the topic: nobody claims it, and no worker's end of it is on its way."""
    return (
        select(jobs.c.id)
        .where(
            jobs.c.topic_id == bindparam("p_topic_id", type_=BigInteger),
            not_over(jobs),
        )
        .with_for_update(key_share=True)
    )


@cache
def lock_topic() -> Select[int]:
    """Lock the topic: no new pass of it is planned."""
    return (
        select(topics.c.id)
        .where(topics.c.id == bindparam("p_topic_id", type_=BigInteger))
        .with_for_update(key_share=True)
    )


@cache
def add_findings() -> Any:
    new = table(
        "found",
        topic_id=BigInteger,
        revision_id=BigInteger,
        fence=BigInteger,
        rule=Text,
        severity=Text,
        message=Text,
        line=Integer,
        column_number=Integer,
    )
    return insert(findings).from_select([c.key for c in new.c], select(*new.c))


@cache
def last_findings() -> Select[Any]:
    """The findings of the newest rejection of each of ``topic_ids``."""
    newest = (
        select(findings.c.topic_id, func.max(findings.c.fence).label("fence"))
        .select_from(findings.join(attempts, attempts.c.fence == findings.c.fence))
        .where(findings.c.topic_id == func.any(bindparam("p_topic_ids")), attempts.c.outcome == "rejected")
        .group_by(findings.c.topic_id)
        .subquery("newest")
    )
    return (
        select(
            findings.c.topic_id,
            findings.c.rule,
            findings.c.message,
            findings.c.severity,
            findings.c.line,
            findings.c.column_number,
        )
        .select_from(
            findings.join(newest, (newest.c.topic_id == findings.c.topic_id) & (newest.c.fence == findings.c.fence))
        )
        .order_by(findings.c.id)
    )


@cache
def known_paths() -> Select[Any]:
    """Those of the ``(site_id, path)`` in ``asked`` that belong to a topic."""
    asked = table("asked", site_id=BigInteger, path=Text)
    return select(topics.c.site_id, topics.c.path).select_from(
        asked.join(topics, and_(topics.c.site_id == asked.c.site_id, topics.c.path == asked.c.path))
    )


@cache
def twins() -> CompoundSelect[Any]:
    """``(n, part, slug)``: of each draft in ``asked`` the first other topics whose current revision has its key."""

    def same(part: str) -> Select[Any]:
        asked = table("asked", n=Integer, site_id=BigInteger, topic_id=BigInteger, title_key=Text, description_key=Text)
        found = (
            select(topics.c.slug)
            .select_from(revisions.join(topics, topics.c.id == revisions.c.topic_id))
            .where(
                topics.c.revision_id == revisions.c.id,
                revisions.c.site_id == asked.c.site_id,
                revisions.c[f"{part}_key"] == asked.c[f"{part}_key"],
                topics.c.id != asked.c.topic_id,
            )
            .order_by(topics.c.slug)
            .limit(literal_column("5", Integer))
            .lateral("found")
        )
        return select(asked.c.n, word(part), found.c.slug).select_from(asked.join(found, literal_column("true")))

    return union_all(same("title"), same("description"))


@cache
def contents() -> Select[Any]:
    """The revisions of ``p_ids``, whole."""
    columns = ("id", "title", "description", "body", "front_matter", "lineage")
    return select(*(revisions.c[name] for name in columns)).where(revisions.c.id == func.any(bindparam("p_ids")))


@cache
def lane_cards(*, one_lane: bool) -> Select[Any]:
    """All pages of one lane, or of all of a site, by position; title and description are the live ones where there
    are."""
    columns, rows = _cards()
    return (
        select(*columns)
        .select_from(rows)
        .where(lanes.c.site_id == SITE, *([lanes.c.name == bindparam("p_lane", type_=Text)] if one_lane else []))
        .order_by(topics.c.lane_id, topics.c.position)
    )


@cache
def cards() -> Select[Any]:
    """The cards of the topics ``p_ids``."""
    columns, rows = _cards()
    return select(*columns).select_from(rows).where(topics.c.id == func.any(bindparam("p_ids")))


@cache
def near() -> Select[Any]:
    """``(n, id)``: of each topic in ``asked`` the topics next to it in its lane that are live.

    ``most`` of those before it, or of those behind it when there are fewer before. Looked for among the next 64 either
    way: in a lane that goes live in any order there may be none for a long way.
    """
    asked = table("asked", n=Integer, topic_id=BigInteger, target=Text, most=Integer)
    me = topics.alias("me")

    def beside(*, before: bool) -> Select[Any]:
        other = topics.alias("other")
        this_way = other.c.position < me.c.position if before else other.c.position > me.c.position
        # One by one: a join with what is published would be made with all of it.
        live = select(publications.c.live_path).where(
            publications.c.topic_id == other.c.id, publications.c.target == asked.c.target
        )
        some = (
            select(other.c.id, other.c.position, live.correlate(other, asked).scalar_subquery().label("live_path"))
            .where(other.c.lane_id == me.c.lane_id, this_way)
            .order_by(other.c.position.desc() if before else other.c.position)
            .limit(literal_column("64", Integer))
            .correlate(me, asked)
            .subquery("some")
        )
        return (
            select(some.c.id)
            .where(some.c.live_path.is_not(None))
            .order_by(some.c.position.desc() if before else some.c.position)
            .limit(asked.c.most)
            .correlate(asked)
        )

    before = beside(before=True)
    too_few = select(func.count()).select_from(before.subquery("those")).scalar_subquery() < asked.c.most
    found = union_all(
        select(before.subquery("b").c.id), select(beside(before=False).where(too_few).subquery("a").c.id)
    ).lateral("found")
    return select(asked.c.n, found.c.id).select_from(
        asked.join(me, me.c.id == asked.c.topic_id).join(found, literal_column("true"))
    )


def _cards() -> tuple[Sequence[ColumnElement[Any]], FromClause]:
    """What a ``PageCard`` is made of, and the rows that it comes from."""
    published = publications.alias("published")
    now, was = revisions.alias("now"), revisions.alias("was")
    columns = [
        topics.c.id,
        lanes.c.name,
        topics.c.position,
        topics.c.type,
        topics.c.path,
        func.coalesce(was.c.title, now.c.title, topics.c.title).label("title"),
        func.coalesce(was.c.description, now.c.description, "").label("description"),
        published.c.live_path.is_not(None).label("live"),
    ]
    return columns, (
        topics.join(lanes, lanes.c.id == topics.c.lane_id)
        .outerjoin(
            published,
            and_(published.c.topic_id == topics.c.id, published.c.target == bindparam("p_target", type_=Text)),
        )
        .outerjoin(was, was.c.id == published.c.live_revision)
        .outerjoin(now, now.c.id == topics.c.revision_id)
    )
