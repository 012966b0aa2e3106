"""What any worker does now and then for all: take back what others left, promote what stands ready, let what became
pending in a paused lane wait; engine room.

Nobody is elected: every guard stands in the write, so any number may do this at once.
"""

import time
from collections.abc import Callable
from datetime import timedelta

from pipeline.build import Services
from pipeline.holder import is_gone
from pipeline.service.acknowledging import Settled


def reap(services: Services, site_id: int | None = None) -> Settled:
    """Take back reservations whose lease is over, and at once those of processes of this machine that are gone."""
    found = services.work.expired(site_id)
    over = [e for e in found if e.over]
    gone = [e for e in found if not e.over and is_gone(e.holder)]
    one = services.work.reap(over)
    other = services.work.reap(gone, holder_is_gone=True)
    return Settled({**one.fates, **other.fates}, {**one.outcomes, **other.outcomes}, one.ready | other.ready)


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

    def run(self) -> frozenset[tuple[int, str, int]]:
        """Do it; returns the prefixes that this made ready."""
        self._next = time.monotonic() + self._every
        ready: set[tuple[int, str, int]] = set()
        for site_id in self._site_ids():
            ready |= reap(self._services, site_id).ready
            self._services.lanes.settle(site_id)
            self._services.planning.move_on(site_id)
            self.healed += self._services.work.heal(site_id)
        return frozenset(ready)
