"""Who works: one row a worker process, for human eyes only; floor 1. Nobody's liveness is judged by these rows."""

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Float, Interval, Select, Text, bindparam, cast, delete, func, literal_column, select
from sqlalchemy.dialects.postgresql import JSONB, Insert, insert
from sqlalchemy.sql.dml import Delete

from pipeline.clock import Clock
from pipeline.sql.tables import workers

NAME = bindparam("p_name", type_=Text)


@cache
def see(clock: Clock) -> Insert:
    """Note that the worker ``name`` (process ``pid``) is at work, and on what: ``stages``."""
    new = insert(workers).values(
        name=NAME,
        pid=bindparam("p_pid", type_=BigInteger),
        stages=bindparam("p_stages", type_=JSONB),
        seen_at=clock.stored(),
    )
    return new.on_conflict_do_update(
        index_elements=[workers.c.name], set_={"seen_at": new.excluded.seen_at, "stages": new.excluded.stages}
    )


@cache
def forget(clock: Clock) -> Delete:
    """Delete those not seen for an hour: they ended without a word."""
    return delete(workers).where(workers.c.seen_at < clock.statement() - literal_column("interval '1 hour'", Interval))


@cache
def leave() -> Delete:
    return delete(workers).where(workers.c.name == NAME)


@cache
def listing(clock: Clock) -> Select[Any]:
    """``(name, pid, started_at, seen_at, seconds, stages)`` of all, ``seconds`` since each was seen last."""
    seconds = cast(func.extract("epoch", clock.statement() - workers.c.seen_at), Float)
    return select(
        workers.c.name,
        workers.c.pid,
        workers.c.started_at,
        workers.c.seen_at,
        seconds.label("seconds"),
        workers.c.stages,
    ).order_by(workers.c.started_at, workers.c.name)
