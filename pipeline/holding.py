"""One reservation in a worker's hands, and the clock by which it must be let go; engine room."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.project.site import Site
from pipeline.views import Claim, Draft, Finding, LivePage

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
MARGIN = 0.1  # of the lease: we let go before it ends


def now() -> float:
    """Seconds since boot, time asleep included: a machine that slept past its leases knows it at once.

    All processes of a machine share this clock.
    """
    return time.clock_gettime(_CLOCK)


@dataclass(slots=True)
class Holding:
    """One reservation in our hands. ``until`` is our own clock's idea of when we must have let go."""

    claim: Claim
    until: float
    site: Site
    started: bool = False
    lost: bool = False
    cancel: bool = False
    stop: bool = False
    deadline: datetime | None = None  # as the stage sees it
    due: float | None = None  # the same by our own clock, which nobody can set
    taken: float = field(default_factory=now)
    waited: float = 0.0  # seconds for a thread
    took: float | None = None  # seconds that its stage ran there
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_up(self) -> bool:
        """Its stage may begin to run; no when it was withdrawn."""
        with self.lock:
            self.started = not self.stop
            return self.started

    def withdraw(self) -> bool:
        """It is not to begin any more; no when it has begun."""
        with self.lock:
            self.stop = self.stop or not self.started
            return not self.started

    def ours(self) -> bool:
        """Whether the lease can still be relied on."""
        return not self.lost and now() < self.until

    def half_over(self, moment: float) -> bool:
        """Whether more than half of the lease is over at ``moment``."""
        return self.until - moment < self.claim.lease.total_seconds() / 2

    def extend(self, asked_at: float) -> None:
        self.until = asked_at + self.claim.lease.total_seconds() * (1 - MARGIN)

    def begin(self, deadline: timedelta | None) -> None:
        """The stage begins to run now, and should be over after ``deadline``."""
        if deadline is not None:
            self.deadline = datetime.now(UTC) + deadline
            self.due = now() + deadline.total_seconds()

    def late(self) -> bool:
        return self.due is not None and now() >= self.due

    def cancelled(self) -> bool:
        return self.cancel or self.stop or self.late() or not self.ours()


@dataclass(frozen=True, slots=True)
class Context:
    """What a stage gets beside its topic, in each of the three colours (``pipeline.stages.StageContext``)."""

    site: Site
    fence: int
    attempt: int
    deadline: datetime | None
    draft: Draft | None
    revision: int | None
    findings: Sequence[Finding]
    approved: bool
    corpus: Any
    ledger: Any
    cancelled: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class SiteContext:
    """What the assemble job gets (``pipeline.stages.AssembleContext``)."""

    fence: int
    corpus: Any
    ledger: Any
    cancelled: Callable[[], bool]
    pages: Callable[[], Iterator[LivePage]]
