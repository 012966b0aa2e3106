"""The publish ledger: intent, confirmation, what is live; floor 1.

Each step is taken under the token of a live reservation, whose row is share-locked first: nobody can take the token
away between that look and the commit. The publication's row is locked by a statement of its own before it is judged,
since a guard that waits would judge the holder of the old intent with an old snapshot.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
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
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate
from sqlalchemy.sql.selectable import TableValuedAlias

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, table, word
from pipeline.sql.tables import jobs, publications, revisions, topics
from pipeline.states import JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
TARGET = bindparam("p_target", type_=Text)


INTENT = ("path", "hash", "revision", "inputs", "token", "fence")
KNOWN_BY = (
    publications.c.id,
    publications.c.site_id,
    publications.c.target,
    publications.c.topic_id,
    publications.c.intent_path,
)


def pages() -> TableValuedAlias:
    """The batch parameter ``pages``: what is to be, or was, published, and under which reservation; without a topic an
    artefact of the site."""
    return table(
        "pages",
        job_id=BigInteger,
        token=Uuid,
        fence=BigInteger,
        site_id=BigInteger,
        target=Text,
        publication_id=BigInteger,
        topic_id=BigInteger,
        path=Text,
        hash=Text,
        revision=BigInteger,
        inputs=Text,
        remote=Text,
        seen=Text,
    )


@cache
def reservation() -> Select[int]:
    """The fences of the jobs that are still held under them; share-locked, so that it stays so until the commit."""
    held = pages()
    mine = exists().where(held.c.job_id == jobs.c.id, held.c.token == jobs.c.token, held.c.fence == jobs.c.fence)
    return (
        select(jobs.c.fence)
        .where(mine, jobs.c.state == word(S.RESERVED))
        .order_by(jobs.c.id)
        .with_for_update(read=True, of=jobs)
    )


@cache
def put(clock: Clock) -> ReturningInsert[Any]:
    """Make the rows that are missing, with their intent, in the order of their paths; returns what they are known by.

    A conflict shows when the rows are looked for.
    """
    new = pages()
    rows = select(
        new.c.site_id,
        new.c.topic_id,
        new.c.target,
        new.c.path,
        new.c.hash,
        new.c.revision,
        new.c.inputs,
        new.c.token,
        new.c.fence,
        clock.stored(),
    ).order_by(new.c.site_id, new.c.target, new.c.path)
    columns = ["site_id", "topic_id", "target", *(f"intent_{name}" for name in INTENT), "intent_at"]
    return upsert(publications).from_select(columns, rows).on_conflict_do_nothing().returning(*KNOWN_BY)


@cache
def owners(*, live: bool) -> Select[Any]:
    """``(target, path, slug)`` of those paths where a page of another topic, or of the site itself, is ``live``, or is
    to be."""
    new = pages()
    column = publications.c.live_path if live else publications.c.intent_path
    at = and_(publications.c.site_id == new.c.site_id, publications.c.target == new.c.target, column == new.c.path)
    # There is one at most, and each is looked for by itself: as a join, all that is published was walked.
    there = select(publications.c.topic_id).where(at).limit(ONE).correlate(new).lateral("there")
    return (
        select(new.c.target, new.c.path, topics.c.slug)
        .select_from(new.join(there, true()).outerjoin(topics, topics.c.id == there.c.topic_id))
        .where(there.c.topic_id.is_distinct_from(new.c.topic_id))
    )


@cache
def lock() -> Select[Any]:
    """Lock the rows of these topics and artefacts at their targets, in id order."""
    new, artefacts = pages(), pages()
    of_topics = select(publications.c.id).select_from(
        new.join(
            publications,
            and_(publications.c.topic_id == new.c.topic_id, publications.c.target == new.c.target),
        )
    )
    of_the_site = (
        select(publications.c.id)
        .select_from(
            artefacts.join(
                publications,
                and_(
                    publications.c.site_id == artefacts.c.site_id,
                    publications.c.target == artefacts.c.target,
                    publications.c.intent_path == artefacts.c.path,
                ),
            )
        )
        .where(artefacts.c.topic_id.is_(None), publications.c.topic_id.is_(None))
    )
    return (
        select(*KNOWN_BY)
        .where(publications.c.id.in_(union_all(of_topics, of_the_site)))
        .order_by(publications.c.id)
        .with_for_update(key_share=True)
    )


@cache
def intend(clock: Clock) -> ReturningUpdate[Any]:
    """Note what is about to be done; returns ids. A missing one: another live reservation is at it; or what is live is
    not what was ``seen``, where that was said."""
    new, other = pages(), jobs.alias("other")
    taken = exists().where(
        other.c.state == word(S.RESERVED),
        other.c.token == publications.c.intent_token,
        other.c.fence == publications.c.intent_fence,
    )
    mine = and_(publications.c.intent_token == new.c.token, publications.c.intent_fence == new.c.fence)
    return (
        update(publications)
        .where(
            publications.c.id == new.c.publication_id,
            or_(publications.c.intent_token.is_(None), mine, ~taken),
            or_(new.c.seen.is_(None), publications.c.live_hash == new.c.seen),
        )
        .values({f"intent_{name}": new.c[name] for name in INTENT} | {"intent_at": clock.stored()})
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
            publications.c.intent_token == new.c.token,
            publications.c.intent_fence == new.c.fence,
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
def live() -> Select[Any]:
    """What is live of a site at a target; without a topic it is an artefact of the site's own."""
    source = publications.outerjoin(revisions, revisions.c.id == publications.c.live_revision)
    return (
        select(
            publications.c.topic_id,
            publications.c.live_path,
            publications.c.live_hash,
            publications.c.live_remote,
            publications.c.live_inputs,
            publications.c.first_at,
            publications.c.changed_at,
            publications.c.live_revision,
            revisions.c.content_hash,
        )
        .select_from(source)
        .where(publications.c.site_id == SITE, publications.c.target == TARGET, publications.c.live_path.is_not(None))
        .order_by(publications.c.id)
    )
