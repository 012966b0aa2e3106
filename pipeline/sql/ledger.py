"""The publish ledger: intent, confirmation, what is live; floor 1.

Each step is taken under the token of a live reservation, whose row is share-locked first: nobody can take the token
away between that look and the commit. The publication's row is locked by a statement of its own before it is judged,
since a guard that waits would judge the holder of the old intent with an old snapshot.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
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
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.dml import ReturningUpdate

from pipeline.clock import Clock
from pipeline.sql.batch import word
from pipeline.sql.tables import jobs, lanes, publications, revisions, topics
from pipeline.states import JobState as S

TOKEN = bindparam("p_token", type_=Uuid())
FENCE = bindparam("p_fence", type_=BigInteger)
SITE = bindparam("p_site_id", type_=BigInteger)
TOPIC = bindparam("p_topic_id", type_=BigInteger)
TARGET = bindparam("p_target", type_=Text)
PATH = bindparam("p_path", type_=Text)
HASH = bindparam("p_hash", type_=Text)
REVISION = bindparam("p_revision", type_=BigInteger)
INPUTS = bindparam("p_inputs", type_=Text)


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
    """Make the publication's row if there is none yet. A conflict on the path shows when the row is looked for."""
    values = {
        "site_id": SITE,
        "topic_id": TOPIC,
        "target": TARGET,
        "intent_path": PATH,
        "intent_hash": HASH,
    }
    return upsert(publications).values(values).on_conflict_do_nothing()


def _this() -> Any:
    """The row of this topic, or of this artefact of the site, at this target."""
    return and_(
        publications.c.site_id == SITE,
        publications.c.target == TARGET,
        or_(
            publications.c.topic_id == TOPIC,
            and_(TOPIC.is_(None), publications.c.topic_id.is_(None), publications.c.intent_path == PATH),
        ),
    )


@cache
def lock() -> Select[Any]:
    return select(publications.c.id).where(_this()).with_for_update(key_share=True)


@cache
def intend(clock: Clock) -> ReturningUpdate[Any]:
    """Note what is about to be done; returns ``(id, live_hash)``. No row: another live reservation is at it."""
    other = jobs.alias("other")
    taken = exists().where(
        other.c.state == word(S.RESERVED),
        other.c.token == publications.c.intent_token,
        other.c.fence == publications.c.intent_fence,
    )
    mine = and_(publications.c.intent_token == TOKEN, publications.c.intent_fence == FENCE)
    return (
        update(publications)
        .where(
            publications.c.id == bindparam("p_publication_id", type_=BigInteger),
            or_(publications.c.intent_token.is_(None), mine, ~taken),
        )
        .values(
            intent_path=PATH,
            intent_hash=HASH,
            intent_revision=REVISION,
            intent_inputs=INPUTS,
            intent_token=TOKEN,
            intent_fence=FENCE,
            intent_at=clock.stored(),
        )
        .returning(publications.c.id, publications.c.live_hash)
    )


@cache
def owner() -> Select[Any]:
    """The slug of the topic that has this path, live or intended, if it is another than this one."""
    return (
        select(topics.c.slug)
        .select_from(publications.outerjoin(topics, topics.c.id == publications.c.topic_id))
        .where(
            publications.c.site_id == SITE,
            publications.c.target == TARGET,
            or_(publications.c.intent_path == PATH, publications.c.live_path == PATH),
            publications.c.topic_id.is_distinct_from(TOPIC),
        )
        .limit(1)
    )


@cache
def confirm(clock: Clock) -> ReturningUpdate[Any]:
    """Note that what was intended is live; returns the id. ``changed_at`` moves only when the content did."""
    was, now = revisions.alias("was"), revisions.alias("now")
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
            publications.c.id == bindparam("p_publication_id", type_=BigInteger),
            publications.c.intent_token == TOKEN,
            publications.c.intent_fence == FENCE,
            publications.c.intent_hash == HASH,
        )
        .values(
            live_path=publications.c.intent_path,
            live_hash=publications.c.intent_hash,
            live_revision=publications.c.intent_revision,
            live_inputs=publications.c.intent_inputs,
            live_remote=bindparam("p_remote", type_=Text),
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
