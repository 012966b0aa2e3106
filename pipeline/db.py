"""Engines for the work: READ COMMITTED whatever the role's default, time-outs, one schema; floor 1.

No session state is kept: isolation comes with BEGIN, time-outs are SET LOCAL, the schema is translated into each
statement. So a pooler in transaction mode may stand in between.

Why statements are prepared, but not behind a pooler: much of what our statements cost is their planning. Measured over
claim, renewal and acknowledgement on a direct connection, preparing made 1.4 times as many jobs a second in batches of
8, and 1.6 to 1.9 times as many one by one. A pooler gives the next transaction to a server session that does not know
the statement. It gives itself away by the process number, which it makes up: a direct connection tells the server's.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import psycopg
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from pipeline.errors import DatabaseError, UsageError

OLDEST_SERVER = 15
PREPARE_AFTER = 5  # runs of a statement on one connection
LOCKED = "55P03"  # a lock was waited for too long
PATIENCE = 60.0  # seconds that a statement may take
AT_WORK = 20.0  # the same where a worker claims and acknowledges: it should soon know that nobody answers
SILENCE = 5.0  # seconds beyond it: a server that is there has ended the statement by then

Prepare = Literal["auto", "always", "never"]

READ_ONLY = "postgresql_readonly"  # SQLAlchemy's name for it, among a connection's options
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# One round trip with it. synchronous_commit is an assumption of every promise, so it is not left to the role's default;
# nor are the styles of dates and intervals, of which the driver understands one each.
LIMITS = (
    "SET LOCAL statement_timeout = '{patience:g}s'; SET LOCAL lock_timeout = '{lock:g}s';"
    " SET LOCAL idle_in_transaction_session_timeout = '20s'; SET LOCAL synchronous_commit = on;"
    " SET LOCAL datestyle = 'ISO'; SET LOCAL intervalstyle = 'postgres'"
)
# Words of ours are literals, so that no value is worth a plan of its own; each cost more than what it was made for.
ONE_PLAN = "; SET LOCAL plan_cache_mode = force_generic_plan"


_decoder = json.JSONDecoder()


def _loads(found: bytes | str) -> Any:
    """What jsonb holds: always UTF-8 and without blanks around it, which the library's own way would look for."""
    return _decoder.raw_decode(found if isinstance(found, str) else found.decode())[0]


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


def make_engine(
    url: str | URL,
    *,
    schema: str,
    connections: int,
    name: str,
    prepare: Prepare = "auto",
    patience: float = PATIENCE,
    steady: bool = False,
    wakes: bool = False,
    listen: Callable[[], None] | None = None,
) -> Engine:
    """An engine of at most ``connections`` connections, each shown to the server as ``name``.

    ``prepare``: whether statements are prepared; ``auto``: on direct connections. ``patience``: seconds that a
    statement may take; a server that says nothing is given up ``SILENCE`` seconds later. ``steady``: the same is said
    again and again, so statements are prepared, and planned, once. ``wakes``: services over it
    tell idle workers of new work; ``listen`` is called when others told, on direct connections.
    """
    parsed = parse_url(url) if isinstance(url, str) else url
    engine = create_engine(
        parsed,
        isolation_level="AUTOCOMMIT",  # of the driver, which would begin by itself; we do, in fewer words
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        pool_pre_ping=False,
        pool_timeout=30,
        json_deserializer=_loads,
        execution_options={"schema_translate_map": {None: schema}, "wakes": schema if wakes else None},
        connect_args={
            "client_encoding": "utf8",
            "connect_timeout": 10,
            "application_name": name[:63],
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
            "prepare_threshold": None if prepare == "never" else 1 if steady else PREPARE_AFTER,
        },
    )

    limits = LIMITS.format(patience=patience, lock=min(10.0, patience / 2))
    if steady:
        limits += ONE_PLAN
    _engines.add(engine)

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: object, record: object, words: Any, options: Any) -> Any:
        connection = _Watched.connect(*words, **options)
        connection.patience = patience
        return connection

    if prepare == "auto" or listen is not None:

        @event.listens_for(engine, "connect")
        def _look(connection: Any, record: object) -> None:
            pooled = is_pooled(connection)
            if pooled and prepare == "auto":
                connection.prepare_threshold = None
            if listen is not None and not pooled:
                own = connection.info.backend_pid
                connection.add_notify_handler(lambda notice: None if notice.pid == own else listen())
                connection.execute(f"LISTEN {quoted(schema)}")
                connection.commit()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        asked = connection.get_execution_options()
        begin = "" if "isolation_level" in asked else BEGIN + (" READ ONLY; " if asked.get(READ_ONLY) else "; ")
        anew = "; DISCARD PLANS" if steady and cast(_Watched, connection.connection.dbapi_connection).outgrown() else ""
        connection.exec_driver_sql(begin + limits + anew)

    return engine


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _forget() -> None:
    """In a forked process: what is open belongs to the parent, and so does the thread."""
    _Watched._lock, _Watched._thread = threading.Lock(), None
    _Watched._waiting.clear()
    for engine in list(_engines):
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget)


class _Watched(psycopg.Connection[Any]):
    """A connection that is cut when the server says nothing in the middle of a statement, ``SILENCE`` seconds after it
    should have ended that itself.

    Whatever lies between may keep a socket open for ever, and answer keepalives in the server's stead.
    """

    _lock: ClassVar = threading.Lock()
    _waiting: ClassVar[dict[int, float]] = {}  # by file descriptor; until when
    _thread: ClassVar[threading.Thread | None] = None
    patience = PATIENCE
    _born = 0.0
    _outgrown_at = 0.0

    def outgrown(self) -> bool:
        """Whether what was planned on it is out of date by now: each time that it is twice as old as the last time.

        A plan that was made while a table was empty walks all of it once it is full, and is kept until somebody
        analyzes the table: that may be a minute away, in which a run fills it.
        """
        now = time.monotonic()
        if self._born == 0.0:
            self._born, self._outgrown_at = now, now + 1
        if now < self._outgrown_at:
            return False
        self._outgrown_at = now + (now - self._born)
        return True

    def wait(self, *words: Any, **options: Any) -> Any:
        number = self.pgconn.socket
        with self._lock:
            self._waiting[number] = time.monotonic() + self.patience + SILENCE
            if _Watched._thread is None:
                _Watched._thread = threading.Thread(target=_cut_the_silent, name="silence", daemon=True)
                _Watched._thread.start()
        try:
            return super().wait(*words, **options)
        finally:
            with self._lock:
                self._waiting.pop(number, None)


def _cut_the_silent() -> None:
    while True:
        time.sleep(min(1.0, SILENCE / 4))
        with _Watched._lock:  # held, so that no number here can be another's by now
            for number, until in _Watched._waiting.items():
                if time.monotonic() > until:
                    with socket.socket(fileno=os.dup(number)) as end, contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)


def is_pooled(connection: Any) -> bool:
    """Whether a pooler stands between the driver's connection, idle, and the server."""
    before, connection.autocommit = connection.autocommit, True
    try:
        return bool(connection.execute("SELECT pg_backend_pid()").fetchone()[0] != connection.info.backend_pid)
    finally:
        if not connection.closed:
            connection.autocommit = before


def refusal(error: BaseException, *, schema: str, role: str | None) -> str:
    """What the server refused, in one line, and what to do about it where that is known."""
    told = reason(error)
    match sqlstate(error):
        case "26000" | "42P05":
            return f"{told}; a pooler mixes our prepared statements up: set PIPELINE_PREPARE=never"
        case "25006":
            return f"{told}; it takes no writes now: default_transaction_read_only is on, or it became a standby"
        case "42501":
            if (right := _right(told)) is not None:
                named = quoted(role) if role else "this role"
                return f"{told}; let the schema's owner run: GRANT {right.format(quoted(schema))} TO {named}"
    return told


def _right(told: str) -> str | None:
    for thing, right in (
        ("schema", "USAGE ON SCHEMA {}"),
        ("table", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {}"),
        ("sequence", "USAGE ON ALL SEQUENCES IN SCHEMA {}"),
    ):
        if f" {thing} " in told:
            return right
    return None


def quoted(name: str) -> str:
    """The name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def reason(error: BaseException) -> str:
    """One line of what the server or driver said, without parameters or URL."""
    original: Any = getattr(error, "orig", None) or error
    text = str(original).strip().splitlines()
    return text[0] if text else type(original).__name__


def is_passing(error: BaseException) -> bool:
    """Whether time may help: a server that is away or full, not a statement that it cannot understand."""
    state = sqlstate(error)
    return not isinstance(error, DBAPIError) or state is None or state[:2] not in ("22", "23", "26", "42")


def is_away(error: BaseException) -> bool:
    """Whether the connection was lost, or none was to be had: nothing was said against what was asked."""
    state = sqlstate(error)
    lost = isinstance(error, OperationalError) and state is None
    return lost or bool(getattr(error, "connection_invalidated", False)) or (state or "")[:4] == "57P0"


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
