"""Staged interleavings: actors on connections of their own, stopped before or after a statement that the test names.

A stop is a fact that can be waited for, and so is a lock wait, which the server tells (``pg_blocking_pids``). No sleep
decides anything: every wait has a deadline, and a race that did not happen fails the test.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from sqlalchemy import Connection, Engine, Executable, event, text

from pipeline.build import Services, services
from pipeline.clock import DatabaseClock
from pipeline.db import make_engine, sqlstate

T = TypeVar("T")

SCHEMA = "pipeline"
CLOCK = DatabaseClock()  # equal to the services' own, so that the statements are the very same objects
DEADLINE = 20.0
PAUSE = 0.002  # between two looks at the server

BEFORE, AFTER = "before", "after"


class Missed(AssertionError):
    """The interleaving that a test is about did not happen."""


class Stop:
    """A place where an actor stands still, once, until told to go on."""

    def __init__(self, what: str, nth: int) -> None:
        self.what = what
        self._left = nth
        self._reached = threading.Event()
        self._go = threading.Event()

    def _meet(self) -> None:
        """The actor comes by."""
        self._left -= 1
        if self._left == 0:
            self._reached.set()
            if not self._go.wait(DEADLINE):
                raise Missed(f"nobody let the actor go on from {self.what}")

    def reached(self) -> None:
        """Return once the actor stands here."""
        if not self._reached.wait(DEADLINE):
            raise Missed(f"the actor never came to {self.what}")

    def go(self) -> None:
        self._go.set()

    @property
    def stands(self) -> bool:
        """The actor is here, and was not told to go on."""
        return self._reached.is_set() and not self._go.is_set()


class Act(Generic[T]):
    """Something that an actor does in a thread of its own."""

    def __init__(self, name: str, body: Callable[[], T]) -> None:
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._body = body
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._body()
        except BaseException as error:
            self._error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> T:
        """What it answered, or the exception that it ended with."""
        self._thread.join(DEADLINE)
        if self._thread.is_alive():
            raise Missed(f"{self._thread.name} did not end")
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def error(self) -> BaseException:
        """The exception that it ended with."""
        try:
            answer = self.result()
        except BaseException as error:
            return error
        raise Missed(f"{self._thread.name} ended well: {answer!r}")


@cache
def _worded(statement: Executable | None) -> str:
    """How a stop is told; to compile a statement takes longer than to run it."""
    return "commit" if statement is None else " ".join(str(statement).split())[:60]


@dataclass(slots=True)
class _Watch:
    when: str
    statement: Executable | None  # None: the commit
    stop: Stop


@dataclass(slots=True)
class Actor:
    """One session with services of its own over a single connection."""

    name: str
    engine: Engine
    services: Services
    pid: int = 0
    sqlstates: list[str | None] = field(default_factory=list)  # of everything that the server refused
    _watches: list[_Watch] = field(default_factory=list)

    def before(self, statement: Executable, *, nth: int = 1) -> Stop:
        """A stop before the ``nth`` run of this very statement object."""
        return self._watch(BEFORE, statement, nth)

    def after(self, statement: Executable, *, nth: int = 1) -> Stop:
        return self._watch(AFTER, statement, nth)

    def before_commit(self, *, nth: int = 1) -> Stop:
        return self._watch(BEFORE, None, nth)

    def _watch(self, when: str, statement: Executable | None, nth: int) -> Stop:
        stop = Stop(f"{when} {_worded(statement)!r} of {self.name}", nth)
        self._watches.append(_Watch(when, statement, stop))
        return stop

    def anew(self) -> None:
        """Forget all stops, and what the server refused."""
        self._watches.clear()
        self.sqlstates.clear()

    def does(self, body: Callable[[Services], T]) -> Act[T]:
        """Begin ``body`` with this actor's services in a thread."""
        return Act(self.name, lambda: body(self.services))

    def _comes_to(self, when: str, statement: Executable | None) -> None:
        for watch in self._watches:
            if watch.when == when and watch.statement is statement:
                watch.stop._meet()


def wait_until_blocked(observer: Engine, pid: int, *, by: int) -> None:
    """Return when the server says that backend ``pid`` waits for a lock which ``by`` has."""
    deadline = time.monotonic() + DEADLINE
    while True:
        with observer.connect() as connection:
            blockers = connection.execute(text("SELECT pg_blocking_pids(:pid)"), {"pid": pid}).scalar_one()
        if by in blockers:
            return
        if time.monotonic() > deadline:
            raise Missed(f"backend {pid} was never blocked by {by}")
        time.sleep(PAUSE)


@cache
def _hire(url: str, name: str) -> Actor:
    """An actor over an engine that lasts for the whole run: to compile all statements takes longer than any race."""
    engine = make_engine(url, schema=SCHEMA, connections=1, name=name)
    actor = Actor(name, engine, services(engine))

    @event.listens_for(engine, "before_cursor_execute")
    def _before(cn: Connection, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> None:
        if (statement := getattr(context, "invoked_statement", None)) is not None:
            actor._comes_to(BEFORE, statement)

    @event.listens_for(engine, "after_cursor_execute")
    def _after(cn: Connection, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> None:
        if (statement := getattr(context, "invoked_statement", None)) is not None:
            actor._comes_to(AFTER, statement)

    @event.listens_for(engine, "commit")
    def _commit(cn: Connection) -> None:
        actor._comes_to(BEFORE, None)

    @event.listens_for(engine, "handle_error")
    def _error(context: Any) -> None:
        actor.sqlstates.append(sqlstate(context.sqlalchemy_exception))

    return actor


class Play:
    """The actors of one test, and an observer that asks the server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._actors: list[Actor] = []
        self._observer = make_engine(url, schema=SCHEMA, connections=1, name="observer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for actor in self._actors:
            for watch in actor._watches:
                watch.stop.go()  # nobody is left standing after a failure
            actor._watches.clear()
            actor.sqlstates.clear()
            actor.engine.dispose()
        self._observer.dispose()

    def actor(self, name: str) -> Actor:
        actor = _hire(self.url, name)
        with actor.engine.connect() as connection:
            actor.pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        self._actors.append(actor)
        return actor

    def wait_until_blocked(self, waiter: Actor, holder: Actor) -> None:
        """Return when the server says that ``waiter`` waits for a lock which ``holder`` has."""
        wait_until_blocked(self._observer, waiter.pid, by=holder.pid)

    def wait_until_waiting(self, waiter: Actor, kind: str) -> None:
        """Return when the server says that ``waiter`` waits for a lock of this kind (``pg_locks.locktype``)."""
        deadline = time.monotonic() + DEADLINE
        asked = text("SELECT count(*) FROM pg_locks WHERE pid = :pid AND locktype = :kind AND NOT granted")
        while True:
            with self._observer.connect() as connection:
                if connection.execute(asked, {"pid": waiter.pid, "kind": kind}).scalar_one():
                    return
            if time.monotonic() > deadline:
                raise Missed(f"{waiter.name} never waited for a lock of kind {kind}")
            time.sleep(PAUSE)


DOOR = 4711  # the advisory lock


class Door:
    """Shut, it holds an actor between the snapshot of a statement and the locks on its rows."""

    def __init__(self, keeper: Connection) -> None:
        self._keeper = keeper
        self._shut = False
        self.pid: int = keeper.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()

    def shut(self) -> None:
        self._ask(f"SELECT pg_advisory_lock({DOOR})")
        self._shut = True

    def open(self) -> None:
        if self._shut:
            self._ask(f"SELECT pg_advisory_unlock({DOOR})")
            self._shut = False

    def _ask(self, statement: str) -> None:
        self._keeper.exec_driver_sql(statement)
        self._keeper.commit()


@contextmanager
def door_to_jobs(owner_url: str, actor: Actor) -> Iterator[Door]:
    """A door, open at first, through which the actor's statements come to the rows of ``jobs``.

    A row-level policy calls a function for each row that is read; for this actor it waits for an advisory lock. The
    server's own order of snapshot, scan and lock is not touched.
    """
    engine = make_engine(owner_url, schema=SCHEMA, connections=1, name="door keeper")
    lay = [
        f"CREATE FUNCTION {SCHEMA}.come_by() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN"
        f" IF current_setting('application_name') = '{actor.name}' THEN"
        f" PERFORM pg_advisory_lock_shared({DOOR}); PERFORM pg_advisory_unlock_shared({DOOR}); END IF;"
        " RETURN true; END $$",
        f"CREATE POLICY come_by ON {SCHEMA}.jobs USING ({SCHEMA}.come_by()) WITH CHECK (true)",
        f"ALTER TABLE {SCHEMA}.jobs ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {SCHEMA}.jobs FORCE ROW LEVEL SECURITY",
    ]
    lift = [
        f"ALTER TABLE {SCHEMA}.jobs NO FORCE ROW LEVEL SECURITY",
        f"ALTER TABLE {SCHEMA}.jobs DISABLE ROW LEVEL SECURITY",
        f"DROP POLICY come_by ON {SCHEMA}.jobs",
        f"DROP FUNCTION {SCHEMA}.come_by()",
    ]
    try:
        with engine.connect() as keeper:
            for statement in lay:
                keeper.exec_driver_sql(statement)
            keeper.commit()
            door = Door(keeper)
            try:
                yield door
            finally:
                door.open()
                for statement in lift:
                    keeper.exec_driver_sql(statement)
                keeper.commit()
    finally:
        engine.dispose()
