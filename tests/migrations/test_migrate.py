"""What the doors are told: where the schema stands, and what to do about it."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from pipeline import migrate
from pipeline.errors import DatabaseError, SchemaError
from tests.warm import Process

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def engine(fresh_database: str) -> Engine:
    return create_engine(fresh_database, poolclass=NullPool)


def run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def refusal(engine: Engine, schema: str = "pipeline") -> str:
    with pytest.raises(SchemaError) as caught:
        migrate.check_schema(engine, schema)
    return str(caught.value)


@pytest.mark.migrated
def test_the_schema_of_this_release_is_accepted(fresh_database: str, engine: Engine) -> None:
    """By engine and by connection, inside a transaction or not; the connection is left as it was."""
    migrate.check_schema(engine, "pipeline")
    with engine.connect() as connection:
        migrate.check_schema(connection, "pipeline")
        assert not connection.in_transaction()
        with connection.begin():
            migrate.check_schema(connection, "pipeline")
            assert connection.in_transaction()


def test_a_missing_schema_is_told(fresh_database: str, engine: Engine) -> None:
    """Before the first upgrade; and looking makes nothing."""
    assert migrate.current(fresh_database, "pipeline") is None
    assert refusal(engine) == "no schema 'pipeline' in this database; run: pipeline db upgrade"


def test_an_empty_schema_is_told(fresh_database: str, engine: Engine) -> None:
    """Made by an administrator, or gone down to base."""
    told = "the schema 'pipeline' holds no tables of pipeline yet; run: pipeline db upgrade"
    run(engine, "CREATE SCHEMA pipeline")
    assert refusal(engine) == told

    migrate.upgrade(fresh_database, "pipeline")
    migrate.downgrade(fresh_database, "pipeline", "base")

    assert refusal(engine) == told
    assert migrate.current(fresh_database, "pipeline") is None


def test_a_schema_that_is_behind_is_told(fresh_database: str, engine: Engine) -> None:
    """Both numbers and the command."""
    migrate.upgrade(fresh_database, "pipeline", "0007")

    told = f"the schema is at 0007, this release needs {migrate.head()}; run: pipeline db upgrade"
    assert refusal(engine) == told
    with pytest.raises(SchemaError, match="the schema is at 0007"):
        migrate.drift(fresh_database, "pipeline")


@pytest.mark.migrated
def test_a_schema_that_is_ahead_is_told_and_left_alone(fresh_database: str, engine: Engine) -> None:
    """An older release neither works in it nor migrates it."""
    run(engine, "UPDATE pipeline.alembic_version SET version_num = '4242'")

    told = "the schema is at 4242, which this release does not know; install the newer release"
    assert refusal(engine).startswith(told)
    with pytest.raises(SchemaError, match=told):
        migrate.upgrade(fresh_database, "pipeline")
    with pytest.raises(SchemaError, match=told):
        migrate.downgrade(fresh_database, "pipeline", "base")
    assert migrate.current(fresh_database, "pipeline") == "4242"


def test_an_unknown_revision_is_refused(fresh_database: str) -> None:
    """A mistyped number changes nothing."""
    with pytest.raises(SchemaError, match="9999"):
        migrate.upgrade(fresh_database, "pipeline", "9999")


@pytest.mark.migrated
def test_a_role_without_rights_is_told(fresh_database: str, engine: Engine) -> None:
    """The schema is there, but not for this role: the message is a GRANT."""
    run(engine, "REVOKE USAGE ON SCHEMA pipeline FROM CURRENT_USER")

    assert f'GRANT USAGE ON SCHEMA "pipeline" TO "{engine.url.username}"' in refusal(engine)
    with pytest.raises(SchemaError, match="may not read the schema 'pipeline'"):
        migrate.current(fresh_database, "pipeline")


def test_an_owner_who_may_not_make_schemas_works_in_one_that_exists(fresh_database: str, engine: Engine) -> None:
    """CREATE on the database is asked for only when the schema is missing."""
    run(engine, "CREATE SCHEMA pipeline")
    run(engine, f"REVOKE CREATE ON DATABASE {make_url(fresh_database).database} FROM CURRENT_USER")

    assert migrate.upgrade(fresh_database, "pipeline") == migrate.numbers()
    with pytest.raises(SchemaError, match=f'run: CREATE SCHEMA "other" AUTHORIZATION "{engine.url.username}"'):
        migrate.upgrade(fresh_database, "other")


@pytest.mark.parametrize("part", ["role", "database"])
def test_a_missing_role_or_database_is_told(fresh_database: str, part: str) -> None:
    """One of our errors with the server's reason; no password in it."""
    url = make_url(fresh_database)
    url = url.set(username="nobody") if part == "role" else url.set(database="nowhere")

    for ask in (migrate.current, migrate.upgrade, migrate.drift):
        with pytest.raises(DatabaseError) as caught:
            ask(url, "pipeline")
        assert str(url.password or "***") not in str(caught.value)


def test_a_migration_that_fails_at_its_start_says_so(fresh_database: str, engine: Engine) -> None:
    """A schema that this role may read but not fill: the server's reason, and nothing is there."""
    run(engine, "CREATE SCHEMA pipeline")
    run(engine, "REVOKE CREATE ON SCHEMA pipeline FROM CURRENT_USER")

    with pytest.raises(DatabaseError, match="stopped at its start: permission denied for schema pipeline"):
        migrate.upgrade(fresh_database, "pipeline")

    assert migrate.current(fresh_database, "pipeline") is None


def test_an_unreachable_server_is_told() -> None:
    """Odd characters in the password are neither interpolated nor shown."""
    url = "postgresql://u%25ser:p%25%28here%29s%40%3A%2F@127.0.0.1:1/no%25where"

    for ask in (migrate.current, migrate.upgrade, migrate.drift):
        with pytest.raises(DatabaseError) as caught:
            ask(url, "pipeline")
        assert "here" not in str(caught.value)


def test_percent_signs_in_the_url_are_only_characters(fresh_database: str) -> None:
    """Alembic's configuration would read them as interpolation, so the URL never goes through it."""
    url = make_url(fresh_database).update_query_dict({"application_name": "100% %(here)s %s @:/"})
    if url.password is None:
        url = url.set(password="50% %(here)s @:/ü")

    for given in (url, url.render_as_string(hide_password=False)):
        migrate.upgrade(given, "pipeline")
        assert migrate.drift(given, "pipeline") == []
        migrate.downgrade(given, "pipeline", "base")


def test_progress_is_told_revision_by_revision(fresh_database: str) -> None:
    """Number and title of each, on the way up and on the way down."""
    told: list[tuple[str, str]] = []

    migrate.upgrade(fresh_database, "pipeline", "0002", progress=lambda *step: told.append(step))
    migrate.downgrade(fresh_database, "pipeline", "0001", progress=lambda *step: told.append(step))

    assert told == [("0001", "Create the sites"), ("0002", "Create the lanes"), ("0002", "Create the lanes")]


def test_nothing_is_printed_and_the_hosts_logging_is_left_alone(
    fresh_database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """stdout is for answers, and the host decides what is logged."""
    before = (logging.root.handlers[:], logging.root.level, logging.getLogger("alembic").level)

    migrate.upgrade(fresh_database, "pipeline")
    migrate.drift(fresh_database, "pipeline")
    migrate.downgrade(fresh_database, "pipeline", "base")

    assert capfd.readouterr() == ("", "")
    assert (logging.root.handlers[:], logging.root.level, logging.getLogger("alembic").level) == before


def test_alembic_is_imported_only_when_it_works() -> None:
    """What every command does at its start, checking the schema, is spared the import."""
    code = (
        "import sys; from pipeline import migrate; migrate.head()\n"
        "try: migrate.current('postgresql://u@127.0.0.1:1/x', 'pipeline')\n"
        "except migrate.DatabaseError: sys.exit('alembic' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_connection_may_be_handed_in(fresh_database: str, engine: Engine) -> None:
    """Plain Alembic over the host's own connection, which is then as it was before."""
    with engine.connect() as connection:
        usual = connection.dialect.default_schema_name
        config = Config(ROOT / "alembic.ini", attributes={"connection": connection, "schema": "mine"})
        asked = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('lock_timeout'))"
        before = connection.exec_driver_sql(asked).scalar()
        with pytest.raises(CommandError, match="a transaction is open"):
            command.upgrade(config, "head")
        connection.rollback()

        command.upgrade(config, "head")

        assert not connection.in_transaction()
        assert connection.exec_driver_sql(asked).scalar() == before
        assert connection.dialect.default_schema_name == usual
    migrate.check_schema(engine, "mine")


def test_sql_mode_is_refused(fresh_database: str) -> None:
    """A script cannot take turns."""
    config = Config(ROOT / "alembic.ini", attributes={"url": fresh_database, "schema": "pipeline"})

    with pytest.raises(CommandError, match="leave out --sql"):
        command.upgrade(config, "head", sql=True)


def test_plain_alembic_works_from_the_projects_root(
    fresh_database: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``alembic upgrade head``, ``check``, ``current``, ``downgrade -1``, with the settings of the environment."""
    pytest.importorskip("pipeline.build")
    monkeypatch.setenv("PIPELINE_DATABASE_URL", fresh_database)
    monkeypatch.setenv("PIPELINE_SCHEMA", "from_the_environment")

    def alembic(*words: str) -> str:
        process = Process("alembic", words, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return said

    assert alembic("current") == ""
    assert alembic("upgrade", "head") == ""
    migrate.check_schema(engine, "from_the_environment")
    assert alembic("check") == "No new upgrade operations detected.\n"
    assert alembic("current") == f"{migrate.head()} (head)\n"
    alembic("downgrade", "-1")
    alembic("stamp", "head")
    migrate.check_schema(engine, "from_the_environment")
