"""Shared pieces of statements: a batch as one parameter, words as literals; floor 1.

A batch travels as one JSON text and is a table on the server: one parameter whatever its size, no per-row binding
(psycopg's list dumper took a third of the client's time), and one prepared statement for all sizes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Interval,
    Text,
    bindparam,
    cast,
    column,
    func,
    literal_column,
)
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine

GATES = cast(bindparam("gates"), ARRAY(BigInteger))
"""The ids of the gates that this transaction has locked."""


SECOND = literal_column("interval '1 second'", Interval)
ONE = literal_column("1", Integer)  # a literal, so that a cached plan knows it


def word(value: str) -> ColumnElement[str]:
    """A state or other constant of ours as a literal: bound, it would miss partial indexes under a generic plan."""
    if not value.isidentifier():
        raise ValueError(f"{value!r} is no word of ours")
    return literal_column(f"'{value}'", Text)


def bound(**values: Any) -> dict[str, Any]:
    """Plain parameters under the names that statements give them: a bare name would be taken for a column to be set."""
    return {f"p_{name}": value for name, value in values.items()}


def table(name: str, /, **columns: type[TypeEngine[Any]] | TypeEngine[Any]) -> TableValuedAlias:
    """The batch parameter ``name`` as a table of the given columns."""
    parts = [column(key, kind if isinstance(kind, TypeEngine) else kind()) for key, kind in columns.items()]
    return (
        func.json_to_recordset(cast(bindparam(name, type_=JSON()), JSON()))
        .table_valued(*parts)
        .render_derived(name=f"{name}_in", with_types=True)
    )


def rows(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A batch, ready to be bound to a ``table``: UUIDs, times and the like become text."""
    return [{key: _plain(value) for key, value in item.items()} for item in items]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool | dict | list) else str(value)


def not_over(job: FromClause) -> ColumnElement[bool]:
    """The job is neither done nor skipped: it has no end. Said by its state, the planner would see the index of what is
    unfinished as a way to whatever has any one of the other states, and walk it whole."""
    return job.c.finished_at.is_(None)
