"""The server, the project and the workers of a chaos run; each can be hurt, and says what became of it."""

import json
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from pipeline import migrate
from pipeline.build import services as build_services
from pipeline.db import make_engine
from pipeline.embedded.binaries import find_binaries
from pipeline.project.site import load_site
from pipeline.testing.database import SCHEMA, Server
from tests.chaos.nursery import Born, Nursery
from tests.chaos.proxy import Loop, Proxy
from tests.chaos.work import EFFECTS, ROOT, SEED, SPECS
from tests.processes.project import until
from tests.servers.scratch import Scratch

DATABASE = "content"
GRACE = 2.0
REAP = 0.5
POLL = 0.2
SETTINGS = {
    "deadlock_timeout": "100ms",
    "log_line_prefix": "%m [%p] %e ",
    "shared_buffers": "64MB",
    "max_connections": "100",
}
DURABLE = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}
"""What a process that is killed needs not, but a machine would."""

# A fault waits for no other's locks, and what ends it outlives the next one.
IMPATIENT = "-c lock_timeout=500ms -c statement_timeout=10s -c synchronous_commit=on"
TAIL = 8192  # bytes of a log
FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT


class Database:
    """A server of the run's own."""

    def __init__(self, folder: Path, settings: dict[str, str], binaries: Path | None = None) -> None:
        folder.mkdir(mode=0o700)
        self.scratch = Scratch(folder, settings=settings, binaries=binaries or find_binaries())
        self._turn = threading.Lock()
        self._own: psycopg.Connection[Any] | None = None
        self.scratch.start()
        self.scratch.run("CREATE ROLE pipeline LOGIN")
        Server(self.scratch.url().render_as_string(hide_password=False)).create(DATABASE)
        migrate.upgrade(self.scratch.url(DATABASE, "pipeline"), SCHEMA)

    def url(self, port: int | None = None) -> str:
        url = self.scratch.url(DATABASE, "pipeline")
        return url.set(port=port or self.scratch.port).render_as_string(hide_password=False)

    def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        """As the superuser, each statement a transaction; the rows of the last one that has any."""
        with self._turn:
            try:
                if self._own is None or self._own.closed:
                    at: dict[str, Any] = {"host": self.scratch.address, "port": self.scratch.port, "user": "postgres"}
                    at |= {"dbname": DATABASE, "autocommit": True, "connect_timeout": 10, "options": IMPATIENT}
                    self._own = psycopg.connect(**at)
                rows: list[tuple[Any, ...]] = []
                for statement in statements:
                    cursor = self._own.execute(statement.encode())
                    rows = cursor.fetchall() if cursor.description else rows
                return rows
            except psycopg.OperationalError:
                if self._own is not None:
                    self._own.close()
                raise

    def version(self) -> str:
        return str(self.ask("SHOW server_version")[0][0]).split()[0]

    def restart(self, how: signal.Signals) -> int:
        """Stop and start it; the exit code of the old one."""
        process = self.scratch.process
        assert process is not None
        process.send_signal(how)
        code = process.wait(timeout=60)
        self.scratch.start()
        return code

    def mark(self) -> int:
        """A place in its log: the end of it now."""
        return self.scratch.log.stat().st_size

    def said(self, code: str, since: int) -> int:
        """How many lines of its log carry this SQLSTATE, from a place on."""
        with self.scratch.log.open("rb") as log:
            log.seek(since)
            return sum(f"] {code} ".encode() in line for line in log)

    def codes(self) -> dict[str, int]:
        """Every SQLSTATE but success, and how often it was told."""
        found: dict[str, int] = {}
        with self.scratch.log.open("r", errors="replace") as log:
            for line in log:
                parts = line.split("] ", 1)
                code = parts[1][:5] if len(parts) == 2 else ""
                if len(code) == 5 and code.isalnum() and code != "00000" and "HINT:" not in line[:60]:
                    found[code] = found.get(code, 0) + 1
        return dict(sorted(found.items()))

    def stop(self) -> None:
        if self._own is not None:
            self._own.close()
        self.scratch.stop()


@dataclass(slots=True)
class Ended:
    """A worker process that is gone. ``because``: what was done to it, or empty."""

    pid: int
    code: int
    began: float  # wall
    at: float
    because: str


@dataclass(slots=True)
class Member:
    number: int
    process: Born
    proxy: Proxy | None
    began: float
    because: str = ""
    paused: bool = False


@dataclass(slots=True)
class Fleet:
    """Worker processes, each what ``pipeline worker`` starts; who dies is replaced."""

    root: Path
    database: Database
    loop: Loop
    size: int
    seed: int
    concurrency: int = 16
    ended: list[Ended] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    _turn: threading.RLock = field(default_factory=threading.RLock)
    _over: threading.Event = field(default_factory=threading.Event)
    _watcher: threading.Thread | None = None
    _nursery: Nursery = field(default_factory=Nursery)

    def start(self) -> None:
        for number in range(1, self.size + 1):
            # All but every third come by way of a proxy.
            proxy = Proxy(self.loop, self.database.scratch.address, self.database.scratch.port) if number % 3 else None
            self.members.append(self._begin(number, proxy))
        self._watcher = threading.Thread(target=self._watch, name="fleet", daemon=True)
        self._watcher.start()

    def _begin(self, number: int, proxy: Proxy | None) -> Member:
        own = {
            "PIPELINE_DATABASE_URL": self.database.url(proxy.port if proxy else None),
            "PIPELINE_POLL": str(POLL), "PIPELINE_REAP": str(REAP), "PIPELINE_GRACE": str(GRACE),
            "PIPELINE_CONCURRENCY": str(self.concurrency),
            ROOT: str(self.root), SEED: str(self.seed),
        }  # fmt: skip
        orders = {"root": str(self.root), "site": None, "number": number}
        process = self._nursery.make(self.root, self.root / f"worker-{number}.log", orders, own)
        return Member(number, process, proxy, time.time())

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            with self._turn:
                for member in self.members:
                    if member.process.poll() is not None:
                        self._note(member)
                        self.members[self.members.index(member)] = self._begin(member.number, member.proxy)

    def _note(self, member: Member) -> None:
        code = member.process.returncode
        assert code is not None
        self.ended.append(Ended(member.process.pid, code, member.began, time.time(), member.because))

    def hurt(self, member: Member, number: signal.Signals, because: str) -> None:
        with self._turn:
            member.because = because
            member.process.send_signal(number)

    def is_amid_a_stage(self, pid: int) -> bool:
        """Whether a stage of the process has begun lately, and not ended, by its own log."""
        for path in (self.root / EFFECTS).glob(f"{pid}-*.jsonl"):
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - TAIL, 0))
                lines = [json.loads(line) for line in file.read().split(b"\n")[1:-1]]
            ended = {line["fence"] for line in lines if line["e"] == "end"}
            return any(line["e"] == "start" and line["fence"] not in ended for line in lines[-8:])
        return False

    def code_of(self, pid: int, patience: float) -> int | None:
        """The exit code of a process that was told to end, once it has."""
        give_up = time.monotonic() + patience
        while time.monotonic() < give_up:
            with self._turn:
                found = [e.code for e in self.ended if e.pid == pid]
            if found:
                return found[0]
            time.sleep(0.02)
        return None

    def stop(self) -> None:
        """All are asked to end, and do within their grace."""
        if self._over.is_set():
            return
        self._over.set()
        if self._watcher is not None:
            self._watcher.join()
        for member in self.members:
            member.because = member.because or "the end"
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGCONT)
                member.process.send_signal(signal.SIGTERM)
        for member in self.members:
            if not member.process.wait(GRACE + 15):
                member.because = "it did not end"
                member.process.send_signal(signal.SIGKILL)
                member.process.wait(GRACE)
            self._note(member)
        self._nursery.close()

    def logs(self) -> dict[str, list[str]]:
        return {p.stem: p.read_text(errors="replace").splitlines() for p in sorted(self.root.glob("worker-*.log"))}


def state_of(pid: int) -> str:
    """As the kernel shows it: R, S, T (stopped), Z; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def write_project(root: Path, sites: Sequence[str]) -> None:
    root.mkdir()
    (root / EFFECTS).mkdir()
    (root / "stages").mkdir()
    (root / "stages/__init__.py").write_text("from tests.chaos.work import PIPELINE\n\n__all__ = ['PIPELINE']\n")
    for slug in sites:
        folder = root / "sites" / slug
        folder.mkdir(parents=True)
        folder.joinpath("site.toml").write_text(f'name = "{slug}"\nbase_url = "https://{slug}.example.com"\n')


def register(database: Database, root: Path, sites: Sequence[str]) -> dict[str, int]:
    """The sites' ids by slug."""
    engine = make_engine(database.url(), schema=SCHEMA, connections=1, name="register")
    try:
        made = build_services(engine)
        ids = {}
        for number, slug in enumerate(sites):
            # Every third site has the stage of width 2 as well.
            specs = SPECS if number % 3 == 0 else [spec for spec in SPECS if spec.name != "check"]
            ids[slug] = made.planning.register(load_site(root, slug), specs)
        return ids
    finally:
        engine.dispose()


def wait_for_workers(database: Database, count: int) -> None:
    """Return once as many workers are connected."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pipeline worker'"
    until(lambda: database.ask(asked)[0][0] >= count, f"{count} workers are at work", 60)
