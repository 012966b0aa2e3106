"""Engines for the work: READ COMMITTED whatever the role's default, time-outs, one schema; floor 1.

No session state is kept: isolation comes with BEGIN, time-outs are SET LOCAL, the schema is translated into each
statement. So a pooler in transaction mode may stand in between.
"""

import logging
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from pipeline.errors import DatabaseError, UsageError

OLDEST_SERVER = 15

# One round trip. synchronous_commit is an assumption of every promise, so it is not left to the role's default.
LIMITS = (
    "SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '10s';"
    " SET LOCAL idle_in_transaction_session_timeout = '60s'; SET LOCAL synchronous_commit = on"
)


def parse_url(text: str) -> URL:
    """The URL with our driver; UsageError when it is none or names another database. The message never shows it."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the second for a port that is no number: it may be part of a password
        url = None
    if url is None or "@" in (url.host or ""):
        raise UsageError(
            "the database URL cannot be read; use postgresql://user:password@host:5432/name,"
            " with @ : / in a password written as %40 %3A %2F"
        )
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise UsageError(f"the database URL names {url.get_backend_name()!r}; pipeline needs postgresql://...")
    return url.set(drivername="postgresql+psycopg")


def make_engine(url: str | URL, *, schema: str, connections: int, name: str) -> Engine:
    """An engine of at most ``connections`` connections, each shown to the server as ``name``."""
    parsed = parse_url(url) if isinstance(url, str) else url
    engine = create_engine(
        parsed,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        pool_pre_ping=False,
        pool_timeout=30,
        execution_options={"schema_translate_map": {None: schema}},
        connect_args={
            "connect_timeout": 10,
            "application_name": name[:63],
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        },
    )

    @event.listens_for(engine, "begin")
    def _limits(connection: Connection) -> None:
        connection.exec_driver_sql(LIMITS)

    return engine


def reason(error: BaseException) -> str:
    """One line of what the server or driver said, without parameters or URL."""
    original: Any = getattr(error, "orig", None) or error
    text = str(original).strip().splitlines()
    return text[0] if text else type(original).__name__


def is_passing(error: BaseException) -> bool:
    """Whether time may help: a server that is away or full, not a statement that it cannot understand."""
    state = sqlstate(error)
    return not isinstance(error, DBAPIError) or state is None or state[:2] not in ("22", "23", "26", "42")


def sqlstate(error: BaseException) -> str | None:
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def check_server(connection: Connection) -> None:
    """Raise DatabaseError when the server is too old or cannot be written to."""
    row = connection.exec_driver_sql(
        "SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery()"
    ).one()
    major, standby = row
    if major < OLDEST_SERVER:
        raise DatabaseError(f"the server is PostgreSQL {major}; pipeline needs {OLDEST_SERVER} or newer")
    if standby:
        raise DatabaseError("the server is a read-only standby; name the primary in PIPELINE_DATABASE_URL")


logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # a broken connection is told once, by us
