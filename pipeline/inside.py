"""Planning from inside an application: topics that exist if and only if its own transaction commits; a door.

Speaks through the connection that it is given, whatever that is: no commit, no rollback but to its own savepoint, no
setting touched, nothing taken from the caller's search_path, row factories or JSON codecs, no ORM flush.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from sqlalchemy import Connection, Executable, TextClause
from sqlalchemy.dialects.postgresql import psycopg as dialect
from sqlalchemy.orm import Session, scoped_session

from pipeline.errors import UsageError
from pipeline.service.append import PlannedTopic, Steps, appending
from pipeline.service.payload import Topic
from pipeline.sql import append

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_DIALECT = dialect.dialect()  # type: ignore[no-untyped-call]

Values = dict[str, Any]


def plan(
    connection: "Session | scoped_session[Session] | Connection | psycopg.Connection[Any]",
    site: str,
    topics: Iterable[Topic],
    schema: str = "pipeline",
    wake: bool = False,
) -> list[PlannedTopic]:
    """Plan topics inside the caller's transaction; returns one answer for each, in their order.

    They go to the ends of their lanes, which stay locked until the caller commits, so commit soon. Whatever is planned
    already with the same content is answered as it is (``new`` False), so a call may be repeated. A lane that is
    missing is made; in a paused one topics wait. Nothing is promoted: at a limited first stage that is upkeep's.
    Work begins within a poll. With ``wake`` idle workers are told by NOTIFY, with the commit, and it begins at once: at
    the price that all transactions that notify commit one after another, that none can be prepared for a commit in two
    phases, and that the commit fails when the server's queue of notifications is full.

    Raises Conflict, Refused, NotFound, UsageError: then nothing was planned, and the caller's transaction goes on. In
    REPEATABLE READ or SERIALIZABLE the server may refuse with SQLSTATE 40001 what another planned meanwhile, and two
    calls in one transaction may deadlock with another's (40P01): the caller repeats its whole transaction, as always.

    .. code-block:: python

        with Session(engine) as session, session.begin():
            session.add(order)
            plan(session, "acme", [Topic("japan", "nara", "Nara travel guide", "city", {"name": "Nara"})])
    """
    _check_schema(schema)
    steps = appending(site, topics, schema if wake else None)
    if isinstance(connection, Session | scoped_session):
        connection = connection.connection()  # a Session's own execute() would flush first
    if isinstance(connection, Connection):
        _check_dialect(connection)
        return _drive(steps, _Core(connection, schema))
    if isinstance(connection, psycopg.Connection):
        return _drive(steps, _Plain(connection, schema))
    raise _unknown(connection, "plan", "aplan")


async def aplan(
    connection: "AsyncSession | async_scoped_session[AsyncSession] | AsyncConnection | psycopg.AsyncConnection[Any]",
    site: str,
    topics: Iterable[Topic],
    schema: str = "pipeline",
    wake: bool = False,
) -> list[PlannedTopic]:
    """As ``plan``, for connections that are awaited."""
    _check_schema(schema)
    if isinstance(connection, psycopg.AsyncConnection):
        return await _adrive(appending(site, topics, schema if wake else None), connection, schema)
    try:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    except ImportError:  # without greenlet there is no connection of that kind
        raise _unknown(connection, "aplan", "plan") from None
    if isinstance(connection, AsyncSession | async_scoped_session):
        connection = await connection.connection()
    if isinstance(connection, AsyncConnection):
        return await connection.run_sync(lambda inner: plan(inner, site, topics, schema, wake))
    raise _unknown(connection, "aplan", "plan")


class _Core:
    """Runs statements on a connection of SQLAlchemy."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._options = {"schema_translate_map": {None: schema}, "stream_results": False, "yield_per": None}

    def __call__(self, statement: Executable, values: Values) -> Sequence[Any]:
        found = self._connection.execute(statement, values, execution_options=self._options)
        return found.all() if found.returns_rows else ()


class _Plain:
    """Runs statements on a connection of psycopg, with a cursor that is not the caller's kind.

    Where the transaction has not begun, there is nothing to save: its beginning is where to go back to.
    """

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        self._schema = schema
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        self._begins = is_idle and not connection.autocommit and connection.info.pipeline_status == PipelineStatus.OFF

    def __call__(self, statement: Executable, values: Values) -> Sequence[Any]:
        if self._begins and isinstance(statement, TextClause):
            if statement is append.BACK:
                self._connection.rollback()
            return ()
        sql, fixed = _compiled(statement, self._schema)
        self._cursor.execute(sql, {**fixed, **values})
        result = self._cursor.pgresult
        return self._cursor.fetchall() if result is not None and result.nfields else ()


def _drive(steps: Steps, run: _Core | _Plain) -> list[PlannedTopic]:
    try:
        step = next(steps)
        while True:
            try:
                rows = run(*step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def _adrive(steps: Steps, connection: psycopg.AsyncConnection[Any], schema: str) -> list[PlannedTopic]:
    try:
        step = next(steps)
        while True:
            try:
                sql, fixed = _compiled(step[0], schema)
                async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
                    await cursor.execute(sql, {**fixed, **step[1]})
                    rows = await cursor.fetchall() if cursor.description else []
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def _compiled(statement: Executable, schema: str) -> tuple[bytes, Values]:
    """The statement as psycopg takes it, and the parameters that it brings along."""
    compiled = statement.compile(  # type: ignore[attr-defined]
        dialect=_DIALECT,
        schema_translate_map={None: schema},
        render_schema_translate=True,
    )
    return str(compiled).encode(), {k: v for k, v in compiled.params.items() if not k.startswith("p_")}


def _check_schema(schema: str) -> None:
    if not isinstance(schema, str) or not SCHEMA.fullmatch(schema):
        raise UsageError(f"{ascii(schema)[:60]} is no schema of ours; use lower-case letters, digits and '_'")


def _check_dialect(connection: Connection) -> None:
    if connection.dialect.name != "postgresql":
        raise UsageError(f"the connection is to {connection.dialect.name}; topics are planned in PostgreSQL")


def _unknown(connection: object, mine: str, other: str) -> UsageError:
    awaited = "awaited" if mine == "plan" else "not awaited"
    return UsageError(
        f"pipeline.{mine} cannot plan through a {type(connection).__name__}; give it a session or connection of"
        f" SQLAlchemy, or a connection of psycopg; one that is {awaited} goes to pipeline.{other}"
    )
