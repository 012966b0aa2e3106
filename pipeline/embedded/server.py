"""A PostgreSQL of the project's own, shared by all its processes; engine room.

Why no reference counts: every client holds a shared lock on a file for as long as it lives, and the kernel drops the
lock of a killed one. Who leaves tries to make the lock exclusive; whoever can is the last, and stops the server. A
restart takes less than 0.1 s, so nothing is kept running for nobody.

Files in the home directory: ``start.lock`` (held to start or stop), ``clients.lock`` (shared by the clients),
``server.lock`` (held by the server's processes), ``host.json`` (which machine), ``data``, ``s`` (the socket),
``postgres.log``.
"""

import atexit
import logging
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from pipeline.embedded import locks, places, postmaster
from pipeline.embedded.binaries import find_binaries
from pipeline.embedded.cluster import ADMIN, DATABASE, OWNER, Cluster
from pipeline.embedded.errors import OWN_SERVER, EmbeddedError, StillStarting
from pipeline.embedded.osuser import choose_user

log = logging.getLogger("pipeline.embedded")


class EmbeddedServer:
    """One client of the embedded server in ``home``, which is ``<project>/.pipeline/pg``.

    ``settings`` are PostgreSQL's own and count for whoever starts the server; ``name`` is what the process list shows;
    ``patience`` bounds every wait, and should be generous: recovery after a crash can take long.
    Nothing is touched before ``start``.
    """

    def __init__(
        self,
        home: Path,
        *,
        settings: Mapping[str, str] = {},
        name: str = "pipeline",
        patience: timedelta = timedelta(seconds=120),
    ) -> None:
        self._asked_home = Path(home).resolve()
        self._settings = dict(settings)
        self._name = name
        self._patience = patience
        self._client: locks.FileLock | None = None
        self._client_pid = 0
        self._socket_directory: Path | None = None
        self._turn = threading.RLock()

    @property
    def home(self) -> Path:
        """Where the files are: the directory asked for, unless its file system cannot hold a cluster."""
        return places.located(self._asked_home)

    @property
    def pid(self) -> int | None:
        """The process id of the server; None when it does not run."""
        found = self._find()
        return found.pid if found else None

    def running(self) -> bool:
        """Whether the server runs, whoever uses it."""
        return self._find() is not None

    def start(self) -> str:
        """Become a client, start the server if need be, and return the SQLAlchemy URL of the project's database.

        Again is allowed: it starts a server that has died meanwhile. Raises EmbeddedError.
        """
        self._forget_parent()
        with self._turn:
            try:
                home = places.settle(self._asked_home)
                binaries = find_binaries()
                deadline = self._deadline()
                with locks.held(home / "start.lock", deadline):
                    user, version = choose_user(home, binaries)
                    cluster = Cluster(home, binaries, version, user, self._settings, self._name)
                    self._join(cluster, deadline)
            except OSError as error:
                raise EmbeddedError(f"the embedded PostgreSQL cannot start: {error}; {OWN_SERVER}") from error
            return self.url()

    def url(self) -> str:
        """The SQLAlchemy URL of the project's database, as its plain owner. Raises EmbeddedError when nothing runs."""
        return self._url(OWNER, DATABASE)

    def superuser_url(self) -> str:
        """The URL of the maintenance database ``postgres`` as superuser. Raises EmbeddedError when nothing runs."""
        return self._url(ADMIN, "postgres")

    def release(self) -> None:
        """Stop being a client; the last one stops the server and waits for its end.

        Done at exit as well. A server that does not stop is logged, not raised.
        """
        if self._client is None or self._client_pid != os.getpid():
            return
        with self._turn:
            try:
                self._stop(force=False, leaving=True)
            except (EmbeddedError, OSError) as error:
                log.warning("%s", error)
            finally:
                self._leave()

    def stop(self, *, force: bool = False) -> bool:
        """Stop the server unless others use it, with ``force`` even then. Returns whether it was stopped.

        Ours is no longer counted as a client afterwards, if it was stopped. Raises EmbeddedError when it does not stop.
        """
        self._forget_parent()
        with self._turn:
            try:
                stopped = self._stop(force=force)
            except OSError as error:
                raise EmbeddedError(f"the embedded PostgreSQL cannot be stopped: {error}") from error
            if stopped:
                self._leave()
            return stopped

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _join(self, cluster: Cluster, deadline: float) -> None:
        client = self._client or locks.FileLock(cluster.home / "clients.lock")
        try:
            client.wait_shared(deadline)
            self._socket_directory = self._ensure(cluster, client, deadline)
            if client is not self._client:
                atexit.register(self.release)
                self._client, self._client_pid = client, os.getpid()
        except BaseException as error:
            if client is not self._client:
                # Nothing is left running for nobody; except a server that recovers, else it would always begin again.
                if not isinstance(error, StillStarting) and client.exclusive():
                    postmaster.give_up(cluster.data, self._deadline())
                client.close()
            raise

    def _ensure(self, cluster: Cluster, client: locks.FileLock, deadline: float) -> Path:
        """Return the socket directory once the server answers, having started it if none runs."""
        child: subprocess.Popen[bytes] | None = None
        while True:
            found = postmaster.find(cluster.data)
            if found is None and child is None:
                child = cluster.spawn()
            elif found and found.accepts and (version := cluster.ask(found)):
                if version == cluster.version:
                    return cluster.socket_directory(found)
                # After an upgrade of the programs the server changes at the first moment when nobody uses it.
                if child or not client.exclusive_or_shared():
                    log.warning(
                        "the embedded PostgreSQL that runs is %s, the programs %s; it changes when others have left",
                        version.text,
                        cluster.version.text,
                    )
                    return cluster.socket_directory(found)
                postmaster.stop(cluster.data, found, deadline)
                client.wait_shared(deadline)
                continue
            if child and child.poll() is not None:
                raise EmbeddedError(
                    f"the embedded PostgreSQL did not start; {cluster.log} ends:\n{cluster.last_lines()}"
                )
            if time.monotonic() > deadline:
                raise self._out_of_patience(cluster, seen=bool(child or found))
            time.sleep(locks.PAUSE / 2)

    def _out_of_patience(self, cluster: Cluster, *, seen: bool) -> EmbeddedError:
        if seen:
            return StillStarting(
                f"the embedded PostgreSQL in {cluster.home} does not answer within {self._patience.total_seconds():g} s"
                f"; it may still recover: try again, or see {cluster.log}"
            )
        return EmbeddedError(
            f"processes of a server that was killed still use {cluster.home}; wait for them or end them, "
            f"and try again (fuser {cluster.home / 'server.lock'} shows them)"
        )

    def _stop(self, *, force: bool, leaving: bool = False) -> bool:
        home = self.home
        if not (home / "start.lock").exists():
            return False
        deadline = self._deadline()
        with locks.held(home / "start.lock", deadline):
            client = self._client or locks.FileLock(home / "clients.lock")
            try:
                alone = client.exclusive_or_shared()
                found = self._find()
                if found is None or not (alone or force):
                    return False
                postmaster.stop(home / "data", found, deadline)
                (home / "host.json").unlink(missing_ok=True)
                places.remove_socket_directory(home, found.socket_directory)
                leaving = True
                return True
            finally:
                # Inside the start lock: whoever comes next must not meet our exclusive lock.
                if leaving or client is not self._client:
                    client.close()
                else:
                    client.wait_shared(deadline)

    def _find(self) -> postmaster.Postmaster | None:
        return postmaster.find(self.home / "data")

    def _url(self, user: str, database: str) -> str:
        directory = self._socket_directory
        if directory is None and (found := self._find()):
            directory = found.socket_directory
        if directory is None:
            raise EmbeddedError(
                f"the embedded PostgreSQL in {self.home} does not run;"
                " any command of the project starts it, such as: pipeline status"
            )
        # libpq would take another port from the environment, and the name of the socket depends on it.
        port = "&port=5432" if os.environ.get("PGPORT") else ""
        return f"postgresql+psycopg://{user}@/{database}?host={quote(str(directory), safe='')}{port}"

    def _leave(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
            self._socket_directory = None
            atexit.unregister(self.release)

    def _forget_parent(self) -> None:
        if self._client_pid and self._client_pid != os.getpid():
            # A forked copy: its parent is the client, not it. The locks were let go of when it was made.
            self._client, self._client_pid, self._turn = None, 0, threading.RLock()
            atexit.unregister(self.release)

    def _deadline(self) -> float:
        return time.monotonic() + self._patience.total_seconds()
