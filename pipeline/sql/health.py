"""What ``doctor`` asks of the server around the tables, and of each site; floor 1.

The questions about the server are plain SQL over the catalogue and take what a plain role may see.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    CompoundSelect,
    Float,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    func,
    literal_column,
    select,
    text,
    union_all,
)

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, SECOND, not_over, word
from pipeline.sql.tables import events, gates, jobs, lanes, stages
from pipeline.states import HALTING, JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)

SERVER = text(
    """
    SELECT current_setting('server_version_num')::int / 10000 AS major,
           split_part(current_setting('server_version'), ' ', 1) AS version,
           pg_is_in_recovery() AS standby,
           current_setting('fsync') = 'on' AS fsync,
           current_setting('full_page_writes') = 'on' AS full_page_writes,
           current_setting('synchronous_commit') IN ('on', 'remote_apply') AS synchronous_commit,
           current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS autovacuum,
           current_setting('default_transaction_isolation') AS isolation,
           current_setting('transaction_isolation') AS ours,
           current_setting('default_transaction_read_only') = 'on' AS read_only,
           current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,
           (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL) AS used,
           (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS role_most,
           (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user) AS role_used,
           (SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND state IS NULL AND backend_type IS NULL) AS hidden
    """
)

NOW = text("SELECT clock_timestamp()")

SNAPSHOTS = text(
    """
    SELECT pid, coalesce(application_name, '') AS application, usename AS role, age(backend_xmin) AS transactions,
           extract(epoch FROM clock_timestamp() - coalesce(xact_start, query_start))::float8 AS seconds
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND (datname = current_database() OR datid IS NULL)
    ORDER BY age(backend_xmin) DESC, seconds DESC NULLS LAST LIMIT 5
    """
)

PREPARED = text(
    """
    SELECT gid, owner AS role, extract(epoch FROM clock_timestamp() - prepared)::float8 AS seconds
    FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 5
    """
)

SLOTS = text(
    """
    SELECT slot_name, active, greatest(age(xmin), age(catalog_xmin)) AS transactions, wal_status
    FROM pg_replication_slots
    WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL OR NOT active
    ORDER BY greatest(age(xmin), age(catalog_xmin)) DESC NULLS LAST LIMIT 5
    """
)

TABLES = text(
    """
    SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead,
           extract(epoch FROM clock_timestamp() - greatest(last_vacuum, last_autovacuum))::float8 AS seconds
    FROM pg_stat_all_tables WHERE schemaname = :schema AND relname = ANY(:names) ORDER BY relname
    """
)

INDEXES = text(
    """
    SELECT c.relname AS name, t.relname AS table, i.indisunique AS law,
           EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid) AS being_built
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
    JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = :schema AND NOT (i.indisvalid AND i.indisready AND i.indislive) ORDER BY c.relname
    """
)


@cache
def standing(clock: Clock) -> Select[Any]:
    """A site's unfinished jobs, counted as a doctor would: one row. Grows with what is unfinished alone."""
    now = clock.statement()
    count = func.count()

    def seconds(value: Any) -> Any:
        return cast(func.extract("epoch", value), Float)

    in_lane = select(lanes.c.state).where(lanes.c.id == jobs.c.lane_id).scalar_subquery()
    at_stage = select(stages.c.state).where(stages.c.site_id == jobs.c.site_id, stages.c.name == jobs.c.stage)
    goes_on = and_(
        func.coalesce(in_lane, word("active")) == word("active"),
        func.coalesce(at_stage.scalar_subquery(), word("active")) != word("paused"),
    )
    due = and_(jobs.c.state == word(S.PENDING), jobs.c.run_at <= now, goes_on)
    future = and_(jobs.c.state == word(S.PENDING), jobs.c.run_at > now)
    running = jobs.c.state == word(S.RESERVED)
    live = and_(running, jobs.c.lease_expires_at >= now)
    over = and_(running, jobs.c.lease_expires_at < now - literal_column("15") * SECOND)
    return select(
        count.label("unfinished"),
        count.filter(live).label("running"),
        count.filter(over).label("over"),
        seconds(func.max(now - jobs.c.lease_expires_at).filter(over)).label("over_seconds"),
        count.filter(due).label("due"),
        seconds(func.max(now - jobs.c.run_at).filter(due)).label("due_seconds"),
        count.filter(future).label("later"),
        seconds(func.min(jobs.c.run_at - now).filter(future)).label("next_seconds"),
        count.filter(jobs.c.state == word(S.WAITING)).label("waiting"),
        count.filter(jobs.c.hold.is_not(None)).label("held"),
        count.filter(jobs.c.state.in_([word(s) for s in sorted(HALTING)])).label("halted"),
    ).where(jobs.c.site_id == SITE, not_over(jobs))


@cache
def halts() -> Select[Any]:
    """``(id, lane, stage, state, position, waiting)`` of jobs that need a person, the oldest first.

    ``waiting``: how many stand behind it at strict gates.
    """
    behind, gate = jobs.alias("behind"), gates.alias("gate")
    waiting = (
        select(func.count())
        .select_from(behind.join(gate, and_(gate.c.id == behind.c.gate_id, gate.c.width == ONE)))
        .where(
            behind.c.lane_id == jobs.c.lane_id, behind.c.position > jobs.c.position, behind.c.state == word(S.WAITING)
        )
        .scalar_subquery()
        .label("waiting")
    )
    return (
        select(jobs.c.id, lanes.c.name.label("lane"), jobs.c.stage, jobs.c.state, jobs.c.position, waiting)
        .select_from(jobs.outerjoin(lanes, lanes.c.id == jobs.c.lane_id))
        .where(jobs.c.site_id == SITE, jobs.c.state.in_([word(s) for s in sorted(HALTING)]))
        .order_by(jobs.c.id)
        .limit(bindparam("p_limit", type_=BigInteger))
    )


@cache
def resting() -> CompoundSelect[Any]:
    """``(kind, name, state)`` of lanes that are not active, and of stages that are paused, with something to do."""
    waits = and_(jobs.c.site_id == SITE, not_over(jobs), jobs.c.state.in_([word(S.WAITING), word(S.PENDING)]))
    lane = select(literal_column("'lane'", Text).label("kind"), lanes.c.name, lanes.c.state).where(
        lanes.c.site_id == SITE, lanes.c.state != word("active"), exists().where(jobs.c.lane_id == lanes.c.id, waits)
    )
    stage = select(literal_column("'stage'", Text), stages.c.name, stages.c.state).where(
        stages.c.site_id == SITE, stages.c.state == word("paused"), exists().where(jobs.c.stage == stages.c.name, waits)
    )
    return union_all(lane, stage).order_by("kind", "name")


@cache
def healed(clock: Clock) -> Select[int, Any]:
    """``(healed, last)``: promotions of the last week that upkeep had to mend. Reads all events."""
    return select(func.count().label("healed"), func.max(events.c.at).label("last")).where(
        events.c.site_id == SITE,
        events.c.verb == word("promote"),
        events.c.actor == bindparam("p_actor", type_=Text),
        events.c.at > clock.statement() - literal_column("604800") * SECOND,
    )
