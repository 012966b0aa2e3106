"""The audit: every invariant asked of the database, in one read-only transaction; floor 2."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text

from pipeline.sql.audit import INVARIANTS

MAX_ROWS = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One row that breaks an invariant, and what that invariant says."""

    invariant: str
    meaning: str
    row: dict[str, Any]


class Audit:
    """Looks whether the promises hold; writes nothing."""

    def __init__(self, engine: Engine, schema: str) -> None:
        self._engine = engine
        self._schema = schema

    def violations(self) -> list[Violation]:
        """What breaks an invariant just now, at most ``MAX_ROWS`` rows of each; empty when all is well.

        Each query reads one snapshot, so this may be asked while others work.
        """
        found: list[Violation] = []
        with self._engine.connect() as connection, connection.begin():
            connection.execute(text("SET TRANSACTION READ ONLY"))
            connection.execute(
                text("SELECT set_config('search_path', :schema, true)"), {"schema": _quoted(self._schema)}
            )
            connection = connection.execution_options(stream_results=True)  # no more rows than are shown
            for name, (meaning, query) in INVARIANTS.items():
                with connection.execute(text(query)) as result:
                    rows = result.mappings().fetchmany(MAX_ROWS)
                found += [Violation(name, meaning, dict(row)) for row in rows]
        return found


def _quoted(schema: str) -> str:
    """The schema's name as one element of a search path."""
    return '"' + schema.replace('"', '""') + '"'
