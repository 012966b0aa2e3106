"""Shared ground of the tables: names, column kinds, text states."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from sqlalchemy import BigInteger, DateTime, Identity, MetaData, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

identity = Annotated[int, mapped_column(BigInteger, Identity(always=True), primary_key=True)]
moment = Annotated[datetime, mapped_column(DateTime(timezone=True))]
born = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())]


class Base(DeclarativeBase):
    """All tables live in one schema, whose name is a setting (``schema_translate_map``)."""

    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map: ClassVar[dict[Any, Any]] = {int: BigInteger, str: Text, dict[str, Any]: JSONB}


def one_of(column: str, states: type[StrEnum] | tuple[str, ...]) -> str:
    """The CHECK that keeps a text column to its words."""
    words = ", ".join(f"'{state}'" for state in states)
    return f"{column} IN ({words})"


def finite(*columns: str) -> str:
    """The CHECK that refuses ``infinity``: it cannot be read back."""
    return " AND ".join(f"isfinite({column})" for column in columns)
