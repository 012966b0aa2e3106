"""The one clock: the database's; ground floor.

Due times, leases and schedules are judged by the server (never by a worker's clock), in two forms. ``statement()`` is
stable, so that an index can use it in a condition; ``stored()`` is true even inside a transaction that began long ago.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, DateTime, bindparam, func


class Clock(ABC):
    """Yields SQL for "now"."""

    @abstractmethod
    def statement(self) -> ColumnElement[datetime]:
        """The time at which the statement began: for predicates."""

    @abstractmethod
    def stored(self) -> ColumnElement[datetime]:
        """The time of evaluation: for values that are stored."""


@dataclass(frozen=True)
class DatabaseClock(Clock):
    """The server's clock. All are equal, so that statements built with one serve all."""

    def statement(self) -> ColumnElement[datetime]:
        return func.statement_timestamp(type_=DateTime(timezone=True))

    def stored(self) -> ColumnElement[datetime]:
        return func.clock_timestamp(type_=DateTime(timezone=True))


class FrozenClock(Clock):
    """A clock that stands still until a test moves it."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def statement(self) -> ColumnElement[datetime]:
        # Asked when the statement runs: statements are built once and kept.
        return bindparam(None, callable_=lambda: self.at, type_=DateTime(timezone=True))

    def stored(self) -> ColumnElement[datetime]:
        return self.statement()

    def advance(self, by: timedelta) -> None:
        self.at += by
