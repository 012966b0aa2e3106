"""How Alembic meets the database: a direct connection, one schema, one migration at a time.

Revisions stay unqualified: ``search_path`` holds the schema alone. Alembic's configuration never sees a URL, since its
interpolation would read a percent sign; URL and connection come as attributes, or from the settings.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from alembic import context
from alembic.operations.ops import MigrationScript
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.util import CommandError
from sqlalchemy import URL, Connection, func, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.schema import CreateSchema

from pipeline.db import check_server, reason, sqlstate
from pipeline.errors import PipelineError
from pipeline.migrate import LOCK_TIMEOUT, PATIENCE, direct_engine, lock_key, quoted, refuse_pooler
from pipeline.models import Base
from pipeline.settings import load_settings

config = context.config


def changes_something() -> bool:
    """Whether this run may write: upgrade, downgrade and stamp have a revision to reach, check has none."""
    try:
        context.get_revision_argument()
    except KeyError:
        return False
    except CommandError:  # a relative one, such as -1: still to be resolved
        return True
    return True


@contextmanager
def turn(connection: Connection, schema: str) -> Iterator[None]:
    """Hold the schema's turn.

    Asks again and again instead of waiting inside the server: a waiter there keeps a snapshot, on which a concurrent
    index build of the holder waits in its turn, and the server ends one of them as a deadlock.
    """
    key = lock_key(schema)
    give_up = time.monotonic() + config.attributes.get("patience", PATIENCE).total_seconds()
    while not connection.scalar(select(func.pg_try_advisory_lock(key))):
        connection.rollback()
        if time.monotonic() > give_up:
            raise CommandError("another migration is still running; nothing was changed; try again when it has ended")
        time.sleep(0.1)
    connection.commit()
    try:
        yield
    finally:
        with suppress(DBAPIError):  # a broken connection has given it back already
            connection.rollback()
            connection.execute(select(func.pg_advisory_unlock(key)))
            connection.commit()


def make_schema(connection: Connection, schema: str) -> None:
    """Make the schema if it is missing; so an owner who may not make schemas can still work in one made for him."""
    if not connection.scalar(text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": schema}):
        try:
            connection.execute(CreateSchema(schema))
        except DBAPIError as error:
            if sqlstate(error) != "42501":
                raise
            connection.rollback()
            role = connection.scalar(text("SELECT current_user"))
            raise CommandError(
                f"no schema '{schema}' in this database, and role '{role}' may not make it; let an administrator run: "
                f"CREATE SCHEMA {quoted(schema)} AUTHORIZATION {quoted(str(role))}"
            ) from error
    connection.commit()


def limit(connection: Connection) -> None:
    """The time limits of a revision. A concurrent build lifts them for itself; this puts them back."""
    connection.execute(select(func.set_config("lock_timeout", LOCK_TIMEOUT, False)))
    connection.execute(text("RESET statement_timeout"))


@contextmanager
def inside(connection: Connection, schema: str) -> Iterator[None]:
    """The connection, seeing that schema alone. Nothing is left open: autocommit blocks fail in an open transaction."""
    outside = connection.dialect.default_schema_name
    connection.execute(select(func.set_config("search_path", quoted(schema), False)))
    limit(connection)
    connection.commit()
    connection.dialect.default_schema_name = schema
    try:
        yield
    finally:
        connection.dialect.default_schema_name = outside
        with suppress(DBAPIError):
            connection.rollback()
            for name in ("search_path", "lock_timeout", "statement_timeout"):
                connection.execute(text(f"RESET {name}"))
            connection.commit()


def applied(ctx: MigrationContext, step: MigrationInfo, heads: object, run_args: object) -> None:
    """Runs inside the transaction of each revision, at its end."""
    assert ctx.connection is not None
    limit(ctx.connection)
    if (tell := config.attributes.get("applied")) is not None:
        tell(step)


def number(_context: object, _revision: object, directives: Iterable[MigrationScript]) -> None:
    """Number a new revision after the last one."""
    for script in directives:
        script.rev_id = f"{int(context.script.get_current_head() or 0) + 1:04}"


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        # A concurrent build commits what is open, so each revision is a transaction of its own.
        transaction_per_migration=True,
        compare_type=True,
        compare_server_default=True,
        autogenerate_plugins=["alembic.autogenerate.*", "alembic.ext.checkconstraint_byname"],
        process_revision_directives=number,
        on_version_apply=applied,
    )
    with context.begin_transaction():
        context.run_migrations()


def migrate(connection: Connection) -> None:
    if connection.in_transaction():
        raise CommandError("a transaction is open on this connection; end it first")
    refuse_pooler(connection)
    schema = config.attributes.get("schema") or load_settings().db_schema
    if not changes_something():
        with inside(connection, schema):
            run(connection)
        return
    check_server(connection)
    connection.rollback()
    with turn(connection, schema):
        make_schema(connection, schema)
        with inside(connection, schema):
            run(connection)


def migrate_at(url: str | URL) -> None:
    engine = direct_engine(url)
    with engine.connect() as connection:
        migrate(connection)


def main() -> None:
    if context.is_offline_mode():
        raise CommandError("revisions need a database: turns are taken and indexes built there; leave out --sql")
    if (connection := config.attributes.get("connection")) is not None:
        migrate(connection)
    elif (url := config.attributes.get("url")) is not None:
        migrate_at(url)
    else:
        from pipeline.build import open_database  # only plain `alembic` needs it

        logging.basicConfig(format="%(message)s")  # to stderr
        logging.getLogger("alembic.runtime.migration").setLevel(logging.INFO)
        try:
            with open_database(load_settings()) as found:
                migrate_at(found)
        except PipelineError as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"the database refused: {reason(error)}") from error


main()
