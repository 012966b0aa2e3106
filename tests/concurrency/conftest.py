"""What the staged races share: a play, and questions about the lane that they leave behind."""

from collections.abc import Iterator
from functools import cache

import pytest
from sqlalchemy import Engine, func, make_url, select, text

from pipeline.db import make_engine
from pipeline.sql.tables import attempts, gates, jobs
from tests.concurrency.stage import SCHEMA, Play
from tests.factories import Factory


@cache
def _lasting(url: str) -> Engine:
    return make_engine(url, schema=SCHEMA, connections=10, name="test")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """As everywhere, but with statements that stay compiled from test to test."""
    engine = _lasting(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def play(database_url: str) -> Iterator[Play]:
    with Play(database_url) as play:
        yield play


class Lane:
    """What the one lane of a test looks like now."""

    def __init__(self, engine: Engine, make: Factory) -> None:
        self._engine = engine
        self._make = make

    def states(self) -> list[tuple[str, str, int | None]]:
        """``(stage, state, slot)`` of its jobs by position."""
        with self._engine.begin() as connection:
            found = connection.execute(
                select(jobs.c.stage, jobs.c.state, jobs.c.slot)
                .where(jobs.c.site_id == self._make.site_id, jobs.c.topic_id.is_not(None))
                .order_by(jobs.c.lane_id, jobs.c.position)
            )
            return [tuple(row) for row in found]

    def passed(self, stage: str = "publish") -> int:
        with self._engine.begin() as connection:
            return int(connection.execute(select(gates.c.passed).where(gates.c.stage == stage)).scalar_one())

    def outcomes(self, job_id: int) -> list[str]:
        """How the reservations of a job ended, in their order."""
        with self._engine.begin() as connection:
            found = connection.execute(
                select(attempts.c.outcome).where(attempts.c.job_id == job_id).order_by(attempts.c.fence)
            )
            return list(found.scalars())

    def assemblies(self) -> list[tuple[str, int]]:
        """``(state, how many)`` of the site's own jobs."""
        with self._engine.begin() as connection:
            found = connection.execute(
                select(jobs.c.state, func.count()).where(jobs.c.topic_id.is_(None)).group_by(jobs.c.state)
            )
            return sorted((state, count) for state, count in found)


@pytest.fixture
def lane(engine: Engine, make: Factory) -> Lane:
    return Lane(engine, make)


@pytest.fixture
def serializable(database_url: str, engine: Engine) -> Iterator[None]:
    """The role's own default in this database, which the engine does not heed."""
    role = f'ALTER ROLE pipeline IN DATABASE "{make_url(database_url).database}"'
    _alone(engine, f"{role} SET default_transaction_isolation = 'serializable'")
    yield
    _alone(engine, f"{role} RESET default_transaction_isolation")


def _alone(engine: Engine, statement: str) -> None:
    """Run it, and let every session after it begin anew."""
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
