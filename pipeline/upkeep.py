"""What any worker does now and then for all: take back what others left, promote what stands ready, let what became
pending in a paused lane wait; engine room.

Nobody is elected: every guard stands in the write, so any number may do this at once.
"""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from pipeline.build import Services
from pipeline.db import reason, sqlstate
from pipeline.holder import is_gone
from pipeline.service.acknowledging import Fate, Settled, both
from pipeline.service.order import UPKEEP
from pipeline.service.work import Expired, Patience

T = TypeVar("T")

log = logging.getLogger("pipeline")

QUIET = 60.0  # seconds between two lines about one thing
PRUNE = 0.25  # seconds of each upkeep for what is long over
PRUNE_EVERY = 3600.0  # seconds from the beginning of one round over all sites to that of the next
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
    """Reaps, settles and heals each ``every``; the first time at once. Prunes a little each time, where it may.

    ``prune_after``: how long ago a pass must have ended; 0: nothing is pruned.
    """

    def __init__(
        self,
        services: Services,
        site_ids: Callable[[], list[int]],
        every: timedelta,
        prune_after: timedelta = timedelta(0),
    ) -> None:
        self._services = services
        self._site_ids = site_ids
        self._every = every.total_seconds()
        self._prune_after = prune_after
        self._pruning: Iterator[object] | None = None
        self._next = self._next_prune = 0.0
        self._after: dict[int, str] = {}  # the lane of each site that was looked at last
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
            # So many lanes each time: what stands still in the others costs nothing, and comes to its turn.
            stretch = self._services.lanes.stretch(site_id, self._after.get(site_id, ""))
            self._after[site_id] = stretch.end or ""
            guarded("a pause cannot be repeated", partial(self._services.lanes.settle, site_id, stretch))
            move_on = partial(self._services.planning.move_on, site_id)
            guarded("jobs of a retired stage cannot move on", move_on)
            self.healed += guarded("turns cannot be given", partial(self._services.work.heal, site_id, stretch)) or 0
        if self._prune_after:
            guarded("what is long over cannot be pruned", self._prune)
        return frozenset(ready)

    def _prune(self) -> None:
        """Go on with the round of all sites for a moment, or begin one when the last began long ago."""
        if self._pruning is None:
            if time.monotonic() < self._next_prune:
                return
            self._next_prune = time.monotonic() + PRUNE_EVERY
            prune = partial(self._services.prune.steps, older=self._prune_after, actor=UPKEEP)
            self._pruning = chain.from_iterable(prune(site_id) for site_id in self._site_ids())
        until = time.monotonic() + PRUNE
        for _ in self._pruning:  # each step is a transaction
            if time.monotonic() > until:
                return
        self._pruning = None
