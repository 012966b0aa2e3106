"""Real servers and real processes for the tests of the embedded server.

Every scenario runs as root and as an ordinary user when the tests run as root, else as who we are. An ordinary user may
not be able to execute our interpreter, so the other processes are forked from this one and become that user.
"""

import contextlib
import multiprocessing
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import psycopg
from sqlalchemy import create_engine, make_url, text

from pipeline.embedded import EmbeddedServer, embedded_home, postmaster
from pipeline.embedded.osuser import LAUNCHER
from pipeline.embedded.places import located

FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}
DEADLINE_SECONDS = 60


def until(fact: Callable[[], Any], what: str) -> Any:
    """The first true value of ``fact``; fails at a deadline."""
    give_up = time.monotonic() + DEADLINE_SECONDS
    while not (value := fact()):
        assert time.monotonic() < give_up, f"never happened: {what}"
        time.sleep(0.002)
    return value


def kill(pid: int) -> None:
    """SIGKILL, and wait until the process is gone or a zombie."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"{pid} dies")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Failed(Exception):
    """What another process raised; ``kind`` is the name of its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Client:
    """Another process with an EmbeddedServer of its own, that does what it is told."""

    def __init__(
        self, home: Path, uid: int, settings: Mapping[str, str], environment: Mapping[str, str], patience: timedelta
    ) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._pipe.close()
            _obey(theirs, uid, environment, lambda: EmbeddedServer(home, settings=settings, patience=patience))
        theirs.close()

    def begin(self, verb: str, *arguments: object, **options: object) -> None:
        self._pipe.send((verb, arguments, options))

    def answer(self) -> Any:
        assert self._pipe.poll(DEADLINE_SECONDS), "no answer"
        kind, value = self._pipe.recv()
        if kind:
            raise Failed(kind, value)
        return value

    def do(self, verb: str, *arguments: object, **options: object) -> Any:
        self.begin(verb, *arguments, **options)
        return self.answer()

    def start(self) -> str:
        return str(self.do("start"))

    def sql(self, statement: str) -> Any:
        return self.do("sql", statement)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.reap()

    def reap(self) -> None:
        self._pipe.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _obey(pipe: Any, uid: int, environment: Mapping[str, str], make: Callable[[], EmbeddedServer]) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setpgid(0, 0)
        os.environ.update(environment)
        if uid != os.geteuid():
            os.setgroups([])
            os.setgid(pwd.getpwuid(uid).pw_gid if _has_name(uid) else uid)
            os.setuid(uid)
        server = make()
        while True:
            try:
                verb, arguments, options = pipe.recv()
                method = _EXTRA.get(verb) or getattr(type(server), verb)
                value = server.pid if verb == "pid" else method(server, *arguments, **options)
                pipe.send(("", value))
            except EOFError:
                break
            except (Exception, KeyboardInterrupt) as error:
                pipe.send((type(error).__name__, str(error)))
        server.release()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _has_name(uid: int) -> bool:
    return any(entry.pw_uid == uid for entry in pwd.getpwall())


def run_sql(server: EmbeddedServer, statement: str) -> list[tuple[Any, ...]]:
    engine = create_engine(server.url())
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        rows = [tuple(row) for row in result] if result.returns_rows else []
    engine.dispose()
    return rows


def _forked(server: EmbeddedServer, verb: str) -> int:
    """Fork, let the child do ``verb`` and end; its exit status, which is 1 when the answer is no."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(int(getattr(server, verb)() is False))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _forked_and_idle(server: EmbeddedServer) -> int:
    """Fork a child that does nothing until it is killed; its pid."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def _modules(server: EmbeddedServer) -> list[str]:
    return sorted({name.partition(".")[0] for name in sys.modules})


def connect(server: EmbeddedServer, url: str) -> str:
    """Connect to a given URL as who this process is; the server's role for it."""
    with psycopg.connect(
        host=str(make_url(url).query["host"]), user=make_url(url).username, dbname="postgres"
    ) as session:
        row = session.execute("SELECT current_user").fetchone()
        assert row is not None
        return str(row[0])


def _interpreter(server: EmbeddedServer, path: str) -> None:
    """Pretend that this Python was started by an executable that everybody may use."""
    sys.executable = path


_EXTRA: dict[str, Callable[..., Any]] = {
    "sql": run_sql,
    "forked": _forked,
    "forked_and_idle": _forked_and_idle,
    "modules": _modules,
    "connect": connect,
    "interpreter": _interpreter,
}


@dataclass
class Scene:
    """A project directory, the user who works in it, and the processes of a test."""

    top: Path
    uid: int
    clients: list[Client]
    homes: set[Path]

    @property
    def home(self) -> Path:
        return embedded_home(self.top)

    @property
    def data(self) -> Path:
        return self.home / "data"

    def project(self, *names: str) -> Path:
        """A directory below the top, whatever its name."""
        path = self.top
        for name in names:
            path = path / name
            path.mkdir()
            os.chown(path, self.uid, -1)
        return path

    def client(
        self,
        home: Path | None = None,
        *,
        uid: int | None = None,
        settings: Mapping[str, str] = FAST,
        environment: Mapping[str, str] | None = None,
        patience: timedelta = timedelta(seconds=DEADLINE_SECONDS),
    ) -> Client:
        self.homes.add(home or self.home)
        uid = self.uid if uid is None else uid
        self.clients.append(client := Client(home or self.home, uid, settings, environment or {}, patience))
        return client

    def server_pid(self) -> int | None:
        found = postmaster.find(self.data)
        return found.pid if found else None

    def stranger(self) -> int:
        """The uid of an account that is neither ours, nor root's, nor the server's."""
        taken = {0, self.uid, *(pwd.getpwnam(name).pw_uid for name in ("postgres", "nobody") if has_account(name))}
        return next(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in taken)

    def clean(self) -> None:
        for client in self.clients:
            with contextlib.suppress(ProcessLookupError):
                os.kill(client.pid, signal.SIGKILL)
            client.reap()
        for home in self.homes:
            # Not SIGKILL, which leaves shared memory behind.
            postmaster.give_up(located(home) / "data", time.monotonic() + DEADLINE_SECONDS)
        shutil.rmtree(self.top, ignore_errors=True)


def has_account(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())


def namespaces_work() -> bool:
    """Whether this machine allows user namespaces; many containers do not."""
    command = [sys.executable, "-I", str(LAUNCHER), "1", "1", "/bin/true"]
    return subprocess.run(command, capture_output=True).returncode == 0


def open_directory(uid: int) -> Path:
    # pytest's own directories are below one of mode 0700, which the server's user cannot pass.
    shared = Path("/dev/shm")
    top = Path(tempfile.mkdtemp(prefix="pipeline-test-", dir=shared if os.access(shared, os.W_OK) else None))
    top.chmod(0o711)
    os.chown(top, uid, -1)
    return top
