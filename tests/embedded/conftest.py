"""The users that a scenario runs as."""

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator

import psycopg
import pytest

from pipeline.embedded import EmbeddedServer, embedded_home

from .scene import FAST, Scene, connect, open_directory, run_sql


@pytest.fixture(scope="session", autouse=True)
def _everything_imported() -> None:
    """An ordinary user may be unable to read our standard library, so what is imported late is imported now."""
    top = open_directory(os.geteuid())
    with EmbeddedServer(embedded_home(top), settings=FAST) as server:
        run_sql(server, "SELECT now(), '{}'::jsonb")
        with contextlib.suppress(psycopg.Error):
            connect(server, server.url().replace("pipeline@", "nobody@"))
    shutil.rmtree(top)


@pytest.fixture(params=["root", "user"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Run as root, and as an ordinary user."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    uid = pwd.getpwnam("nobody").pw_uid if request.param == "user" and os.geteuid() == 0 else os.geteuid()
    yield from _scene(uid)


@pytest.fixture
def root_scene() -> Iterator[Scene]:
    """Run as root only."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    yield from _scene(0)


@pytest.fixture
def own_scene() -> Iterator[Scene]:
    """Run as who we are: what does not depend on the user."""
    yield from _scene(os.geteuid())


def _scene(uid: int) -> Iterator[Scene]:
    scene = Scene(open_directory(uid), uid, [], set())
    try:
        yield scene
    finally:
        scene.clean()
