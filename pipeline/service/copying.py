"""Rows into a table by COPY, in a transaction that is under way; floor 2.

Why: measured over 100,000 topics, the server works a third less for them than for an INSERT of the same rows from JSON,
and it writes one row while the next is still being made. It takes no conflict for an answer and returns nothing, so it
is for rows whose places are held.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

from pipeline.db import quoted


def copy_in(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert the rows, whose values are texts and numbers in the order of ``columns``.

    Raises what any statement does: DBAPIError, and its subclasses.
    """
    schema = connection.get_execution_options()["schema_translate_map"][None]
    statement = f"COPY {quoted(schema)}.{quoted(table.name)} ({', '.join(map(quoted, columns))}) FROM STDIN"
    driver: psycopg.Connection[Any] = connection.connection.dbapi_connection  # type: ignore[assignment]
    try:
        with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:  # SQLAlchemy knows nothing of COPY, so it cannot tell of it in its own words
        if driver.closed:
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement,
            None,
            error,
            psycopg.Error,
            hide_parameters=True,
            connection_invalidated=driver.closed,
            dialect=connection.dialect,
        ) from error
