"""The schema's revisions, run and compared; engine room.

The doors call this, ``alembic/env.py`` does the work, so plain ``alembic upgrade head`` is the same thing. It never
prints, and leaves the host's logging alone. Alembic is imported inside functions: what only checks the schema, as every
command does, reads the numbers off the file names and is spared that import.
"""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, NullPool, column, create_engine, func, inspect, select, table, text
from sqlalchemy.exc import DBAPIError

from pipeline.db import is_pooled, parse_url, quoted as quoted, reason, sqlstate
from pipeline.errors import DatabaseError, SchemaError

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.runtime.migration import MigrationInfo

Progress = Callable[[str, str], None]
"""Called after each revision with its number and its title."""

PATIENCE = timedelta(seconds=60)
"""How long to wait for another migration of the same schema."""

LOCK_TIMEOUT = "5s"
"""How long a revision waits for a lock, while work queues up behind it; concurrent builds wait as long as they must."""

_process = threading.Lock()  # Alembic's ``op`` and ``context`` exist once in a process

_PLACE = text(
    """
    SELECT n.oid IS NOT NULL, n.oid IS NULL OR has_schema_privilege(n.oid, 'USAGE'),
           c.oid IS NOT NULL, c.oid IS NULL OR has_table_privilege(c.oid, 'SELECT'), current_user
    FROM (SELECT) AS one
    LEFT JOIN pg_namespace n ON n.nspname = :schema
    LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'alembic_version'
    """
)


def scripts() -> Path:
    """The directory of the revisions: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "alembic"


def numbers() -> list[str]:
    """Every revision of this release, oldest first, from the file names."""
    found = sorted(path.name.partition("_")[0] for path in (scripts() / "versions").glob("[0-9]*_*.py"))
    if not found:
        raise SchemaError(f"this installation has lost its revisions (none in {scripts()}); install pipeline again")
    return found


def head() -> str:
    """The revision that this release needs."""
    return numbers()[-1]


def titles() -> list[tuple[str, str]]:
    """Every revision of this release with its title, oldest first."""
    from alembic.script import ScriptDirectory

    found = ScriptDirectory.from_config(_config()).walk_revisions()
    return sorted((script.revision, script.doc) for script in found)


def lock_key(schema: str) -> int:
    """The advisory lock that migrations of this schema take turns by."""
    return int.from_bytes(sha256(f"pipeline migrations of {schema}".encode()).digest()[:8], signed=True)


def direct_engine(url: str | URL) -> Engine:
    """An engine for one migration: session state is allowed here, so no pool and no pooler may stand in between."""
    return create_engine(
        parse_url(url) if isinstance(url, str) else url,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        poolclass=NullPool,
        connect_args={"client_encoding": "utf8", "connect_timeout": 10, "prepare_threshold": None},
    )


def refuse_pooler(connection: Connection) -> None:
    """Raise SchemaError when a pooler stands in between: a migration keeps its turn and its limits in the session."""
    if is_pooled(connection.connection.driver_connection):
        raise SchemaError(
            "migrations need a direct connection, and a pooler stands in between; "
            "name the server itself in PIPELINE_DATABASE_URL for this command"
        )


def upgrade(
    url: str | URL,
    schema: str,
    revision: str = "head",
    *,
    progress: Progress | None = None,
    patience: timedelta = PATIENCE,
) -> list[str]:
    """Bring the schema up to a revision; the numbers of those applied, oldest first.

    Makes the schema if it is missing. Each revision is kept as soon as it is done: after an error, run it again.
    """
    return _move("upgrade", url, schema, revision, progress, patience)


def downgrade(
    url: str | URL, schema: str, revision: str, *, progress: Progress | None = None, patience: timedelta = PATIENCE
) -> list[str]:
    """Take the schema down to a revision or to ``base``; the numbers of those taken back, newest first."""
    return _move("downgrade", url, schema, revision, progress, patience)


def current(url: str | URL, schema: str) -> str | None:
    """The revision that the schema is at; None when it is missing, or nothing was ever applied."""
    with _told(), direct_engine(url).connect() as connection:
        return _standing(connection, schema)


def contents(url: str | URL, schema: str) -> tuple[int, int]:
    """How many sites and topics a schema holds, at whatever revision it is."""
    with _told(), direct_engine(url).connect() as connection:
        there = set(inspect(connection).get_table_names(schema=schema))
        sites, topics = (
            connection.scalar(select(func.count()).select_from(table(name, schema=schema))) if name in there else 0
            for name in ("sites", "topics")
        )
    return sites or 0, topics or 0


def check_schema(connection_or_engine: Connection | Engine, schema: str) -> None:
    """Raise SchemaError, with the next step, unless the schema is exactly the one that this release needs."""
    if isinstance(connection_or_engine, Engine):
        with _told(), connection_or_engine.connect() as connection:
            at = _standing(connection, schema, must_exist=True)
    elif connection_or_engine.in_transaction():
        at = _standing(connection_or_engine, schema, must_exist=True)
    else:
        with connection_or_engine.begin():
            at = _standing(connection_or_engine, schema, must_exist=True)
    if at is None:
        raise SchemaError(f"the schema '{schema}' holds no tables of pipeline yet; run: pipeline db upgrade")
    _refuse_unknown(at)
    if at != head():
        raise SchemaError(f"the schema is at {at}, this release needs {head()}; run: pipeline db upgrade")


def drift(url: str | URL, schema: str) -> list[str]:
    """What ``alembic check`` finds between models and database, a line each; raises as ``check_schema`` does.

    It cannot see the predicate of an index or the text of a CHECK: those it knows by name only.
    """
    from alembic import command
    from alembic.util import AutogenerateDiffsDetected

    check_schema(direct_engine(url), schema)
    with _told(), _alembic():
        try:
            command.check(_config(url=url, schema=schema))
        except AutogenerateDiffsDetected as found:
            flat = [one for diff in found.diffs for one in (diff if isinstance(diff, list) else [diff])]
            return [_line(*diff) for diff in flat]
    return []


def _move(
    verb: str, url: str | URL, schema: str, revision: str, progress: Progress | None, patience: timedelta
) -> list[str]:
    from alembic import command

    moved: list[str] = []

    def applied(step: "MigrationInfo") -> None:
        moved.append(str(step.up_revision_id))
        if progress is not None:
            progress(moved[-1], str(getattr(step.up_revision, "doc", "")))

    if (at := current(url, schema)) is not None:
        _refuse_unknown(at)
    config = _config(url=url, schema=schema, applied=applied, patience=patience)
    with _told(lambda: moved[-1] if moved else at), _alembic():
        getattr(command, verb)(config, revision)
    return moved


def _config(**attributes: Any) -> "Config":
    from alembic.config import Config

    config = Config(stdout=io.StringIO(), attributes=attributes)
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _standing(connection: Connection, schema: str, *, must_exist: bool = False) -> str | None:
    exists, usable, has_versions, readable, role = connection.execute(_PLACE, {"schema": schema}).one()
    if not usable or not readable:
        rights = [] if usable else [f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(role)}"]
        if not readable:
            every = f"ON ALL TABLES IN SCHEMA {quoted(schema)} TO {quoted(role)}"
            rights.append(f"GRANT SELECT, INSERT, UPDATE, DELETE {every}")
        raise SchemaError(f"role '{role}' may not read the schema '{schema}'; let its owner run: {'; '.join(rights)}")
    if must_exist and not exists:
        raise SchemaError(f"no schema '{schema}' in this database; run: pipeline db upgrade")
    if not has_versions:
        return None
    versions = table("alembic_version", column("version_num"), schema=schema)
    rows = connection.scalars(select(versions.c.version_num).order_by(versions.c.version_num)).all()
    return ", ".join(rows) or None


def _refuse_unknown(at: str) -> None:
    if at not in numbers():
        raise SchemaError(
            f"the schema is at {at}, which this release does not know; install the newer release, "
            "or name another schema in PIPELINE_SCHEMA"
        )


@contextmanager
def _told(last: Callable[[], str | None] | None = None) -> Iterator[None]:
    """The driver's errors, in our tree; ``last`` tells the last revision that a migration has done."""
    try:
        yield
    except DBAPIError as error:
        if last is None or error.connection_invalidated:
            raise DatabaseError(reason(error)) from error
        fact = "a lock was not free in time" if sqlstate(error) == "55P03" else reason(error)
        place = f"after {done}" if (done := last()) else "at its start"
        raise DatabaseError(f"the migration stopped {place}: {fact}; what was done is kept, run it again") from error


@contextmanager
def _alembic() -> Iterator[None]:
    """Alembic for one thread at a time, its refusals in our tree."""
    from alembic.util import CommandError

    with _process:
        try:
            yield
        except CommandError as error:
            raise SchemaError(str(error)) from error


def _line(verb: str, *rest: Any) -> str:
    """One difference, told from the database's side."""
    change, _, kind = verb.partition("_")
    word = {"add": "missing", "remove": "unexpected"}.get(change, "different")
    kind = {"fk": "foreign key"}.get(kind, kind.replace("_", " "))
    if change == "modify":
        _, table_name, column_name, _, existing, wanted = rest
        return f"{word}: {kind} of column {table_name}.{column_name} is {existing!s}, not {wanted!s}"
    if kind == "column":
        return f"{word}: column {rest[1]}.{rest[2].name}"
    owner = getattr(rest[0], "table", None)
    return f"{word}: {kind} {rest[0].name}" + (f" on {owner.name}" if owner is not None else "")
