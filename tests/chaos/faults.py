"""The faults of a chaos run: a plan by seed, each fault done at its time, each witnessed or not counted.

A fault returns what was seen of it; None means that it did not bite, and it is tried again on another victim.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from pipeline.testing.database import SCHEMA
from tests.chaos.proxy import Proxy
from tests.chaos.scene import DATABASE, FAST, GRACE, IMMEDIATE, Database, Fleet, Member, state_of
from tests.chaos.work import LEASE

TRIES = 4
PATIENCE = 1.5
LEASE_SECONDS = LEASE.total_seconds()


@dataclass(frozen=True, slots=True)
class Planned:
    at: float  # seconds after the beginning
    kind: str


@dataclass(frozen=True, slots=True)
class Witnessed:
    """A fault that was done. ``pid`` of the worker that it was done to, if it was one."""

    kind: str
    began: float  # wall
    ended: float
    seen: str
    pid: int | None = None


QUICK: Mapping[str, int] = {
    "worker-kill": 5, "worker-term": 2, "pause-short": 4, "pause-long": 4,
    "session-end": 14, "statement-cancel": 8, "table-lock": 7, "deadlock": 4, "long-snapshot": 1,
    "server-immediate": 1, "server-fast": 1, "read-only": 1,
    "proxy-hold": 4, "proxy-swallow": 3, "proxy-reset": 10, "proxy-cut": 8, "commit-lost": 12,
}  # fmt: skip
"""How many of each, for the suite's minute."""

LONG: Mapping[str, int] = dict.fromkeys(
    ("server-immediate", "backend-crash", "server-fast", "read-only", "isolation", "connections"), 60,
) | dict.fromkeys(
    ("worker-kill", "worker-term", "pause-short", "pause-long", "proxy-swallow"), 150,
) | dict.fromkeys(
    ("session-end", "statement-cancel", "table-lock", "deadlock", "long-snapshot", "proxy-hold", "proxy-reset",
     "proxy-cut"), 230,
) | {"commit-lost": 300}  # fmt: skip
"""How many of each in an hour. Those of the first line stop everybody for about two seconds each."""


def plan(seed: int, seconds: float, counts: Mapping[str, int]) -> list[Planned]:
    """The faults in the order of their times, the same for the same seed, time and counts."""
    dice = random.Random(f"{seed}/faults")
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    dice.shuffle(kinds)
    step = seconds / max(len(kinds), 1)
    return [Planned(round((n + dice.random()) * step, 2), kind) for n, kind in enumerate(kinds)]


@dataclass(slots=True)
class Faults:
    """Does a plan."""

    database: Database
    fleet: Fleet
    proxies: Sequence[Proxy]  # of clients; those of workers are the fleet's
    dice: random.Random
    done: list[Witnessed] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    outages: list[tuple[float, float]] = field(default_factory=list)  # wall: nobody could work
    errors: list[str] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _alone: threading.RLock = field(default_factory=threading.RLock)  # of faults that stop the server for all

    def run(self, planned: Sequence[Planned]) -> None:
        """Do each at its time, beside one another; returns when all are over."""
        began = time.monotonic()
        for fault in planned:
            time.sleep(max(began + fault.at - time.monotonic(), 0))
            thread = threading.Thread(target=self._do, args=(fault.kind,), name=fault.kind, daemon=True)
            self._threads.append(thread)
            thread.start()
        for thread in self._threads:
            thread.join(timeout=120)
            if thread.is_alive():
                self.errors.append(f"fault {thread.name} does not end")

    def _do(self, kind: str) -> None:
        act: Callable[[], tuple[str, int | None] | None] = getattr(self, f"_{kind.replace('-', '_')}")
        for _ in range(TRIES):
            began = time.time()
            try:
                seen = act()
            except (psycopg.Error, OSError, TimeoutError):
                seen = None  # another fault was faster: a server that is away cannot be hurt
                time.sleep(0.3)
            except BaseException as error:
                self.errors.append(f"fault {kind}: {type(error).__name__}: {error}")
                return
            if seen is not None:
                self.done.append(Witnessed(kind, began, time.time(), seen[0], seen[1]))
                return
        self.missed[kind] += 1

    # Workers.

    def _victim(self) -> Member | None:
        asked = "SELECT DISTINCT split_part(reserved_by, '/', 4)::int FROM {}.jobs WHERE state = 'reserved'"
        busy = {row[0] for row in self.database.ask(asked.format(SCHEMA))}
        members = [m for m in self.fleet.members if m.process.poll() is None and not m.because and not m.paused]
        chosen = [m for m in members if m.process.pid in busy]
        return self.dice.choice(chosen) if chosen else None

    def _worker_kill(self) -> tuple[str, int | None] | None:
        return self._ends(signal.SIGKILL, PATIENCE, {-signal.SIGKILL})

    def _worker_term(self) -> tuple[str, int | None] | None:
        return self._ends(signal.SIGTERM, GRACE + 12, {0, 1})

    def _ends(self, number: signal.Signals, patience: float, codes: set[int]) -> tuple[str, int | None] | None:
        if (member := self._victim()) is None:
            time.sleep(0.2)
            return None
        pid = member.process.pid
        self.fleet.hurt(member, number, number.name)
        code = self.fleet.code_of(pid, patience)
        if code is None:
            self.errors.append(f"worker {pid} did not end of {number.name}")
            return None
        return (f"worker {pid} ended with {code}", pid) if code in codes else None

    def _pause_short(self) -> tuple[str, int | None] | None:
        return self._pause(self.dice.uniform(0.3, 0.9) * LEASE_SECONDS)

    def _pause_long(self) -> tuple[str, int | None] | None:
        """Beyond the lease, and in the middle of a stage: when it goes on, another is at its job, or was."""
        return self._pause(self.dice.uniform(1.7, 3) * LEASE_SECONDS, amid_a_stage=True)

    def _pause(self, seconds: float, *, amid_a_stage: bool = False) -> tuple[str, int | None] | None:
        if (member := self._victim()) is None:
            time.sleep(0.2)
            return None
        pid = member.process.pid
        give_up = time.monotonic() + PATIENCE
        while amid_a_stage and not self.fleet.is_amid_a_stage(pid):
            if time.monotonic() > give_up:
                return None
            time.sleep(0.005)
        member.paused = True
        try:
            os.kill(pid, signal.SIGSTOP)
            if amid_a_stage and not self.fleet.is_amid_a_stage(pid):
                return None
            time.sleep(seconds)
            state = state_of(pid)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            member.paused = False
        return (f"worker {pid} stood still for {seconds:.1f} s", pid) if state == "T" else None

    # Sessions.

    @contextmanager
    def _session(self, name: str = "chaos rogue") -> Iterator[psycopg.Connection[Any]]:
        scratch = self.database.scratch
        with psycopg.connect(
            host=scratch.address, port=scratch.port, user="postgres", dbname=DATABASE, application_name=name,
            options=f"-c search_path={SCHEMA}",
        ) as connection:  # fmt: skip
            yield connection

    def _session_end(self) -> tuple[str, int | None] | None:
        asked = "SELECT pid FROM pg_stat_activity WHERE usename = 'pipeline' ORDER BY random() LIMIT 1"
        found = self.database.ask(asked)
        if not found:
            return None
        pid = found[0][0]
        since = self.database.mark()
        self.database.ask(f"SELECT pg_terminate_backend({pid}, 2000)")
        left = self.database.ask(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}")
        return None if left or not self.database.said("57P01", since) else (f"session {pid} ended with 57P01", None)

    def _someone_behind(self, rogue: psycopg.Connection[Any]) -> int | None:
        """A session that waits for the rogue."""
        pid = rogue.info.backend_pid
        asked = f"SELECT pid FROM pg_stat_activity WHERE usename = 'pipeline' AND {pid} = ANY(pg_blocking_pids(pid))"
        give_up = time.monotonic() + 0.7
        while time.monotonic() < give_up:
            # Asked by the rogue itself, for whoever else asks may wait for its locks.
            rogue.execute("SELECT pg_stat_clear_snapshot()")
            if found := rogue.execute(asked.encode()).fetchone():
                return int(found[0])
            time.sleep(0.01)
        return None

    def _statement_cancel(self) -> tuple[str, int | None] | None:
        """A statement that waits for a lock is cancelled."""
        since = self.database.mark()
        with self._table_locked("EXCLUSIVE") as pid:
            if pid is not None:
                self.database.ask(f"SELECT pg_cancel_backend({pid})")
        time.sleep(0.05)
        return (f"session {pid} was told 57014", None) if pid and self.database.said("57014", since) else None

    def _table_lock(self) -> tuple[str, int | None] | None:
        with self._table_locked("ACCESS EXCLUSIVE") as pid:
            time.sleep(0.5)
        return None if pid is None else (f"session {pid} waited for a table", None)

    @contextmanager
    def _table_locked(self, mode: str) -> Iterator[int | None]:
        """Nobody comes to any job; gives a session that waits for that."""
        with self._session() as rogue:
            rogue.execute("SET LOCAL lock_timeout = '300ms'")  # while it waits, everybody waits behind it
            began = time.time()
            try:
                rogue.execute(f"LOCK TABLE jobs IN {mode} MODE".encode())
                yield self._someone_behind(rogue)
            finally:
                rogue.rollback()
                self.outages.append((began, time.time()))

    def _deadlock(self) -> tuple[str, int | None] | None:
        """A job first, its gate second: the reverse of our order."""
        since = self.database.mark()
        with self._session() as rogue:
            rogue.execute("SET LOCAL statement_timeout = '3s'")
            held = rogue.execute(
                "SELECT id, gate_id FROM jobs WHERE state = 'reserved' AND slot IS NOT NULL"
                " ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED"
            ).fetchone()
            if held is None:
                return None
            if self._someone_behind(rogue) is not None:
                with suppress(psycopg.errors.DeadlockDetected, psycopg.errors.QueryCanceled):
                    rogue.execute("SELECT 1 FROM gates WHERE id = %s FOR UPDATE", (held[1],))
            rogue.rollback()
        return ("the server told 40P01", None) if self.database.said("40P01", since) else None

    def _long_snapshot(self) -> tuple[str, int | None] | None:
        with self._session() as rogue:
            rogue.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            rogue.execute("SELECT count(*) FROM jobs")
            pid = rogue.info.backend_pid
            time.sleep(self.dice.uniform(5, 10))
            old = self.database.ask(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND backend_xmin IS NOT NULL")
            rogue.rollback()
        return ("a snapshot was held", None) if old else None

    def _connections(self) -> tuple[str, int | None] | None:
        """All that the server allows are taken for a while, and somebody needs a new one."""
        since = self.database.mark()
        taken: list[psycopg.Connection[Any]] = []
        with self._alone:
            began = time.time()
            try:
                self._take_all(taken)
                self._end_workers_sessions()
                self._take_all(taken)
                time.sleep(1.5)
            finally:
                for connection in taken:
                    connection.close()
            self.outages.append((began, time.time()))
        more = self.database.said("53300", since)
        return (f"{more} were told 53300", None) if more > 1 else None

    def _take_all(self, taken: list[psycopg.Connection[Any]]) -> None:
        scratch = self.database.scratch
        options: dict[str, Any] = {"host": scratch.address, "port": scratch.port, "user": "pipeline"}
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(psycopg.connect(dbname=DATABASE, application_name="chaos hog", **options))

    # The server.

    def _end_workers_sessions(self) -> None:
        self.database.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = 'pipeline' AND application_name LIKE 'pipeline%'"
        )

    def _server_immediate(self) -> tuple[str, int | None] | None:
        return self._restart(IMMEDIATE)

    def _server_fast(self) -> tuple[str, int | None] | None:
        return self._restart(FAST)

    def _restart(self, how: signal.Signals) -> tuple[str, int | None] | None:
        with self._alone:
            began = time.time()
            code = self.database.restart(how)
            self.outages.append((began, time.time()))
        return f"the server ended with {code} of {how.name}, and is back", None

    def _backend_crash(self) -> tuple[str, int | None] | None:
        """One server process is killed: the server ends all sessions and recovers."""
        with self._alone:
            asked = "SELECT pid FROM pg_stat_activity WHERE usename = 'pipeline' ORDER BY random() LIMIT 1"
            found = self.database.ask(asked)
            if not found:
                return None
            began = time.time()
            os.kill(int(found[0][0]), signal.SIGKILL)
            give_up = time.monotonic() + 30
            time.sleep(0.1)
            while not self.database.scratch.answers() and time.monotonic() < give_up:
                time.sleep(0.05)
            self.outages.append((began, time.time()))
        return f"server process {found[0][0]} was killed, and the server recovered", None

    def _read_only(self) -> tuple[str, int | None] | None:
        since = self.database.mark()
        name = f"ALTER DATABASE {DATABASE}"
        with self._alone:
            began = time.time()
            self.database.ask(f"{name} SET default_transaction_read_only = on")
            try:
                self._end_workers_sessions()
                time.sleep(1.5)
            finally:
                self._insist("SET default_transaction_read_only = off", f"{name} RESET default_transaction_read_only")
                self._end_workers_sessions()
            self.outages.append((began, time.time()))
        more = self.database.said("25006", since)
        return (f"{more} were told 25006", None) if more else None

    def _isolation(self) -> tuple[str, int | None] | None:
        """New sessions are serializable, unless they say otherwise; the engine does."""
        name = f"ALTER DATABASE {DATABASE}"
        with self._alone:
            self.database.ask(f"{name} SET default_transaction_isolation = 'serializable'")
            try:
                self._end_workers_sessions()
                with self._session() as fresh:
                    shown = fresh.execute("SHOW default_transaction_isolation").fetchone()
                time.sleep(2)
            finally:
                self._insist(f"{name} RESET default_transaction_isolation")
        return ("new sessions were serializable", None) if shown == ("serializable",) else None

    # The way to it.

    def _insist(self, *statements: str) -> None:
        """What puts an end to a fault is said until it is heard: the server may be busy with that very row."""
        give_up = time.monotonic() + 20
        while True:
            try:
                self.database.ask(*statements)
                return
            except psycopg.Error:
                if time.monotonic() > give_up:
                    raise
            time.sleep(0.1)

    def _proxy(self) -> Proxy:
        return self.dice.choice([*self.proxies, *(m.proxy for m in self.fleet.members if m.proxy is not None)])

    def _proxy_hold(self) -> tuple[str, int | None] | None:
        waited = self._proxy().hold(self.dice.uniform(0.2, 1.5 * LEASE_SECONDS))
        return (f"{waited} messages were held", None) if waited else None

    def _proxy_swallow(self) -> tuple[str, int | None] | None:
        bitten = self._proxy().swallow(self.dice.uniform(0.5, 2 * LEASE_SECONDS))
        return (f"{bitten} connections spoke to nobody", None) if bitten else None

    def _proxy_reset(self) -> tuple[str, int | None] | None:
        bitten = self._proxy().reset()
        return (f"{bitten} connections were reset", None) if bitten else None

    def _proxy_cut(self) -> tuple[str, int | None] | None:
        bitten = self._proxy().cut(self.dice.randrange(1, 4000), PATIENCE)
        return (f"{bitten} answers were cut", None) if bitten else None

    def _commit_lost(self) -> tuple[str, int | None] | None:
        lost = self._proxy().lose_commit(PATIENCE)
        return ("a COMMIT was done, its answer dropped", None) if lost else None
