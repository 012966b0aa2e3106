"""Appending topics in a transaction that is not ours; floor 1.

The lanes' rows are locked, in id order, and held to the caller's commit, so that positions equal commit order; no gate
is locked and nothing promoted, which is upkeep's. All of a batch is bound as text or as arrays: how a caller's engine
writes and reads JSON is its own affair.

Why it notifies, which transactions of ours never do: nobody else could tell of a caller's commit. It costs callers who
commit much at the same time: eight of them came to 300 plans a second, and to 600 to 950 without.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    FromClause,
    Insert,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert as upsert
from sqlalchemy.sql.dml import ReturningInsert, Update
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, word
from pipeline.sql.ending import arrive, override
from pipeline.sql.plan import NEVER_CLEARED, SITE
from pipeline.sql.tables import gates, jobs, lanes, sites, stages, topics
from pipeline.states import JobState as S

SAVEPOINT = text("SAVEPOINT pipeline_plan")
BACK = text("ROLLBACK TO SAVEPOINT pipeline_plan")
RELEASE = text("RELEASE SAVEPOINT pipeline_plan")
BLANK = literal_column("' '", Text)


def _strings(name: str) -> Any:
    return cast(bindparam(name, type_=ARRAY(Text)), ARRAY(Text))


def _numbers(name: str) -> Any:
    return cast(bindparam(name, type_=ARRAY(BigInteger)), ARRAY(BigInteger))


def _given(**columns: type[TypeEngine[Any]]) -> TableValuedAlias:
    """The parameter ``p_topics``, a JSON text, as a table of the given columns."""
    return (
        func.json_to_recordset(cast(bindparam("p_topics", type_=Text), JSON()))
        .table_valued(*(column(key, kind()) for key, kind in columns.items()))
        .render_derived(name="given", with_types=True)
    )


def _first() -> Any:
    """The ordinal of the site's first stage."""
    return (
        select(func.min(stages.c.ordinal))
        .where(stages.c.site_id == SITE, stages.c.state != word("retired"))
        .scalar_subquery()
    )


@cache
def hold() -> Select[Any]:
    """The site ``p_slug`` with those of its lanes ``p_names`` that are there, which are locked, in id order.

    ``(id, paths, fingerprints, staged, lane_id, name, state, next_position)`` for each lane, or once with NULL for the
    lane; both settings are JSON texts. What else belongs to the lanes is to be read by the next statement: this one's
    snapshot is older than its locks.
    """
    slug = bindparam("p_slug", type_=Text)
    held = (
        select(lanes.c.id.label("lane_id"), lanes.c.name, lanes.c.state, lanes.c.next_position)
        .where(
            lanes.c.site_id == select(sites.c.id).where(sites.c.slug == slug).scalar_subquery(),
            lanes.c.name == func.any(_strings("p_names")),
        )
        .order_by(lanes.c.id)
        .with_for_update(key_share=True)
        .cte("held")
    )
    staged = exists().where(stages.c.site_id == sites.c.id, stages.c.state != word("retired"))
    return (
        select(
            sites.c.id,
            cast(sites.c.settings.op("->")("paths"), Text).label("paths"),
            cast(sites.c.settings.op("->")("fingerprints"), Text).label("fingerprints"),
            staged.label("staged"),
            *held.c,
        )
        .select_from(sites.outerjoin(held, true()))
        .where(sites.c.slug == slug)
    )


@cache
def missing() -> Select[str]:
    """Those of ``p_names`` that are no lanes of the site yet."""
    names = func.unnest(_strings("p_names")).table_valued("name").render_derived(name="names")
    there = exists().where(lanes.c.site_id == SITE, lanes.c.name == names.c.name)
    return select(names.c.name).where(~there)


@cache
def share_stages() -> Select[Any]:
    """Keep the site's stages as they are while a lane gets its gates."""
    return select(stages.c.name).where(stages.c.site_id == SITE).order_by(stages.c.ordinal).with_for_update(read=True)


@cache
def put_lanes() -> ReturningInsert[int]:
    """Make those of the lanes ``p_names`` that are missing, in the order of their names; returns their ids."""
    names = func.unnest(_strings("p_names")).table_valued("name").render_derived(name="names")
    missing = (
        select(SITE, names.c.name)
        # Looked for first: ON CONFLICT alone would wait for whoever moves such a lane just now.
        .where(~exists().where(lanes.c.site_id == SITE, lanes.c.name == names.c.name))
        .order_by(names.c.name)
    )
    return upsert(lanes).from_select(["site_id", "name"], missing).on_conflict_do_nothing().returning(lanes.c.id)


@cache
def put_gates() -> Any:
    """Make the gates of the new lanes ``p_lanes``: one at each limited stage."""
    wanted = (
        select(lanes.c.id, stages.c.name, stages.c.ordinal, stages.c.width)
        .select_from(lanes.join(stages, stages.c.site_id == lanes.c.site_id))
        .where(lanes.c.id == func.any(_numbers("p_lanes")), stages.c.width.is_not(None))
        .order_by(lanes.c.id, stages.c.ordinal)
    )
    return insert(gates).from_select(["lane_id", "stage", "ordinal", "width"], wanted)


@cache
def taken() -> Select[Any]:
    """``(slug, path)`` of topics of the site that have one of ``p_slugs`` or of ``p_paths``."""
    same = or_(topics.c.slug == func.any(_strings("p_slugs")), topics.c.path == func.any(_strings("p_paths")))
    return select(topics.c.slug, topics.c.path).where(topics.c.site_id == SITE, same)


@cache
def known() -> Select[Any]:
    """What is planned already of ``p_topics``: ``(slug, id, position, job_id, lane, title, type, brief)``.

    ``job_id`` is the newest pass; the last four say whether that is the same.
    """
    given = _given(lane=Text, slug=Text, title=Text, type=Text, brief=JSONB)
    return select(
        topics.c.slug,
        topics.c.id,
        topics.c.position,
        jobs.c.id.label("job_id"),
        (lanes.c.name == given.c.lane).label("lane"),
        (topics.c.title == given.c.title).label("title"),
        (topics.c.type == given.c.type).label("type"),
        (topics.c.brief == given.c.brief).label("brief"),
    ).select_from(
        given.join(topics, and_(topics.c.site_id == SITE, topics.c.slug == given.c.slug))
        .join(lanes, lanes.c.id == topics.c.lane_id)
        .join(jobs, and_(jobs.c.topic_id == topics.c.id, jobs.c["pass"] == topics.c["pass"]))
    )


def _same(given: FromClause, key: str) -> Select[Any]:
    """The topics of the site that have the ``key`` of one of the given."""
    there = (
        select(topics.c.id)
        .where(topics.c.site_id == SITE, topics.c[key] == given.c[key])
        # Each by itself and by the index: where much was planned since the table was last analyzed, all would be read.
        .limit(ONE)
        .correlate(given)
        .lateral("there")
    )
    return select(there.c.id).select_from(given.join(there, true()))


@cache
def add(clock: Clock) -> Select[Any]:
    """Insert ``p_topics`` with their first passes, and where ``p_counts`` move the counters of their lanes behind them;
    the lanes are locked. Nothing at all when a slug or a path of them is taken; a slug that another transaction takes
    just now is left out.

    Returns ``(topic_id, lane_id, position, id)``. Idle workers are told by ``p_channel``, if there is one: once, and
    when the transaction commits.
    """
    rows = _given(
        lane_id=BigInteger, position=BigInteger, slug=Text, path=Text, title=Text, type=Text, brief=JSONB,
        input_hash=Text,
    )  # fmt: skip
    given = select(*rows.c).cte("given")
    free = [~exists(_same(given, key).correlate(None)) for key in ("slug", "path")]
    new = (
        upsert(topics)
        .from_select(["site_id", *given.c.keys()], select(SITE, *given.c).where(*free))
        .on_conflict_do_nothing(index_elements=[topics.c.site_id, topics.c.slug])
        .returning(topics.c.id, topics.c.lane_id, topics.c.position)
        .cte("new")
    )
    end = (
        select(new.c.lane_id, (func.max(new.c.position) + ONE).label("next"))
        .where(bindparam("p_counts", type_=Boolean))
        .group_by(new.c.lane_id)
        .subquery("end")
    )
    counted = update(lanes).where(lanes.c.id == end.c.lane_id).values(next_position=end.c.next).cte("counted")
    made = (
        _first_passes(new, new.join(lanes, lanes.c.id == new.c.lane_id), clock)
        .returning(
            *(jobs.c[key] for key in ("topic_id", "lane_id", "position", "id", "site_id", "stage", "priority")),
            jobs.c.state,
        )
        .cte("made")
    )
    channel = bindparam("p_channel", type_=Text)
    due = (
        select(func.concat_ws(BLANK, made.c.site_id, made.c.stage, made.c.priority).label("word"))
        .where(made.c.state == word(S.PENDING), channel.is_not(None))
        .limit(ONE)
        .subquery("due")
    )
    told = select(func.count(func.pg_notify(channel, due.c.word)).label("told")).cte("told")
    return (
        select(made.c.topic_id, made.c.lane_id, made.c.position, made.c.id)
        .select_from(made.join(told, true()))
        .add_cte(counted)
    )


@cache
def add_jobs(clock: Clock) -> ReturningInsert[Any]:
    """Insert the first pass of each new topic: those of ``p_lanes`` that stand from ``p_first`` to ``p_last``.

    Returns ``(topic_id, lane_id, position, id)``. The lanes are locked.
    """
    given = (
        func.unnest(_numbers("p_lanes"), _numbers("p_first"), _numbers("p_last"))
        .table_valued(column("lane_id", BigInteger), column("first", BigInteger), column("last", BigInteger))
        .render_derived(name="given")
    )
    new = (
        select(topics.c.id, topics.c.lane_id, topics.c.position)
        .where(topics.c.lane_id == given.c.lane_id, topics.c.position.between(given.c.first, given.c.last))
        .order_by(topics.c.position)
        # Each lane by itself and by the index: nothing is known yet of what was just inserted, and the planner would
        # read all topics for it.
        .limit(given.c.last - given.c.first + ONE)
        .correlate(given)
        .lateral("new")
    )
    origin = given.join(lanes, lanes.c.id == given.c.lane_id).join(new, true())
    return _first_passes(new, origin, clock).returning(jobs.c.topic_id, jobs.c.lane_id, jobs.c.position, jobs.c.id)


def _first_passes(new: FromClause, origin: FromClause, clock: Clock) -> Insert:
    """Insert the first pass of each topic in ``new``, which ``origin`` joins with its lane.

    A job arrives by the rule; where its lane is not active it waits, since a pause flips what it finds, and no more.
    """
    first, gate = stages.alias("first"), gates.alias("gate")
    at = arrive(gate, new.c.position, NEVER_CLEARED)
    own = cast(override(lanes, first.c.name, "max_attempts"), Integer)
    values = {
        "site_id": SITE,
        "lane_id": new.c.lane_id,
        "topic_id": new.c.id,
        "position": new.c.position,
        "stage": first.c.name,
        "state": case((lanes.c.state != word("active"), word(S.WAITING)), else_=at.state),
        "gate_id": at.gate_id,
        "max_attempts": func.coalesce(own, first.c.max_attempts),
        "run_at": clock.stored(),
    }
    rows = (
        select(*values.values())
        .select_from(
            origin.join(first, and_(first.c.site_id == SITE, first.c.ordinal == _first())).outerjoin(
                gate, and_(gate.c.lane_id == lanes.c.id, gate.c.stage == first.c.name)
            )
        )
        .order_by(new.c.id)  # as they were given: who is planned first is due first
    )
    return insert(jobs).from_select(list(values), rows)


@cache
def count() -> Update:
    """Move the counters of ``p_lanes`` to ``p_next``.

    Rarely: each version of a lane's row is walked over by every later insert, which looks the lane up.
    """
    given = (
        func.unnest(_numbers("p_lanes"), _numbers("p_next"))
        .table_valued(column("lane_id", BigInteger), column("next", BigInteger))
        .render_derived(name="given")
    )
    return update(lanes).where(lanes.c.id == given.c.lane_id).values(next_position=given.c.next)
