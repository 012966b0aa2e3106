"""The audit: invariants and liveness questions, asked of the database one by one; floor 2."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, FromClause, Select, func, literal_column, select, text
from sqlalchemy.exc import DBAPIError

from pipeline.db import quoted, reason, sqlstate
from pipeline.sql.audit import INVARIANTS
from pipeline.sql.audit.laws import laws
from pipeline.sql.audit.liveness import LIVENESS

MAX_ROWS = 20
# Sorts and hashes of a whole table go to disk in what a server allows by default.
ROOM = "SET LOCAL work_mem = '64MB'; SET LOCAL statement_timeout = '60s'"
PATIENT = f"{ROOM}; SET LOCAL statement_timeout = 0"
# An index is no witness for itself.
BY_ROWS = "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off"
UNSEEN = {"42501": "this role may not read it", "57014": "it takes longer than a minute: add --strict"}


@dataclass(frozen=True, slots=True)
class Violation:
    """One row that breaks an invariant, and what that invariant says."""

    invariant: str
    meaning: str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question of the audit found: rows that should not be there, at most ``MAX_ROWS``."""

    name: str
    meaning: str
    rows: tuple[dict[str, Any], ...]
    unseen: str | None = None  # why it could not be asked


class Audit:
    """Looks whether the promises hold; writes nothing."""

    def __init__(self, engine: Engine, schema: str) -> None:
        self._engine = engine
        self._schema = schema

    def violations(self) -> list[Violation]:
        """What breaks an invariant just now, at most ``MAX_ROWS`` rows of each; empty when all is well.

        Each query reads one snapshot, so this may be asked while others work.
        """
        with self._looking(patient=False) as connection:
            found = {name: _read(connection, _plain(query)) for name, (_, query) in INVARIANTS.items()}
        return [Violation(name, INVARIANTS[name][0], row) for name, rows in found.items() for row in rows]

    def invariants(self, *, patient: bool = False) -> Iterator[Answer]:
        """Every invariant, as it is answered, each in a transaction of its own.

        What could not be asked is said, not raised: what the role may not read, and what takes longer than a minute,
        unless one is ``patient``.
        """
        for name, (meaning, query) in INVARIANTS.items():
            yield self._answer(name, meaning, _plain(query), patient=patient)

    def liveness(self) -> Iterator[Answer]:
        """What waits for somebody although nobody works; it breaks no promise."""
        for name, (meaning, query) in LIVENESS.items():
            yield self._answer(name, meaning, _plain(query), patient=False)

    def laws(self) -> Iterator[Answer]:
        """Every row judged by every CHECK, unique and foreign key of this release, whether the database has it or not.

        Reads all tables, and takes its time.
        """
        for law in laws():
            yield self._answer(law.name, law.meaning, law.broken.subquery("q"), patient=True, by_index=False)

    def _answer(self, name: str, meaning: str, query: FromClause, *, patient: bool, by_index: bool = True) -> Answer:
        try:
            with self._looking(patient=patient) as connection:
                if not by_index:
                    connection.execute(text(BY_ROWS))
                return Answer(name, meaning, tuple(_read(connection, query)))
        except DBAPIError as error:
            if (why := UNSEEN.get(sqlstate(error) or "")) is None:
                raise
            return Answer(name, meaning, (), f"{why} ({reason(error)})")

    @contextmanager
    def _looking(self, *, patient: bool) -> Iterator[Connection]:
        with self._engine.connect() as connection, connection.begin():
            connection.execute(text("SET TRANSACTION READ ONLY"))
            connection.execute(text(PATIENT if patient else ROOM))
            connection.execute(text("SELECT set_config('search_path', :path, true)"), {"path": quoted(self._schema)})
            yield connection


def _plain(query: str) -> FromClause:
    return text(query).columns().subquery("q")


def _read(connection: Connection, query: FromClause) -> list[dict[str, Any]]:
    """The first rows, as JSON: a row that is broken may hold what the driver cannot read, such as infinity."""
    statement: Select[Any] = select(func.row_to_json(literal_column("q"))).select_from(query)
    with connection.execution_options(stream_results=True).execute(statement) as result:
        return list(result.scalars().fetchmany(MAX_ROWS))
