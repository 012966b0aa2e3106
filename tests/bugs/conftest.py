"""Scenes of other packages that these tests play in."""

from collections.abc import Iterator

import pytest

from tests.bugs.proxy import Proxy
from tests.bugs.spoilt import spoilt
from tests.concurrency.conftest import lane, play
from tests.db.conftest import scenery, sql
from tests.processes.conftest import facts, project
from tests.servers.conftest import empty_name, name, scratch, scratch_folder

__all__ = [  # fixtures
    "empty_name", "facts", "lane", "name", "play", "project", "scenery", "scratch", "scratch_folder",
    "spoilt", "sql",
]  # fmt: skip


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A door before the test's database."""
    with Proxy(database_url) as proxy:
        yield proxy
