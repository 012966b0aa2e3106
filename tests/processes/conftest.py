"""A project for each test, and questions about what its workers left behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from pipeline.sql.tables import attempts, jobs
from tests.processes.project import Project, until


@pytest.fixture
def project(tmp_path: Path, database_url: str) -> Iterator[Project]:
    """Its workers are gone before the database is looked at for the last time."""
    project = Project(tmp_path, database_url)
    try:
        yield project
    finally:
        project.end()


class Facts:
    """What the database says."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def count(self, *states: str) -> int:
        """How many topics' jobs are in these states."""
        mine = select(func.count()).select_from(jobs).where(jobs.c.topic_id.is_not(None), jobs.c.state.in_(states))
        with self._engine.begin() as connection:
            return int(connection.execute(mine).scalar_one())

    def until(self, state: str, count: int) -> None:
        until(lambda: self.count(state) == count, f"{count} jobs {state}")

    def attempts(self, job_id: int | None = None) -> list[Any]:
        """Reservations that ended, in the order in which they began."""
        mine = select(attempts).order_by(attempts.c.fence)
        with self._engine.begin() as connection:
            return list(connection.execute(mine if job_id is None else mine.where(attempts.c.job_id == job_id)))

    def outcomes(self, job_id: int) -> list[str]:
        return [a.outcome for a in self.attempts(job_id)]

    def holders(self) -> set[int]:
        """The process ids of those who hold a job now."""
        with self._engine.begin() as connection:
            found = connection.execute(select(jobs.c.reserved_by).where(jobs.c.state == "reserved")).scalars()
            return {process_of(name) for name in found}


def process_of(holder: str) -> int:
    return int(holder.rsplit("/", 2)[1])


@pytest.fixture
def facts(engine: Engine) -> Facts:
    return Facts(engine)
