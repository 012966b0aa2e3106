"""A real PostgreSQL for every test: one server a run, one migrated template, one clone of it for each test process.

``TEST_DATABASE_URL`` names another server, as a role that may create databases; else the embedded one is started, in
memory where there is room, with durability off. Every test that used the database ends with the audit.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from pipeline import migrate
from pipeline.build import Services, services as build_services
from pipeline.clock import FrozenClock
from pipeline.db import make_engine, parse_url
from pipeline.embedded import EmbeddedServer
from pipeline.models import Base
from pipeline.service.audit import Audit
from pipeline.sql.tables import topics
from tests.factories import Factory

ROOT = Path(__file__).parents[1]
SCHEMA = "pipeline"
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}


@pytest.fixture(scope="session")
def run_folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of this test run that its processes share; another OS user may pass through it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    folder = base / f"pipeline-tests-{os.getuid()}-{run}"
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


@pytest.fixture(scope="session")
def server_url(run_folder: Path) -> Iterator[str]:
    """URL of a server, as a role that may create databases and roles."""
    named = os.environ.get("TEST_DATABASE_URL")
    if named:
        yield parse_url(named).render_as_string(hide_password=False)
        return
    with EmbeddedServer(run_folder / "pg", settings=NOT_DURABLE) as server:
        yield server.superuser_url()


@contextmanager
def as_admin(url: str) -> Iterator[Engine]:
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    try:
        yield engine
    finally:
        engine.dispose()


def _owned(url: str, name: str) -> URL:
    """The URL of a database, as the plain role ``pipeline``."""
    return make_url(url).set(database=name, username="pipeline", password=None)


@pytest.fixture(scope="session")
def template(server_url: str, run_folder: Path) -> str:
    """The name of a migrated database to clone; made by the real migrations, once for each state of theirs."""
    files = sorted((ROOT / "alembic" / "versions").glob("*.py"))
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]
    name = f"template_{digest}_{run_folder.name[-8:]}".replace("-", "_")
    with (run_folder / "template.lock").open("w") as lock, as_admin(server_url) as engine:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with engine.connect() as connection:
            connection.execute(
                text(
                    "DO $$ BEGIN CREATE ROLE pipeline LOGIN;"
                    " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
                )
            )
            there = connection.scalar(text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": name})
            if not there:
                connection.execute(text(f'CREATE DATABASE "{name}_new" OWNER pipeline'))
                migrate.upgrade(_owned(server_url, f"{name}_new"), SCHEMA)
                connection.execute(text(f'ALTER DATABASE "{name}_new" RENAME TO "{name}"'))
    return name


def _create(server_url: str, name: str, template: str | None = None) -> URL:
    with as_admin(server_url) as engine, engine.connect() as connection:
        copy = f'TEMPLATE "{template}" STRATEGY FILE_COPY' if template else ""
        connection.execute(text(f'CREATE DATABASE "{name}" OWNER pipeline {copy}'))
    return _owned(server_url, name)


def _drop(server_url: str, name: str) -> None:
    with as_admin(server_url) as engine, engine.connect() as connection:
        connection.execute(text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))


def _name(run_folder: Path, what: str) -> str:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return re.sub(r"\W", "_", f"{what}_{worker}_{run_folder.name[-8:]}")[:60]


@pytest.fixture(scope="session")
def _clone(server_url: str, template: str, run_folder: Path) -> Iterator[URL]:
    name = _name(run_folder, "work")
    _drop(server_url, name)
    yield _create(server_url, name, template)
    _drop(server_url, name)


@pytest.fixture
def fresh_database(server_url: str, run_folder: Path) -> Iterator[str]:
    """URL of a new, empty database owned by the plain role ``pipeline``."""
    name = _name(run_folder, "fresh")
    _drop(server_url, name)
    yield _create(server_url, name).render_as_string(hide_password=False)
    _drop(server_url, name)


@pytest.fixture(scope="session")
def _engine(_clone: URL) -> Iterator[Engine]:
    """One engine for all tests of a process, so that each statement is compiled once."""
    engine = make_engine(_clone, schema=SCHEMA, connections=10, name="test")
    yield engine
    engine.dispose()


@pytest.fixture
def database_url(_clone: URL, _engine: Engine, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a migrated, empty database. Afterwards the audit must find nothing, and all rows are deleted."""
    yield _clone.render_as_string(hide_password=False)
    try:
        if request.node.get_closest_marker("plants_faults") is None:
            assert Audit(_engine, schema=SCHEMA).violations() == []
    finally:
        with _engine.begin() as connection:
            _empty(connection)


def _empty(connection: Connection) -> None:
    """Delete the rows of all tables, children first: quicker than TRUNCATE, which pays for each index."""
    connection.execute(update(topics).values(revision_id=None))
    for table in reversed(Base.metadata.sorted_tables):
        connection.execute(table.delete())


@pytest.fixture
def engine(database_url: str, _engine: Engine) -> Engine:
    return _engine


@pytest.fixture
def services(engine: Engine) -> Services:
    """Every verb, on the server's own clock."""
    return build_services(engine)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(datetime.now(UTC))


@pytest.fixture
def make(engine: Engine, services: Services) -> Factory:
    """Makes sites, topics and jobs in every state, each by the verbs that lead there."""
    return Factory(engine, services)
