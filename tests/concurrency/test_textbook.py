"""The exercise that every queue on PostgreSQL begins with: what SKIP LOCKED is for, and what a worker's death costs."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, make_url, select

from pipeline import upkeep
from pipeline.build import Services
from pipeline.service.planning import StageSpec
from pipeline.sql.tables import attempts, jobs
from tests.concurrency.stage import Act, wait_until_blocked
from tests.factories import Factory
from tests.processes.project import Project, until

HEAD = "SELECT id FROM pipeline.jobs WHERE state = 'pending' ORDER BY run_at, id LIMIT 1 FOR UPDATE"


@pytest.fixture
def pair(database_url: str) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Two sessions that know nothing of this project."""
    plain = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as one, psycopg.connect(plain) as other:
        yield one, other


def test_a_plain_row_lock_makes_the_second_worker_wait(
    make: Factory, engine: Engine, pair: tuple[psycopg.Connection, psycopg.Connection]
) -> None:
    """Two sessions that lock the same pending row take turns: the second one stands until the first has ended."""
    (job_id,) = make.plan()
    one, other = pair
    assert one.execute(HEAD).fetchall() == [(job_id,)]
    second = Act("second", lambda: other.execute(HEAD).fetchall())
    wait_until_blocked(engine, other.info.backend_pid, by=one.info.backend_pid)
    assert not second.over

    one.rollback()

    assert second.result() == [(job_id,)]


def test_skip_locked_gives_the_second_worker_nothing(
    make: Factory, pair: tuple[psycopg.Connection, psycopg.Connection]
) -> None:
    """With SKIP LOCKED it gets no row and no error, at once; and the row once the first one has let go."""
    (job_id,) = make.plan()
    one, other = pair
    assert one.execute(f"{HEAD} SKIP LOCKED").fetchall() == [(job_id,)]
    other.execute("SET LOCAL lock_timeout = '1ms'")  # a wait would be an error

    assert other.execute(f"{HEAD} SKIP LOCKED").fetchall() == []
    one.rollback()
    assert other.execute(f"{HEAD} SKIP LOCKED").fetchall() == [(job_id,)]


def test_a_worker_that_dies_costs_what_it_had_not_acknowledged(
    tmp_path: Path, database_url: str, engine: Engine, services: Services, make: Factory
) -> None:
    """Killed while it held 50 jobs of which 30 had been acknowledged, it makes exactly 20 run again, at once."""
    project = Project(tmp_path, database_url)
    project.site()
    project.stages("""
        class Generate(Stage):
            def run(self, topic, ctx):
                if topic.position > 30:
                    sign(f"stands-{PID}-{topic.position}")
                    signed("go")
                return Done(draft=draft(topic))

        PIPELINE = (Generate,)
    """)
    make.site(stages=(StageSpec("generate", None, 5),))
    ids = make.plan(count=50)

    def ended() -> int:
        with engine.begin() as connection:
            return len(connection.execute(select(attempts.c.fence)).all())

    try:
        doomed = project.worker(CONCURRENCY="50")
        project.until_signs(f"stands-{doomed.pid}", 20)
        until(lambda: ended() == 30, "30 have been acknowledged")
        with engine.begin() as connection:
            held = connection.execute(select(jobs.c.id).where(jobs.c.state == "reserved")).scalars().all()
        assert sorted(held) == ids[30:]

        doomed.send(signal.SIGKILL)
        assert doomed.ends() == -signal.SIGKILL
        settled = upkeep.reap(services)

        assert len(settled.fates) == 20
        project.sign("go")
        project.worker(CONCURRENCY="50")
        until(lambda: ended() == 70, "20 have run again")
    finally:
        project.end()
    with engine.begin() as connection:
        found = connection.execute(select(attempts.c.job_id, attempts.c.outcome)).all()
        left = connection.execute(select(jobs.c.state).where(jobs.c.topic_id.is_not(None))).scalars().all()
    runs = Counter(job_id for job_id, _ in found)
    assert left == ["done"] * 50
    assert sorted(job_id for job_id, count in runs.items() if count == 2) == ids[30:]
    assert Counter(outcome for _, outcome in found) == {"done": 50, "expired": 20}
