"""The ground that every order of a scenario begins on: the same rows, put back in one round trip; and their audit."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import make_url

from pipeline.models import Base
from pipeline.sql.audit import INVARIANTS
from tests.concurrency.stage import SCHEMA

TABLES = [table.name for table in Base.metadata.sorted_tables]  # parents first
BLOCKERS = "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::int[]) pid"


class Ground:
    """Rows of all tables, kept in a session of its own, which also asks the server who waits for whom."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute(f"SET search_path = {SCHEMA}")
        self._restore = ""
        self._audit = " UNION ALL ".join(
            f"(SELECT '{name}', to_jsonb(q) FROM ({query}) q)" for name, (_, query) in INVARIANTS.items()
        )

    def keep(self) -> None:
        """Remember the rows as they are now."""
        run = self._connection.execute
        emptied = [f"DELETE FROM {SCHEMA}.{name}" for name in reversed(TABLES)]
        filled = []
        for name in TABLES:
            run(f"DROP TABLE IF EXISTS pg_temp.kept_{name}")
            made = run(f"CREATE TEMP TABLE kept_{name} AS TABLE {SCHEMA}.{name}")
            if made.rowcount:
                filled.append(f"INSERT INTO {SCHEMA}.{name} OVERRIDING SYSTEM VALUE TABLE pg_temp.kept_{name}")
        self._restore = "; ".join(["BEGIN", *emptied, *filled, "COMMIT"])

    def restore(self) -> None:
        """Put the rows back; the only ones then."""
        self._connection.execute(self._restore)

    def tidy(self) -> None:
        """Take away what hundreds of restores have left dead."""
        self._connection.execute(f"VACUUM {', '.join(f'{SCHEMA}.{name}' for name in TABLES)}")

    def violations(self) -> list[str]:
        """What breaks an invariant: all of the audit's queries in one statement."""
        found = self._connection.execute(self._audit, prepare=True)
        return [f"{name} ({INVARIANTS[name][0]}): {json.dumps(row)}" for name, row in found]

    def blockers(self, pids: list[int]) -> dict[int, list[int]]:
        """By backend, those that it waits for."""
        return dict(self._connection.execute(BLOCKERS, [pids]).fetchall())


@contextmanager
def ground(url: str) -> Iterator[Ground]:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True, application_name="ground") as connection:
        yield Ground(connection)
