"""PgBouncer in transaction mode between workers and server: each transaction may meet another server session."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pipeline.db import is_pooled, make_engine
from tests.doors.scene import Door
from tests.servers.scratch import LOOPBACK, PgBouncer, Scratch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="no pgbouncer here: apt-get install pgbouncer"),
]

LANES, LENGTH = "abcdef", 5


@pytest.fixture(scope="module")
def pooler(scratch: Scratch, scratch_folder: Path) -> Iterator[PgBouncer]:
    pooler = PgBouncer(scratch_folder, scratch, users=("postgres", "pipeline"))
    pooler.start()
    yield pooler
    pooler.stop()


@pytest.fixture
def pooled(project: Door, pooler: PgBouncer, name: str) -> Door:
    """The project, with the pooler as its server, and enough rows that statements would be prepared."""
    project.env |= {
        "PIPELINE_DATABASE_URL": f"postgresql://pipeline@{LOOPBACK}:{pooler.port}/{name}",
        "PIPELINE_CONCURRENCY": "3",
    }
    project.rows(*(f"{lane},{n},{lane}{n},Title of {lane}{n},page," for lane in LANES for n in range(1, LENGTH + 1)))
    return project


def test_a_pooler_is_known_by_its_process_number(scratch: Scratch, pooler: PgBouncer) -> None:
    """It makes one up; a direct connection has that of the server's process. The connection is left as it was."""
    direct = psycopg.connect(host=LOOPBACK, port=scratch.port, user="pipeline", dbname="postgres")
    pooled = psycopg.connect(host=LOOPBACK, port=pooler.port, user="pipeline", dbname="postgres")

    assert (is_pooled(direct), is_pooled(pooled)) == (False, True)
    assert [(c.autocommit, c.info.transaction_status.name) for c in (direct, pooled)] == [(False, "IDLE")] * 2
    direct.close()
    pooled.close()


@pytest.mark.parametrize(("prepare", "direct", "pooled"), [("auto", 5, None), ("never", None, None), ("always", 5, 5)])
def test_what_is_prepared(
    scratch: Scratch, pooler: PgBouncer, prepare: str, direct: int | None, pooled: int | None
) -> None:
    """Unless told otherwise: statements of direct connections alone."""
    for port, wanted in ((scratch.port, direct), (pooler.port, pooled)):
        url = f"postgresql://pipeline@{LOOPBACK}:{port}/postgres"
        engine = make_engine(url, schema="pipeline", connections=1, name="test", prepare=prepare)  # type: ignore[arg-type]
        with engine.connect() as connection:
            assert connection.connection.driver_connection.prepare_threshold == wanted  # type: ignore[union-attr]
        engine.dispose()


def test_a_whole_run_through_the_pooler(pooled: Door, pooler: PgBouncer, scratch: Scratch, name: str) -> None:
    """Two workers, three server sessions, thirty topics of three stages; nothing to be set; the sessions stay clean."""
    said = pooled("run", "--site", "demo", "--workers", "2")

    assert said.code == 0, said.err
    assert said.out.startswith("demo: 30 of 30 topics live\n")
    assert "error" not in said.err
    assert "away" not in said.err
    (pool,) = (row for row in pooler.ask("SHOW POOLS") if row["database"] == name)
    assert 1 <= sum(int(str(pool[key])) for key in ("sv_active", "sv_idle", "sv_used")) <= 3
    left = scratch.run(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'")
    assert 1 <= int(str(left[0][0])) <= 3  # the fewer sessions did all of it
    url = pooled.env["PIPELINE_DATABASE_URL"]
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM pg_prepared_statements), current_setting('statement_timeout'),"
            " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), current_setting('search_path')"
        ).fetchone()
    assert row == (0, "0", 0, '"$user", public')


def test_prepared_statements_that_a_pooler_mixes_up_are_told(pooled: Door) -> None:
    """Whoever asks for them gets a sentence that names the setting, and exit code 3; there is no half worker."""
    said = pooled("run", "--site", "demo", "--workers", "2", env={"PIPELINE_PREPARE": "always"})

    assert said.code == 3, said
    assert "set PIPELINE_PREPARE=never" in said.err
    assert "prepared statement" in said.err

    assert pooled("run", "--site", "demo", "--workers", "2").code == 0


@pytest.mark.parametrize("words", ["db upgrade", "db check", "db downgrade 0035 --yes"])
def test_migrations_refuse_the_pooler(pooled: Door, words: str) -> None:
    """Their turn and their limits live in a session: the way out is named, and nothing is changed."""
    said = pooled(*words.split())

    assert (said.code, said.out) == (3, "")
    assert "migrations need a direct connection, and a pooler stands in between" in said.err.splitlines()[-1]
    assert pooled("status").code == 0
