"""Planning: sites, lanes, stages, gates, topics and their passes; floor 1.

An operator's verb: lane rows are locked first (workers never lock those), then gates. Positions come from the counter
on the lane row, which is held to the commit, so that positions equal commit order.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert as upsert
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate, Update

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, not_over, table, word
from pipeline.sql.ending import arrive, override, permitted
from pipeline.sql.tables import gates, jobs, lanes, revisions, sites, stages, topics
from pipeline.states import JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
NEVER_CLEARED = literal_column("-1", Integer)
ALL_CLEARED = literal_column("2147483647", Integer)


@cache
def put_site() -> ReturningInsert[Any]:
    """Make the site's row, or bring it up to date; returns ``(id, state)``. Locks the row: two plans take turns."""
    new = upsert(sites).values(
        slug=bindparam("p_slug"),
        name=bindparam("p_name"),
        base_url=bindparam("p_base_url"),
        time_zone=bindparam("p_time_zone"),
        locale=bindparam("p_locale"),
        settings=bindparam("p_settings", type_=JSONB),
    )
    kept = ("name", "base_url", "time_zone", "locale", "settings")
    return new.on_conflict_do_update(
        index_elements=[sites.c.slug], set_={key: new.excluded[key] for key in kept}
    ).returning(sites.c.id, sites.c.state)


@cache
def put_lanes() -> Any:
    """Make the lanes named in ``names`` that are missing, in the order of their names."""
    names = table("names", name=Text)
    rows = select(SITE, names.c.name).order_by(names.c.name)
    return upsert(lanes).from_select(["site_id", "name"], rows).on_conflict_do_nothing()


@cache
def lock_lanes() -> Select[Any]:
    """Lock the site's lanes, in id order, before anything else of them; returns ``(id, name, state)``."""
    return (
        select(lanes.c.id, lanes.c.name, lanes.c.state)
        .where(lanes.c.site_id == SITE)
        .order_by(lanes.c.id)
        .with_for_update(key_share=True)
    )


@cache
def lock_first_gates(*, behind: bool = False) -> Select[Any]:
    """Lock the site's gates at its first stage, where planned jobs arrive; returns their ids. ``behind``: at the second
    too, where those arrive that have a text."""
    first = (
        select(stages.c.name)
        .where(stages.c.site_id == SITE, stages.c.state != word("retired"))
        .order_by(stages.c.ordinal)
        .limit(literal_column("2", Integer) if behind else ONE)
    )
    mine = select(lanes.c.id).where(lanes.c.site_id == SITE)
    here = gates.c.stage.in_(first) if behind else gates.c.stage == first.scalar_subquery()
    return (
        select(gates.c.id).where(gates.c.lane_id.in_(mine), here).order_by(gates.c.id).with_for_update(key_share=True)
    )


@cache
def put_gates() -> Any:
    """Make the gates that are missing: each lane of the site at each limited stage; returns their ids."""
    own = override(lanes, stages.c.name, "width")
    differs = lanes.c.overrides.op("->")(stages.c.name).op("?")(literal_column("'width'", Text))
    width = case((differs, cast(own, Integer)), else_=stages.c.width)
    wanted = (
        select(lanes.c.id, stages.c.name, stages.c.ordinal, width)
        .select_from(lanes.join(stages, stages.c.site_id == lanes.c.site_id))
        .where(
            lanes.c.site_id == SITE,
            width.is_not(None),
            # Looked for first: ON CONFLICT alone would wait for whoever moves such a gate just now.
            ~exists().where(gates.c.lane_id == lanes.c.id, gates.c.stage == stages.c.name),
        )
        .order_by(lanes.c.id, stages.c.ordinal)
    )
    new = upsert(gates).from_select(["lane_id", "stage", "ordinal", "width"], wanted)
    return new.on_conflict_do_nothing().returning(gates.c.id)


@cache
def touch_stages() -> Any:
    """Wait for all that make lanes by the stages as they were; who comes later begins anew."""
    return update(stages).where(stages.c.site_id == SITE).values(max_attempts=stages.c.max_attempts)


@cache
def await_reserved() -> Select[int]:
    """Lock what is reserved in the lanes of the gates, in id order: who ends such a job just now has done so then."""
    mine = select(gates.c.lane_id).where(gates.c.id == func.any(bindparam("gates", type_=ARRAY(BigInteger))))
    return (
        select(jobs.c.id)
        .where(jobs.c.lane_id.in_(mine), jobs.c.state == word(S.RESERVED))
        .order_by(jobs.c.id)
        .with_for_update(key_share=True)
    )


@cache
def known_stages() -> Select[Any]:
    return (
        select(stages.c.name, stages.c.ordinal, stages.c.state, stages.c.width, stages.c.max_attempts)
        .where(stages.c.site_id == SITE)
        .order_by(stages.c.ordinal)
    )


@cache
def known_topics() -> Select[Any]:
    """What is planned already: ``(slug, id, site, path, lane, position, input_hash, made_from, busy)``.

    ``busy``: its newest pass is unfinished.
    """
    unfinished = exists().where(jobs.c.topic_id == topics.c.id, not_over(jobs))
    return (
        select(
            topics.c.slug,
            topics.c.id,
            sites.c.slug.label("site"),
            topics.c.path,
            lanes.c.name.label("lane"),
            topics.c.position,
            topics.c.input_hash,
            topics.c.made_from,
            unfinished.label("busy"),
        )
        .select_from(topics.join(lanes, lanes.c.id == topics.c.lane_id).join(sites, sites.c.id == topics.c.site_id))
        .where(topics.c.site_id == SITE)
    )


@cache
def add_topics() -> Any:
    """Insert the topics in ``topics``, each lane's in the order given, at positions from the lane's counter.

    Returns ``(id, slug)``.
    """
    new = table(
        "topics", n=Integer, lane=Text, slug=Text, path=Text, title=Text, type=Text, brief=JSONB, input_hash=Text
    )
    place = func.row_number().over(partition_by=lanes.c.id, order_by=new.c.n)
    rows = (
        select(
            SITE,
            lanes.c.id,
            (lanes.c.next_position + place - ONE).label("position"),
            new.c.slug,
            new.c.path,
            new.c.title,
            new.c.type,
            new.c.brief,
            new.c.input_hash,
        )
        .select_from(new.join(lanes, and_(lanes.c.site_id == SITE, lanes.c.name == new.c.lane)))
        .order_by(new.c.n)
    )
    return (
        insert(topics)
        .from_select(["site_id", "lane_id", "position", "slug", "path", "title", "type", "brief", "input_hash"], rows)
        .returning(topics.c.id, topics.c.slug)
    )


@cache
def count_positions() -> Any:
    """Move the counter of the lanes ``names``, which are locked, behind their last topics."""
    highest = select(func.max(topics.c.position) + ONE).where(topics.c.lane_id == lanes.c.id).scalar_subquery()
    named = lanes.c.name == func.any(bindparam("p_names", type_=ARRAY(Text)))
    return (
        update(lanes)
        .where(lanes.c.site_id == SITE, named, highest > lanes.c.next_position)
        .values(next_position=highest)
    )


@cache
def change_topics() -> ReturningUpdate[Any]:
    """Write what the file says now into the topics in ``changes``; returns ``(id, slug)``.

    ``again``: the pass is over, so the number goes up and a new pass follows.
    """
    new = table("changes", id=BigInteger, title=Text, type=Text, brief=JSONB, input_hash=Text, again=Integer)
    return (
        update(topics)
        .where(topics.c.id == new.c.id)
        .values(
            title=new.c.title,
            type=new.c.type,
            brief=new.c.brief,
            input_hash=new.c.input_hash,
            **{"pass": topics.c["pass"] + new.c.again},
        )
        .returning(topics.c.id, topics.c.slug)
    )


@cache
def texts_of() -> Select[Any]:
    """Of the topics ``p_slugs``: ``(slug, id, content_hash)``, the last of the current revision."""
    return (
        select(topics.c.slug, topics.c.id, revisions.c.content_hash)
        .select_from(topics.outerjoin(revisions, revisions.c.id == topics.c.revision_id))
        .where(topics.c.site_id == SITE, topics.c.slug == func.any(bindparam("p_slugs", type_=ARRAY(Text))))
    )


@cache
def lock_early() -> Select[int]:
    """Lock the unfinished passes of the topics ``p_topic_ids`` that nobody holds and that are not beyond the site's
    second stage; returns their topics: a new text of these is still to be looked at."""
    early = (
        select(stages.c.name)
        .where(stages.c.site_id == SITE, stages.c.state != word("retired"))
        .order_by(stages.c.ordinal)
        .limit(literal_column("2", Integer))
    )
    ids = func.any(bindparam("p_topic_ids", type_=ARRAY(BigInteger)))
    return (
        select(jobs.c.topic_id)
        .where(jobs.c.topic_id == ids, not_over(jobs), jobs.c.state != word(S.RESERVED), jobs.c.stage.in_(early))
        .order_by(jobs.c.id)
        .with_for_update(key_share=True)
    )


@cache
def made() -> Update:
    """Note of the topics ``p_topic_ids`` that their passes are made from what the file says now."""
    ids = func.any(bindparam("p_topic_ids", type_=ARRAY(BigInteger)))
    return update(topics).where(topics.c.id == ids).values(made_from=topics.c.input_hash)


@cache
def add_jobs(clock: Clock, *, behind: bool = False) -> ReturningInsert[Any]:
    """Insert a pass for each topic in ``ids``, at the site's first stage by the rule of arrival; returns ids.

    ``behind``: at the second, if there is one, as if released from all before. A topic that was once released takes no
    second turn anywhere. The gates of these stages are locked.
    """
    ids = table("ids", id=BigInteger)
    first, gate, later = stages.alias("first"), gates.alias("gate"), stages.alias("later")
    start: ColumnElement[int] = (
        select(func.min(later.c.ordinal))
        .where(later.c.site_id == SITE, later.c.state != word("retired"))
        .scalar_subquery()
    )
    released_from: ColumnElement[int] = NEVER_CLEARED
    if behind:
        following, before = stages.alias("following"), stages.alias("before")
        second = select(func.min(following.c.ordinal)).where(
            following.c.site_id == SITE, following.c.state != word("retired"), following.c.ordinal > start
        )
        start = func.coalesce(second.scalar_subquery(), start)
        passed = select(func.max(before.c.ordinal)).where(before.c.site_id == SITE, before.c.ordinal < first.c.ordinal)
        released_from = func.coalesce(passed.correlate(first).scalar_subquery(), NEVER_CLEARED)
    cleared = case((topics.c.released, ALL_CLEARED), else_=released_from)
    at = arrive(gate, topics.c.position, cleared)
    rows = (
        select(
            topics.c.site_id,
            topics.c.lane_id,
            topics.c.id,
            topics.c.position,
            topics.c["pass"],
            first.c.name,
            cleared,
            at.state,
            at.gate_id,
            permitted(topics, first),
            clock.stored(),
        )
        .select_from(
            topics.join(ids, ids.c.id == topics.c.id)
            .join(first, and_(first.c.site_id == topics.c.site_id, first.c.ordinal == start))
            .outerjoin(gate, and_(gate.c.lane_id == topics.c.lane_id, gate.c.stage == first.c.name))
        )
        .order_by(topics.c.lane_id, topics.c.position)
    )
    columns = [
        "site_id",
        "lane_id",
        "topic_id",
        "position",
        "pass",
        "stage",
        "cleared",
        "state",
        "gate_id",
        "max_attempts",
        "run_at",
    ]
    return insert(jobs).from_select(columns, rows).returning(jobs.c.id)
