"""How long to wait before the next attempt; ground floor."""

import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter in its upper half, capped.

    ``attempts`` is how often a job may be reserved at one stage before it fails for good.
    """

    attempts: int = 5
    first: timedelta = timedelta(seconds=10)
    cap: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 10_000:
            raise ValueError(f"attempts is {self.attempts}; choose 1 to 10000")
        if self.first < timedelta(0) or self.cap < self.first:
            raise ValueError("first must not be negative, nor greater than cap")

    def delay(self, attempt: int, *, jitter: float | None = None) -> timedelta:
        """The wait after the ``attempt``-th try failed (1 for the first), between half and all of the doubled step."""
        # The exponent is bounded before the power is taken: no attempt count overflows.
        step = min(self.cap.total_seconds(), self.first.total_seconds() * 2 ** min(max(attempt - 1, 0), 40))
        return timedelta(seconds=step * (0.5 + 0.5 * (random.random() if jitter is None else jitter)))
