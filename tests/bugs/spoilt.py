"""A project on a server of its own that can be made read-only, lose its sessions, or be restarted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline import db, migrate
from pipeline.build import services as build_services
from pipeline.service.audit import Audit
from tests.factories import Factory
from tests.processes.project import Project
from tests.servers.scratch import Scratch

SCHEMA = "pipeline"


class Spoilt:
    """A project with workers on a database that can be made read-only, or lose its sessions."""

    def __init__(self, server: Scratch, name: str, project: Project) -> None:
        self.server, self.name, self.project = server, name, project
        url = server.url(name, "pipeline").render_as_string(hide_password=False)
        self.engine = db.make_engine(url, schema=SCHEMA, connections=2, name="test")
        self.services = build_services(self.engine)
        self.make = Factory(self.engine, self.services)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.run(statement, database=self.name)

    def end_sessions(self, of: str = "pipeline%") -> int:
        ended = self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            f" AND pid <> pg_backend_pid() AND application_name LIKE '{of}'"
        )
        return len(ended)

    def read_only(self, on: bool) -> None:
        """For every session of this database, the new and the old."""
        self.server.run(f"ALTER DATABASE {self.name} SET default_transaction_read_only = {'on' if on else 'off'}")
        self.end_sessions("%")
        self.engine.dispose()

    def count(self, state: str) -> int:
        return int(
            self.ask(f"SELECT count(*) FROM pipeline.jobs WHERE state = '{state}' AND topic_id IS NOT NULL")[0][0]
        )


@contextmanager
def spoil(server: Scratch, name: str, root: Path) -> Iterator[Spoilt]:
    """Such a project in a folder of its own; afterwards its workers are gone, and the audit finds nothing."""
    url = server.url(name, "pipeline")
    migrate.upgrade(url, SCHEMA)
    project = Project(root, url.render_as_string(hide_password=False))
    project.site()
    found = Spoilt(server, name, project)
    try:
        yield found
        project.end()
        found.engine.dispose()
        assert Audit(found.engine, schema=SCHEMA).violations() == []
    finally:
        project.end()
        found.engine.dispose()


@pytest.fixture
def spoilt(scratch: Scratch, empty_name: str, tmp_path: Path) -> Iterator[Spoilt]:
    with spoil(scratch, empty_name, tmp_path) as spoilt:
        yield spoilt
