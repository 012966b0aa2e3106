"""Upgrades that meet each other, and upgrades that were cut short."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, func, select, text

from pipeline import migrate
from pipeline.errors import DatabaseError, SchemaError
from tests.fingerprint import fingerprint

ROOT = Path(__file__).resolve().parents[2]
UPGRADE = "import sys; from pipeline import migrate; print(*migrate.upgrade(sys.argv[1], 'pipeline'))"


@pytest.fixture
def engine(fresh_database: str) -> Engine:
    return migrate.direct_engine(fresh_database)


@contextmanager
def turn_taken(engine: Engine, schema: str) -> Iterator[Connection]:
    """A rival migration of that schema, as the server sees one."""
    with engine.connect() as connection:
        assert connection.scalar(select(func.pg_try_advisory_lock(migrate.lock_key(schema))))
        connection.commit()
        yield connection


def wait_for_rivals(connection: Connection, count: int) -> None:
    """Return when that many other connections are in this database."""
    others = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND (query LIKE '%pg_try_advisory_lock%' OR query = 'ROLLBACK')"
    )
    while connection.execute(others).scalar_one() < count:
        connection.rollback()  # the suite's time-out ends this
    connection.rollback()


def test_two_upgrades_at_once_both_succeed(fresh_database: str, engine: Engine) -> None:
    """They take turns: one does the work, the other finds it done, and the result is that of a clean build."""
    command = [sys.executable, "-c", UPGRADE, fresh_database]
    with turn_taken(engine, "pipeline") as rival:
        both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        wait_for_rivals(rival, 2)

    answers = [process.communicate()[0].split() for process in both]

    assert [process.returncode for process in both] == [0, 0]
    assert sorted(answers) == [[], migrate.numbers()]
    migrate.upgrade(fresh_database, "clean")
    assert fingerprint(engine, "pipeline") == fingerprint(engine, "clean")


def test_threads_of_one_process_take_turns(fresh_database: str, engine: Engine) -> None:
    """Alembic exists once in a process; several threads, several schemas and a check do not disturb each other."""
    schemas = ["a", "b", "a", "b"]
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda schema: migrate.upgrade(fresh_database, schema), schemas))
        drifts = list(pool.map(lambda schema: migrate.drift(fresh_database, schema), schemas))

    assert sorted(applied) == [[], [], migrate.numbers(), migrate.numbers()]
    assert drifts == [[], [], [], []]
    assert fingerprint(engine, "a") == fingerprint(engine, "b")


def test_whoever_waits_too_long_changes_nothing(fresh_database: str, engine: Engine) -> None:
    """The turn is another's: a sentence, and not even the schema is made."""
    with turn_taken(engine, "pipeline"), pytest.raises(SchemaError, match="another migration is still running"):
        migrate.upgrade(fresh_database, "pipeline", patience=timedelta(0))

    with pytest.raises(SchemaError, match="no schema 'pipeline'"):
        migrate.check_schema(engine, "pipeline")


def test_the_turn_of_one_schema_does_not_hold_up_another(fresh_database: str, engine: Engine) -> None:
    """The lock's key comes from the schema's name."""
    with turn_taken(engine, "pipeline"):
        applied = migrate.upgrade(fresh_database, "other", "0001", patience=timedelta(0))

    assert applied == ["0001"]


@pytest.mark.migrated
def test_a_check_needs_no_turn(fresh_database: str, engine: Engine) -> None:
    """Looking waits for nobody."""
    with turn_taken(engine, "pipeline"):
        assert migrate.drift(fresh_database, "pipeline") == []


def test_the_turn_is_given_back(fresh_database: str, engine: Engine) -> None:
    """After success and after failure alike."""
    migrate.upgrade(fresh_database, "pipeline")
    with pytest.raises(SchemaError):
        migrate.upgrade(fresh_database, "pipeline", "9999")

    with turn_taken(engine, "pipeline"):
        pass


TWINS = """
INSERT INTO pipeline.sites (slug, name, base_url) VALUES ('acme', 'Acme', 'https://acme.example');
INSERT INTO pipeline.lanes (site_id, name) SELECT id, 'main' FROM pipeline.sites;
INSERT INTO pipeline.topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)
    SELECT site_id, id, 1, 'one', '/one/', 'One', 'page', '{}', '' FROM pipeline.lanes;
INSERT INTO pipeline.jobs (site_id, lane_id, topic_id, position, stage, state, max_attempts)
    SELECT site_id, lane_id, id, position, 'generate', 'waiting', 5 FROM pipeline.topics, generate_series(1, 2);
"""


def test_a_failed_concurrent_build_is_repaired_by_the_next_upgrade(fresh_database: str, engine: Engine) -> None:
    """Twins break a unique build and leave an invalid index; once they are gone, the next upgrade builds it anew."""
    index = "uq_jobs_topic_unfinished"
    number = next(n for n in migrate.numbers() if index in next(migrate.scripts().glob(f"versions/{n}_*")).read_text())
    before = f"{int(number) - 1:04}"
    migrate.upgrade(fresh_database, "pipeline", before)
    with engine.begin() as connection:
        connection.exec_driver_sql(TWINS)

    with pytest.raises(DatabaseError, match=f"stopped after {before}: could not create unique index .{index}"):
        migrate.upgrade(fresh_database, "pipeline")
    broken = {
        (name, definition.split()[-1]) for kind, name, definition in fingerprint(engine, "pipeline") if kind == "index"
    }
    at = migrate.current(fresh_database, "pipeline")
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM pipeline.jobs WHERE id = (SELECT max(id) FROM pipeline.jobs)")
    applied = migrate.upgrade(fresh_database, "pipeline")

    assert (index, "INVALID") in broken
    assert at == before
    assert applied[0] == number
    migrate.upgrade(fresh_database, "clean")
    assert fingerprint(engine, "pipeline") == fingerprint(engine, "clean")


def test_a_lock_that_is_not_free_stops_a_revision(
    fresh_database: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work must not queue up behind a waiting revision: it gives up, what was done is kept, and it can be run again."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "50ms")
    migrate.upgrade(fresh_database, "pipeline", "0001")
    with engine.connect() as worker:
        worker.exec_driver_sql("LOCK pipeline.sites IN ROW EXCLUSIVE MODE")

        with pytest.raises(DatabaseError, match="a lock was not free in time; what was done is kept, run it again"):
            migrate.upgrade(fresh_database, "pipeline")

    assert migrate.current(fresh_database, "pipeline") == "0001"
    assert migrate.upgrade(fresh_database, "pipeline") == migrate.numbers()[1:]


def test_a_concurrent_build_waits_longer_than_that(
    fresh_database: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lifts the limits for itself, and the next revision is under them again."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "50ms")
    number = next(
        n for n in migrate.numbers() if "INDEX =" in next(migrate.scripts().glob(f"versions/{n}_*")).read_text()
    )
    migrate.upgrade(fresh_database, "pipeline", f"{int(number) - 1:04}")
    with ThreadPoolExecutor(1) as pool, engine.connect() as worker:
        worker.exec_driver_sql("LOCK pipeline.revisions IN ROW EXCLUSIVE MODE")
        pid = worker.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        building = pool.submit(migrate.upgrade, fresh_database, "pipeline", number)
        blocked = text(
            "SELECT count(*) FROM pg_stat_activity WHERE :pid = ANY (pg_blocking_pids(pid))"
            " AND clock_timestamp() - state_change > interval '150 ms'"
        )
        with engine.connect() as probe:
            while not probe.scalar(blocked, {"pid": pid}):
                probe.rollback()
                assert not building.done(), building.exception()
        worker.rollback()

        assert building.result() == [number]
