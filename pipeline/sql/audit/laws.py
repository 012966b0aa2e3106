"""The laws of the schema as queries: the rows that a CHECK, a unique or a foreign key would refuse; floor 1.

Taken from the models, not from the catalogue: a law that somebody dropped is the one worth asking about, and a unique
index that the machine's collation has broken still says that it is valid.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    Select,
    Table,
    UniqueConstraint,
    and_,
    exists,
    func,
    literal_column,
    select,
)

from pipeline.models import Base


@dataclass(frozen=True, slots=True)
class Law:
    """One constraint of the schema, and the query that finds what breaks it."""

    name: str
    meaning: str
    broken: Select[Any]


def laws() -> Iterator[Law]:
    """Every law of every table, in an order that stays."""
    for table in Base.metadata.sorted_tables:
        for one in sorted(table.constraints, key=lambda c: str(c.name)):
            if isinstance(one, CheckConstraint):
                broken = select(*table.primary_key.columns).where(literal_column(f"NOT ({one.sqltext})", Boolean))
                yield Law(str(one.name), f"every row of {table.name} passes its check", broken)
            elif isinstance(one, PrimaryKeyConstraint | UniqueConstraint):
                yield _unique(str(one.name), table, list(one.columns), [])
            elif isinstance(one, ForeignKeyConstraint):
                yield _foreign(one, table)
        for index in sorted((i for i in table.indexes if i.unique), key=lambda i: str(i.name)):
            where = index.dialect_options["postgresql"]["where"]
            yield _unique(str(index.name), table, list(index.columns), [] if where is None else [where])


def _unique(name: str, table: Table, columns: list[Any], where: list[Any]) -> Law:
    present = [column.is_not(None) for column in columns if column.nullable]
    twice = select(*columns, func.count().label("rows")).where(*where, *present).group_by(*columns)
    return Law(name, f"no two rows of {table.name} share their key", twice.having(func.count() > 1))


def _foreign(key: ForeignKeyConstraint, table: Table) -> Law:
    other = key.referred_table.alias("other")
    pairs = [(element.parent, other.c[element.column.name]) for element in key.elements]
    there = exists().where(and_(*(mine == theirs for mine, theirs in pairs))).correlate(table)
    lost = select(*table.primary_key.columns, *(mine.label(f"to_{mine.name}") for mine, _ in pairs)).where(
        *(mine.is_not(None) for mine, _ in pairs), ~there
    )
    return Law(str(key.name), f"what rows of {table.name} refer to is there", lost)
