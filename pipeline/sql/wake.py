"""The word to idle workers that there is work; floor 1."""

from functools import cache
from typing import Any

from sqlalchemy import Select, TextClause, bindparam, func, select, text


@cache
def ring() -> Select[Any]:
    """Tell all who listen to the ``channel``; they are told when the transaction commits."""
    return select(func.pg_notify(bindparam("p_channel"), ""))


@cache
def lightly() -> TextClause:
    """Wait for no disk in this transaction: what it writes may be lost."""
    return text("SET LOCAL synchronous_commit = off")
