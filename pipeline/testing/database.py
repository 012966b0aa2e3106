"""A throw-away PostgreSQL for tests: one server a run, one migrated template, clones of it; a door.

``TEST_DATABASE_URL`` names another server, as a role that may create databases; else the embedded one is started, in
memory where there is room, with durability off. Of a run on a named server its template stays, for the next one.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from pipeline import migrate
from pipeline.db import parse_url
from pipeline.embedded import EmbeddedServer
from pipeline.models import Base
from pipeline.sql.tables import topics

VARIABLE = "TEST_DATABASE_URL"
SCHEMA = "pipeline"
OWNER = "pipeline"  # a plain role: what needs more rights fails here as it would on a managed server
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}
TURN = 0x7069_7065_7465_7374  # the advisory lock under which a template is made


@contextmanager
def run_folder(prefix: str = "pipeline-tests") -> Iterator[Path]:
    """A folder that the processes of one test run share; the last of them removes it.

    Not below pytest's own: its top is closed to the account that the server runs as when we are root.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    folder = base / f"{prefix}-{os.getuid()}-{run}"
    folder.mkdir(mode=0o711, exist_ok=True)
    folder.chmod(0o711)
    with (folder / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield folder
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process of the run still uses it
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server_url(folder: Path) -> Iterator[str]:
    """URL of the server, as a role that may create databases: the named one, or one that lives in ``folder``."""
    named = os.environ.get(VARIABLE)
    if named:
        yield parse_url(named).render_as_string(hide_password=False)
        return
    with EmbeddedServer(folder / "pg", settings=NOT_DURABLE) as server:
        yield server.superuser_url()


@dataclass(frozen=True, slots=True)
class Server:
    """Databases on one server, each owned by the plain role ``owner``; None: by the role of ``url`` itself."""

    url: str
    owner: str | None = OWNER

    @contextmanager
    def admin(self) -> Iterator[Connection]:
        """A connection in which each statement is a transaction of its own."""
        engine: Engine = create_engine(self.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()

    def database_url(self, name: str) -> URL:
        """The URL of a database, as its owner."""
        url = make_url(self.url).set(database=name)
        return url if self.owner is None else url.set(username=self.owner, password=None)

    def template(self) -> str:
        """The name of a migrated database to clone; made by the real migrations, once for each state of theirs."""
        role = self.owner or make_url(self.url).username or "default"
        name = re.sub(r"\W", "_", f"pipeline_template_{_digest()}_{role}")[:58]
        with self.admin() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:turn)"), {"turn": TURN})  # given back with the connection
            if self.owner is not None:
                self._make_owner(connection)
            there = connection.scalar(text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": name})
            if not there:
                new = f"{name}_new"
                self._drop(connection, new)  # of a run that was killed
                self._create(connection, new)
                migrate.upgrade(self.database_url(new), SCHEMA)
                connection.exec_driver_sql(f"ALTER DATABASE {migrate.quoted(new)} RENAME TO {migrate.quoted(name)}")
        return name

    def create(self, name: str, template: str | None = None) -> URL:
        """Make a database, empty or as a clone."""
        with self.admin() as connection:
            self._create(connection, name, template)
        return self.database_url(name)

    def drop(self, name: str) -> None:
        """Drop a database if it is there, whoever is connected to it."""
        with self.admin() as connection:
            self._drop(connection, name)

    def _create(self, connection: Connection, name: str, template: str | None = None) -> None:
        owner = f" OWNER {migrate.quoted(self.owner)}" if self.owner is not None else ""
        copy = f" TEMPLATE {migrate.quoted(template)} STRATEGY FILE_COPY" if template else ""
        connection.exec_driver_sql(f"CREATE DATABASE {migrate.quoted(name)}{owner}{copy}")

    def _drop(self, connection: Connection, name: str) -> None:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {migrate.quoted(name)} WITH (FORCE)")

    def _make_owner(self, connection: Connection) -> None:
        role = migrate.quoted(str(self.owner))
        connection.exec_driver_sql(
            f"DO $$ BEGIN CREATE ROLE {role} LOGIN;"
            " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        )


def empty(connection: Connection) -> None:
    """Delete the rows of all tables, children first: quicker than TRUNCATE, which pays for each index."""
    connection.execute(update(topics).values(revision_id=None))
    for table in reversed(Base.metadata.sorted_tables):
        connection.execute(table.delete())


def _digest() -> str:
    """Names the state of the migrations."""
    files = [migrate.scripts() / "env.py", *sorted((migrate.scripts() / "versions").glob("*.py"))]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]
