"""A project in a folder of its own, and its door: with a database, with an empty one, or with none."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from pipeline.cli.guard import guarded
from pipeline.cli.main import app
from tests.doors.scene import CANARY, Door, Said, harmless, write_project


def with_canary(url: str) -> str:
    """The URL with a password that must never be seen; the local server of the tests does not ask for one."""
    parsed = make_url(url)
    if parsed.password is None and "TEST_DATABASE_URL" not in os.environ:
        parsed = parsed.set(password=CANARY)
    return parsed.render_as_string(hide_password=False)


@pytest.fixture
def closed(tmp_path: Path) -> Door:
    """A project whose database cannot be reached."""
    door = write_project(tmp_path / "project")
    door.env["PIPELINE_DATABASE_URL"] = "postgresql://me:canary%2F7Qx%409@127.0.0.1:1/content"
    return door


@pytest.fixture
def door(closed: Door, database_url: str) -> Door:
    """A project on the migrated, empty database."""
    closed.env["PIPELINE_DATABASE_URL"] = with_canary(database_url)
    return closed


@pytest.fixture
def fresh(closed: Door, fresh_database: str) -> Door:
    """A project on a database without a schema."""
    closed.env["PIPELINE_DATABASE_URL"] = with_canary(fresh_database)
    return closed


@pytest.fixture
def homeless(closed: Door) -> Door:
    """A project without a named database."""
    del closed.env["PIPELINE_DATABASE_URL"]
    return closed


@pytest.fixture
def inside(closed: Door, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[str], Said]:
    """Runs the command line in this process, which is quicker; for commands that do not import a project's code."""

    def call(words: str) -> Said:
        monkeypatch.chdir(closed.root)
        for name, value in closed.env.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        code = guarded(lambda: app(words.split(), prog_name="pipeline", standalone_mode=False))
        said = Said(code, *capfd.readouterr())
        harmless(said.out + said.err)
        return said

    return call


@pytest.fixture
def typed(closed: Door, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs the command line in this process, word by word: words may hold blanks."""

    def call(*words: str) -> Said:
        monkeypatch.chdir(closed.root)
        for name, value in closed.env.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        code = guarded(lambda: app(list(words), prog_name="pipeline", standalone_mode=False))
        said = Said(code, *capfd.readouterr())
        harmless(said.out + said.err)
        return said

    return call
