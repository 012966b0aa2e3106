"""Servers of a test's own: PostgreSQL on a TCP address, with the settings and the history that it wants; PgBouncer."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psycopg
from sqlalchemy.engine import URL, make_url

from pipeline.embedded.binaries import find_binaries
from pipeline.embedded.osuser import OsUser, choose_user
from pipeline.testing.database import NOT_DURABLE
from tests.processes.project import until

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def folder_for(user_of: Path) -> Iterator[Path]:
    """A folder in ``user_of`` that the servers' OS user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=user_of))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class Scratch:
    """A PostgreSQL that trusts whoever reaches its address."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    address: str = LOOPBACK
    trusted: str = "127.0.0.1/32"
    namespace: str = ""  # of the network, made by ``ip netns``; the server's address lies in it
    binaries: Path = field(default_factory=find_binaries)
    port: int = field(default_factory=free_port)
    user: OsUser = field(init=False)
    process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self.user, _ = choose_user(self.folder, self.binaries)
        os.chown(self.folder, self.user.uid, self.user.gid)
        options = ["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        status, said = self.user.run([self.binaries / "initdb", "-D", self.data, *options])
        assert status == 0, said
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {self.trusted} trust\n")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def url(self, database: str = "postgres", user: str = "postgres") -> URL:
        return make_url(f"postgresql+psycopg://{user}@{self.address}:{self.port}/{database}")

    def start(self) -> None:
        settings = NOT_DURABLE | {
            "listen_addresses": self.address,
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
        }
        options = [f"-c{name}={value}" for name, value in (settings | self.settings).items()]
        command: list[Path | str] = [self.binaries / "postgres", "-D", self.data, *options]
        with self.log.open("ab") as log:
            self.process = self._enter(command, log) if self.namespace else self.user.popen(command, log)
        until(self.ready, "the server is ready")

    def _enter(self, command: list[Path | str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Root alone may enter a namespace, so that comes first and the change of user second."""
        become = ["setpriv", f"--reuid={self.user.uid}", f"--regid={self.user.gid}", "--clear-groups"]
        prefix = ["ip", "netns", "exec", self.namespace, *(become if self.user.switch else []), *self.user.prefix]
        return subprocess.Popen([*prefix, *command], cwd="/", stdout=log, stderr=log, start_new_session=True)

    def ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        if self.namespace:
            return "ready to accept connections" in self.log.read_text()
        return self.answers()

    def answers(self) -> bool:
        try:
            psycopg.connect(host=self.address, port=self.port, user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(timeout=30)
            self.process = None

    def run(self, *statements: str, database: str = "postgres", user: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements; the rows of the last one that has any."""
        rows: list[tuple[object, ...]] = []
        with psycopg.connect(
            host=self.address, port=self.port, user=user, dbname=database, autocommit=True
        ) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else rows
        return rows


@dataclass(slots=True)
class PgBouncer:
    """PgBouncer in transaction mode before a server, which it may open ``size`` connections to."""

    folder: Path
    server: Scratch
    users: tuple[str, ...]
    size: int = 3
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=self.folder))
        (folder / "users").write_text("".join(f'"{name}" ""\n' for name in self.users))
        (folder / "ini").write_text(
            "[databases]\n"
            f"* = host={self.server.address} port={self.server.port}\n"
            "[pgbouncer]\n"
            f"listen_addr = {LOOPBACK}\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder}/users\nadmin_users = postgres\n"
            f"pool_mode = transaction\ndefault_pool_size = {self.size}\nmax_client_conn = 100\n"
        )
        for path in (folder, *folder.iterdir()):
            os.chown(path, self.server.user.uid, self.server.user.gid)
        with (folder / "log").open("wb") as log:
            self.process = self.server.user.popen([shutil.which("pgbouncer") or "", folder / "ini"], log)

        def answers() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, (folder / "log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex((LOOPBACK, self.port)) == 0

        until(answers, "the pooler answers")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def ask(self, question: str) -> list[dict[str, object]]:
        """An answer of the pooler's own console."""
        with psycopg.connect(
            host=LOOPBACK, port=self.port, user="postgres", dbname="pgbouncer", autocommit=True
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(question.encode(), prepare=False)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
