"""A real PostgreSQL for every test: one server a run, one migrated template, one clone of it for each test process.

``TEST_DATABASE_URL`` names another server, as a role that may create databases; else the embedded one is started, in
memory where there is room, with durability off. Every test that used the database ends with the audit.
"""

import compileall
import gc
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import URL

from pipeline.build import Services, services as build_services
from pipeline.clock import FrozenClock
from pipeline.db import make_engine, quoted
from pipeline.service.audit import Audit
from pipeline.sql.audit import INVARIANTS
from pipeline.testing import database
from pipeline.testing.database import SCHEMA, Server
from tests.factories import Factory

PIPELINE = Path(__file__).parents[1] / "pipeline"


def pytest_configure() -> None:
    """Compile the package once, for all the processes that tests start."""
    compileall.compile_dir(PIPELINE, quiet=2)
    gc.disable()  # tests are collected by the thousand, and stay: a third of that time went into looking for garbage


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session")
def run_folder() -> Iterator[Path]:
    """A folder of this test run that its processes share; another OS user may pass through it."""
    with database.run_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def server_url(run_folder: Path) -> Iterator[str]:
    """URL of a server, as a role that may create databases and roles."""
    with database.server_url(run_folder) as url:
        yield url


@pytest.fixture(scope="session")
def template(server_url: str) -> str:
    """The name of a migrated database to clone; made by the real migrations, once for each state of theirs."""
    return Server(server_url).template()


def _create(server_url: str, name: str, template: str | None = None) -> URL:
    return Server(server_url).create(name, template)


def _drop(server_url: str, name: str) -> None:
    Server(server_url).drop(name)


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
def fresh_database(server_url: str, run_folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a new database of the plain role ``pipeline``: empty, or ``migrated`` where the test is marked so."""
    name = _name(run_folder, "fresh")
    template = request.getfixturevalue("template") if request.node.get_closest_marker("migrated") else None
    _drop(server_url, name)
    yield _create(server_url, name, template).render_as_string(hide_password=False)
    _drop(server_url, name)


@pytest.fixture(scope="session")
def _engine(_clone: URL) -> Iterator[Engine]:
    """One engine for all tests of a process, so that each statement is compiled once."""
    engine = make_engine(_clone, schema=SCHEMA, connections=10, name="test")
    yield engine
    engine.dispose()


def _is_well(engine: Engine) -> bool:
    """Whether no invariant is broken: the audit's own queries as one question, which a connection plans only once."""
    asked = " OR ".join(f"EXISTS ({query})" for _, query in INVARIANTS.values())
    with engine.begin() as connection:
        connection.execute(text("SELECT set_config('search_path', :path, true)"), {"path": quoted(SCHEMA)})
        return not connection.execute(text(f"SELECT {asked}")).scalar_one()


@pytest.fixture
def database_url(_clone: URL, _engine: Engine, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a migrated, empty database. Afterwards the audit must find nothing, and all rows are deleted."""
    yield _clone.render_as_string(hide_password=False)
    try:
        if request.node.get_closest_marker("plants_faults") is None:
            assert _is_well(_engine) or Audit(_engine, schema=SCHEMA).violations() == []
    finally:
        with _engine.begin() as connection:
            database.empty(connection)


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
