"""One data directory: make it, start a server on it, ask that server; engine room.

Everything here happens under the start lock. Who may do it, and when, is decided in ``server``.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psycopg

from pipeline.embedded import postmaster
from pipeline.embedded.binaries import Version
from pipeline.embedded.errors import OWN_SERVER, EmbeddedError
from pipeline.embedded.hosts import Host
from pipeline.embedded.locks import FileLock
from pipeline.embedded.osuser import OsUser
from pipeline.embedded.places import private_directory, share_with_owner, socket_places, write_whole

OWNER = "pipeline"  # a plain role: what needs more rights fails here as it would on a managed server
ADMIN = "pipeline_admin"
DATABASE = "pipeline"

SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "wal_level": "minimal",  # less log: nobody replicates this cluster
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "max_parallel_workers_per_gather": "0",  # containers often have only 64 MB of shared memory
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_min_duration_statement": "2s",
    "log_lock_waits": "on",
}
LOG_LIMIT = 10_000_000  # bytes

# Errors of a new connection that waiting does not heal.
HOPELESS = ("authentication failed", "pg_hba.conf", "does not exist", "permission denied")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A data directory in its home, and what is needed to run it."""

    home: Path
    binaries: Path
    version: Version
    user: OsUser
    settings: Mapping[str, str]
    name: str  # as the process list shows it

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"

    def prepare(self) -> None:
        """Make the data directory, or make sure that these programs can use the one that is there."""
        for leftover in self.home.glob("data.tmp-*"):  # of a first start that was interrupted
            shutil.rmtree(leftover, ignore_errors=True)
        if self.data.is_dir() and not any(self.data.iterdir()):
            self.data.rmdir()
        if not self.data.exists():
            self._initialise()
        try:
            major = int((self.data / "PG_VERSION").read_text())
        except (OSError, ValueError) as error:
            raise EmbeddedError(f"{self.data} is no PostgreSQL data directory; move it away") from error
        if major != self.version.major:
            raise EmbeddedError(
                f"{self.data} was made by PostgreSQL {major}, and {self.binaries} is {self.version.text}; "
                f"set PIPELINE_PG_BIN to programs of version {major} (to dump the data, for example), "
                f"or move {self.data} away and begin anew, or {OWN_SERVER}"
            )

    def spawn(self) -> subprocess.Popen[bytes] | None:
        """Start a server. None while processes of another one still have this cluster open.

        The server, alone of all programs, inherits ``server.lock``. So the kernel knows whether anything of it lives,
        where pids do not tell: left-over children of a killed server, or a server in another container.
        """
        Host.here().refuse_another(self.home / "host.json")
        lock = FileLock(self.home / "server.lock")
        try:
            if not lock.exclusive():
                if not Host.here().sees_processes_of(self.home / "host.json"):
                    raise EmbeddedError(
                        f"{self.home} is in use by another container of this machine; stop it there, or {OWN_SERVER}"
                    )
                return None
            self.prepare()
            Host.here().note(self.home / "host.json")
            self._write_access()
            command = self._command(self._make_socket_directory())
            with self._open_log() as log:
                child = self.user.popen(command, log, self._past_the_pid_file(), pass_fds=(lock.fileno(),))
            postmaster.adopt(child, self.data)
            lock.hand_over()
        finally:
            lock.close()
        return child

    def ask(self, found: postmaster.Postmaster) -> Version | None:
        """The version of the running server; None while it does not answer. Role and database exist afterwards."""
        directory = self.socket_directory(found)
        try:
            with psycopg.connect(
                host=str(directory), port=5432, user=ADMIN, dbname="postgres", connect_timeout=10, autocommit=True
            ) as connection:
                row = connection.execute(
                    "SELECT current_setting('data_directory'), current_setting('server_version'),"
                    " EXISTS (SELECT FROM pg_roles WHERE rolname = %s),"
                    " EXISTS (SELECT FROM pg_database WHERE datname = %s)",
                    (OWNER, DATABASE),
                ).fetchone()
                if row is None or not os.path.samefile(row[0], self.data):
                    return None
                if not row[2]:
                    connection.execute(f"CREATE ROLE {OWNER} LOGIN")
                if not row[3]:
                    connection.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")
                return Version.of(row[1])
        except psycopg.OperationalError as error:
            if any(reason in str(error).lower() for reason in HOPELESS):
                raise EmbeddedError(f"the embedded PostgreSQL in {self.home} refuses us: {error}") from error
            return None

    def socket_directory(self, found: postmaster.Postmaster) -> Path:
        """Where the running server listens; it may have been started with another environment than ours."""
        return found.socket_directory or next(socket_places(self.home, self.user.uid))

    def last_lines(self) -> str:
        """The end of the server's log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 4096))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-12:])

    def _initialise(self) -> None:
        # Only a finished cluster ever gets the name "data", so an interrupted start cannot be mistaken for one.
        making = Path(tempfile.mkdtemp(prefix="data.tmp-", dir=self.home))
        private_directory(making, self.user.uid, self.user.gid, ours=True)
        options = [f"--username={ADMIN}", "--encoding=UTF8", "--locale=C", "--auth-local=peer", "--auth-host=reject"]
        if self.version.major >= 14:
            options.append("--no-instructions")
        if self.version.major >= 17:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if self.version.major < 18:
            options.append("--data-checksums")
        if self.settings.get("fsync") == "off":
            options.append("--no-sync")
        try:
            status, output = self.user.run([self.binaries / "initdb", "-D", making, *options])
            if status != 0:
                raise EmbeddedError(f"initdb failed in {self.home}:\n{output[-2000:]}")
            making.rename(self.data)
        finally:
            shutil.rmtree(making, ignore_errors=True)
        home = os.open(self.home, os.O_RDONLY)
        try:
            os.fsync(home)
        finally:
            os.close(home)

    def _write_access(self) -> None:
        # Beside the data, not in it: the server's user cannot change them, and root never writes where a link may wait.
        # At every start, because the same uid may have another name in another container.
        mapping = "".join(f'pipeline "{peer}" {role}\n' for peer in sorted(self.user.peers) for role in (OWNER, ADMIN))
        note = "# Written anew at every start.\n"
        for name, text in (("pg_hba.conf", "local all all peer map=pipeline\n"), ("pg_ident.conf", mapping)):
            write_whole(self.home / name, note + text, 0o644)

    def _make_socket_directory(self) -> Path:
        refusal = None
        for place in socket_places(self.home, self.user.uid):
            try:
                private_directory(place, self.user.uid, self.user.gid, ours=place.parent == self.home)
            except EmbeddedError as error:
                refusal = error
                continue
            for name in (".s.PGSQL.5432", ".s.PGSQL.5432.lock"):  # server.lock says that nobody uses them
                (place / name).unlink(missing_ok=True)
            return place
        raise refusal or EmbeddedError(f"no short enough directory for a socket; set TMPDIR to one, or {OWN_SERVER}")

    def _past_the_pid_file(self) -> dict[str, str]:
        # Whatever pid is in there is dead, a zombie, or a stranger's; PostgreSQL may take it for a live server. It
        # ignores the pid of its grandparent. Removing the file would also remove its guard against orphans of a
        # killed server.
        if pid := postmaster.pid_in_file(self.data):
            return {"PG_GRANDPARENT_PID": str(pid)}
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # empty or cut short: good for nothing
        return {}

    def _command(self, socket_directory: Path) -> list[str | Path]:
        settings = SETTINGS | {
            "cluster_name": self.name,
            "hba_file": str(self.home / "pg_hba.conf"),
            "ident_file": str(self.home / "pg_ident.conf"),
            # A comma-separated list, so inner quotes are what admits a space.
            "unix_socket_directories": '"' + str(socket_directory).replace('"', '""') + '"',
        }
        if self.version.major >= 18:
            settings["io_method"] = "sync"  # saves three idle processes
        settings |= self.settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self.binaries / "postgres", "-D", self.data, *options]

    def _open_log(self) -> BinaryIO:
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_LIMIT:
                self.log.replace(self.home / "postgres.log.1")
        fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        share_with_owner(fd, self.log)
        return open(fd, "ab")
