"""The one clock: the database's; ground floor.

Due times, leases and schedules are judged by the server (never by a worker's clock), in two forms. ``statement()`` is
stable, so that an index can use it in a condition; ``stored()`` is true even inside a transaction that began long ago.
"""

from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import ColumnElement, DateTime, func, literal


class Clock(Protocol):
    """Yields SQL for "now"."""

    def statement(self) -> ColumnElement[datetime]:
        """The time at which the statement began: for predicates."""
        ...

    def stored(self) -> ColumnElement[datetime]:
        """The time of evaluation: for values that are stored."""
        ...


class DatabaseClock:
    """The server's clock."""

    def statement(self) -> ColumnElement[datetime]:
        return func.statement_timestamp(type_=DateTime(timezone=True))

    def stored(self) -> ColumnElement[datetime]:
        return func.clock_timestamp(type_=DateTime(timezone=True))


class FrozenClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def statement(self) -> ColumnElement[datetime]:
        return literal(self.at, DateTime(timezone=True))

    def stored(self) -> ColumnElement[datetime]:
        return self.statement()

    def advance(self, by: timedelta) -> None:
        self.at += by
