"""What any worker does now and then for all: take back what others left, promote what stands ready, let what became
pending in a paused lane wait; engine room.

Nobody is elected: every guard stands in the write, so any number may do this at once.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from pipeline.build import Services
from pipeline.db import reason, sqlstate
from pipeline.holder import is_gone
from pipeline.service.acknowledging import Fate, Settled, both
from pipeline.service.work import Expired, Patience

T = TypeVar("T")

log = logging.getLogger("pipeline")

QUIET = 60.0  # seconds between two lines about one thing
WAIT = 1.0  # seconds for gates that others have locked, in all; the rest is left for the next time


def reap(services: Services, site_id: int | None = None) -> Settled:
    """Take back reservations whose lease is over, and at once those of processes of this machine that are gone.

    One that cannot be written is told and left: it keeps nobody else. Nor does one behind a gate that another has
    locked: it is waited for last, and not for long.
    """
    found = [one for one in services.work.expired(site_id) if one.over or is_gone(one.holder)]
    settled = Settled()
    for one in found:
        settled = both(settled, _reap(services, one, Patience.NONE))
    until = time.monotonic() + WAIT
    for one in found:
        if settled.fates.get(one.fence) is Fate.BUSY and time.monotonic() < until:
            settled = both(settled, _reap(services, one, Patience.A_MOMENT))
    return settled


def _reap(services: Services, one: Expired, patience: Patience) -> Settled:
    step = partial(services.work.reap, [one], holder_is_gone=not one.over, patience=patience)
    return guarded(f"job {one.job_id} cannot be taken back", step) or Settled()


_told: dict[str, float] = {}


def guarded(what: str, step: Callable[[], T]) -> T | None:
    """Do a step of upkeep; when a row of it breaks a law of the database, that is told now and then, and all else goes
    on."""
    try:
        return step()
    except DBAPIError as error:
        if (sqlstate(error) or "")[:2] not in ("22", "23", "54"):
            raise
        now = time.monotonic()
        if now - _told.get(what, -QUIET) >= QUIET:
            _told[what] = now
            log.warning("%s: %s", what, reason(error))
        return None


class Upkeep:
    """Reaps, settles and heals each ``every``; the first time at once."""

    def __init__(self, services: Services, site_ids: Callable[[], list[int]], every: timedelta) -> None:
        self._services = services
        self._site_ids = site_ids
        self._every = every.total_seconds()
        self._next = 0.0
        self.healed = 0

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def hasten(self) -> None:
        """Let it be due at once."""
        self._next = 0.0

    def run(self) -> frozenset[tuple[int, str, int]]:
        """Do it; returns the prefixes that this made ready."""
        self._next = time.monotonic() + self._every
        ready: set[tuple[int, str, int]] = set()
        for site_id in self._site_ids():
            ready |= reap(self._services, site_id).ready
            guarded("a pause cannot be repeated", partial(self._services.lanes.settle, site_id))
            move_on = partial(self._services.planning.move_on, site_id)
            guarded("jobs of a retired stage cannot move on", move_on)
            self.healed += guarded("turns cannot be given", partial(self._services.work.heal, site_id)) or 0
        return frozenset(ready)
