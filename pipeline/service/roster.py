"""The workers' own notes of being at work, for human eyes; floor 2. Leases alone tell who is alive."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from pipeline.service.base import Service
from pipeline.sql import roster
from pipeline.sql.batch import bound


@dataclass(frozen=True, slots=True)
class Hand:
    """One worker process as it last noted itself."""

    name: str
    pid: int
    started_at: datetime
    seen_at: datetime
    seconds: float  # since then
    site: str | None  # the only one that it works on; None: all
    leases: Mapping[str, float]  # by the stage names that it knows, in seconds

    def works_on(self, site: str) -> bool:
        return self.site in (None, site)


class Roster(Service):
    """Who works."""

    rouses = False

    def see(self, name: str, pid: int, site: str | None, leases: Mapping[str, timedelta]) -> None:
        """Note that a worker is at work, on which site (None: all) and stages; forget those long unseen."""
        noted = {"site": site, "stages": {stage: lease.total_seconds() for stage, lease in leases.items()}}

        def body(connection: Connection) -> None:
            connection.execute(roster.forget(self._clock))
            connection.execute(roster.see(self._clock), bound(name=name, pid=pid, stages=noted))

        self._write(body)

    def leave(self, name: str) -> None:
        """The worker has ended in order."""
        self._write(lambda connection: connection.execute(roster.leave(), bound(name=name)))

    def hands(self, within: timedelta | None = None) -> tuple[Hand, ...]:
        """The workers seen ``within`` that time (None: all that are noted), the oldest first."""
        with self._reading() as connection:
            return hands(connection.execute(roster.listing(self._clock)).all(), within)


def hands(rows: Any, within: timedelta | None) -> tuple[Hand, ...]:
    """Rows of ``roster.listing`` as views."""
    return tuple(
        Hand(
            row.name, row.pid, row.started_at, row.seen_at, float(row.seconds),
            row.stages.get("site"), dict(row.stages.get("stages") or {}),
        )
        for row in rows
        if within is None or row.seconds <= within.total_seconds()
    )  # fmt: skip
