"""The publish ledger: intent, confirmation, what is live; floor 1.

Each step is taken under the token of a live reservation, whose row is share-locked first: nobody can take the token
away between that look and the commit. The publication's row is locked by a statement of its own before it is judged,
since a guard that waits would judge the holder of the old intent with an old snapshot.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Select,
    Text,
    Uuid,
    and_,
    bindparam,
    case,
    exists,
    func,
    null,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.sql.selectable import TableValuedAlias

from pipeline.clock import Clock
from pipeline.sql.batch import table, word
from pipeline.sql.tables import jobs, lanes, publications, revisions, topics
from pipeline.states import JobState as S

TOKEN = bindparam("p_token", type_=Uuid())
FENCE = bindparam("p_fence", type_=BigInteger)
SITE = bindparam("p_site_id", type_=BigInteger)
TARGET = bindparam("p_target", type_=Text)


def pages() -> TableValuedAlias:
    """The batch parameter ``pages``: what is to be, or was, published; without a topic an artefact of the site."""
    return table(
        "pages",
        publication_id=BigInteger,
        topic_id=BigInteger,
        path=Text,
        hash=Text,
        revision=BigInteger,
        inputs=Text,
        remote=Text,
    )


@cache
def reservation() -> Select[int]:
    """The job's id if the token is still its own; share-locked, so that it stays so until the commit."""
    return (
        select(jobs.c.id)
        .where(
            jobs.c.id == bindparam("p_job_id", type_=BigInteger),
            jobs.c.token == TOKEN,
            jobs.c.state == word(S.RESERVED),
        )
        .with_for_update(read=True)
    )


@cache
def put() -> Any:
    """Make the rows that are missing, in the order of their paths. A conflict shows when the rows are looked for."""
    new = pages()
    rows = select(SITE, new.c.topic_id, TARGET, new.c.path, new.c.hash).order_by(new.c.path)
    columns = ["site_id", "topic_id", "target", "intent_path", "intent_hash"]
    return upsert(publications).from_select(columns, rows).on_conflict_do_nothing()


@cache
def owners() -> CompoundSelect[Any]:
    """``(path, slug)`` of those paths that another topic, or the site itself, has: live or intended."""

    def having(column: ColumnElement[str]) -> Select[Any]:
        new = pages()
        at = and_(publications.c.site_id == SITE, publications.c.target == TARGET, column == new.c.path)
        return (
            select(new.c.path, topics.c.slug)
            .select_from(new.join(publications, at).outerjoin(topics, topics.c.id == publications.c.topic_id))
            .where(publications.c.topic_id.is_distinct_from(new.c.topic_id))
        )

    return union_all(having(publications.c.intent_path), having(publications.c.live_path))


@cache
def lock() -> Select[Any]:
    """Lock the rows of these topics and artefacts at this target, in id order; returns ``(id, topic_id, path)``."""
    new, artefacts = pages(), pages()
    here = (publications.c.site_id == SITE, publications.c.target == TARGET)
    of_topics = (
        select(publications.c.id)
        .select_from(new.join(publications, publications.c.topic_id == new.c.topic_id))
        .where(*here)
    )
    of_the_site = (
        select(publications.c.id)
        .select_from(artefacts.join(publications, publications.c.intent_path == artefacts.c.path))
        .where(*here, artefacts.c.topic_id.is_(None), publications.c.topic_id.is_(None))
    )
    return (
        select(publications.c.id, publications.c.topic_id, publications.c.intent_path)
        .where(publications.c.id.in_(union_all(of_topics, of_the_site)))
        .order_by(publications.c.id)
        .with_for_update(key_share=True)
    )


@cache
def intend(clock: Clock) -> ReturningUpdate[Any]:
    """Note what is about to be done; returns ids. A missing one: another live reservation is at it."""
    new, other = pages(), jobs.alias("other")
    taken = exists().where(
        other.c.state == word(S.RESERVED),
        other.c.token == publications.c.intent_token,
        other.c.fence == publications.c.intent_fence,
    )
    mine = and_(publications.c.intent_token == TOKEN, publications.c.intent_fence == FENCE)
    return (
        update(publications)
        .where(
            publications.c.id == new.c.publication_id,
            or_(publications.c.intent_token.is_(None), mine, ~taken),
        )
        .values(
            intent_path=new.c.path,
            intent_hash=new.c.hash,
            intent_revision=new.c.revision,
            intent_inputs=new.c.inputs,
            intent_token=TOKEN,
            intent_fence=FENCE,
            intent_at=clock.stored(),
        )
        .returning(publications.c.id)
    )


@cache
def confirm(clock: Clock) -> ReturningUpdate[Any]:
    """Note that what was intended is live; returns ids. ``changed_at`` moves only when the content did."""
    new, was, now = pages(), revisions.alias("was"), revisions.alias("now")
    before = select(was.c.content_hash).where(was.c.id == publications.c.live_revision).scalar_subquery()
    after = select(now.c.content_hash).where(now.c.id == publications.c.intent_revision).scalar_subquery()
    same = and_(
        publications.c.live_path == publications.c.intent_path,
        case(
            (publications.c.topic_id.is_(None), publications.c.live_hash == publications.c.intent_hash),
            else_=before.is_not_distinct_from(after),
        ),
    )
    return (
        update(publications)
        .where(
            publications.c.id == new.c.publication_id,
            publications.c.intent_token == TOKEN,
            publications.c.intent_fence == FENCE,
            publications.c.intent_hash == new.c.hash,
        )
        .values(
            live_path=publications.c.intent_path,
            live_hash=publications.c.intent_hash,
            live_revision=publications.c.intent_revision,
            live_inputs=publications.c.intent_inputs,
            live_remote=new.c.remote,
            live_fence=publications.c.intent_fence,
            first_at=func.coalesce(publications.c.first_at, clock.stored()),
            changed_at=case((same, publications.c.changed_at), else_=clock.stored()),
            intent_token=null(),
            intent_fence=null(),
            intent_at=null(),
        )
        .returning(publications.c.id)
    )


@cache
def live(*, with_content: bool) -> Select[Any]:
    """What is live of a site at a target: topics by lane and position, then the site's own artefacts."""
    content = [revisions.c.body, revisions.c.front_matter, revisions.c.lineage] if with_content else []
    source: FromClause = (
        publications.outerjoin(topics, topics.c.id == publications.c.topic_id)
        .outerjoin(lanes, lanes.c.id == topics.c.lane_id)
        .outerjoin(revisions, revisions.c.id == publications.c.live_revision)
    )
    return (
        select(
            publications.c.live_path,
            publications.c.live_hash,
            publications.c.live_remote,
            publications.c.live_inputs,
            publications.c.live_revision,
            publications.c.first_at,
            publications.c.changed_at,
            publications.c.topic_id,
            lanes.c.name.label("lane"),
            topics.c.position,
            topics.c.type,
            topics.c.path,
            revisions.c.title,
            revisions.c.description,
            *content,
        )
        .select_from(source)
        .where(publications.c.site_id == SITE, publications.c.target == TARGET, publications.c.live_path.is_not(None))
        .order_by(topics.c.lane_id.nulls_last(), topics.c.position, publications.c.id)
    )
