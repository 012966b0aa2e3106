"""One server of these tests' own, on a loopback port: the suite's usual one can be reached by two roles only."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline import migrate
from pipeline.testing.database import SCHEMA, Server
from tests.doors.scene import Door, write_project
from tests.servers.scratch import Scratch, folder_for


@pytest.fixture(scope="session")
def scratch_folder(run_folder: Path) -> Iterator[Path]:
    with folder_for(run_folder) as folder:
        yield folder


@pytest.fixture(scope="session")
def scratch(scratch_folder: Path) -> Iterator[Scratch]:
    if os.name != "posix":
        pytest.skip("needs processes of another user")
    folder = scratch_folder / "server"
    folder.mkdir(mode=0o700)
    server = Scratch(folder)
    server.start()
    server.run("CREATE ROLE pipeline LOGIN")
    yield server
    server.stop()


@pytest.fixture
def empty_name(scratch: Scratch) -> Iterator[str]:
    """The name of a new, empty database, owned by the role ``pipeline``."""
    server = Server(scratch.url().render_as_string(hide_password=False))
    name = f"content_{uuid.uuid4().hex[:12]}"
    server.create(name)
    yield name
    server.drop(name)


@pytest.fixture
def name(scratch: Scratch, empty_name: str) -> str:
    """The same, migrated."""
    migrate.upgrade(scratch.url(empty_name, "pipeline"), SCHEMA)
    return empty_name


@pytest.fixture
def roles(scratch: Scratch) -> Iterator[Callable[[str], str]]:
    """Makes plain roles, which are gone afterwards; gives their names."""
    made: list[str] = []

    def make(kind: str) -> str:
        role = f"{kind}_{uuid.uuid4().hex[:8]}"
        scratch.run(f"CREATE ROLE {role} LOGIN")
        made.append(role)
        return role

    yield make
    for role in made:
        for database in scratch.run("SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate"):
            scratch.run(f"DROP OWNED BY {role}", database=str(database[0]))
        scratch.run(f"DROP ROLE {role}")


@pytest.fixture
def project(tmp_path: Path, scratch: Scratch, empty_name: str) -> Door:
    """A small project on that database, as its owner."""
    door = write_project(tmp_path / "project")
    door.env["PIPELINE_DATABASE_URL"] = scratch.url(empty_name, "pipeline").render_as_string(hide_password=False)
    return door
