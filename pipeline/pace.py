"""How many jobs a worker holds beyond those that its hands run; engine room.

A claim and an acknowledgement cost about the same for one job and for many. Where stages take next to no time, a worker
that holds no more than it runs at once does little else. So it holds more when all it had was done before it came back,
and fewer when a job lay too long before it began. Never beside a job that takes longer, behind which they would wait.
"""

from collections.abc import Iterable

MOMENT = 0.05  # seconds: what takes less is quick
WAIT = 0.25  # seconds that a job may lie before it begins
MOST = 64  # jobs: as many are charged with an attempt when their worker dies
PART, LEAST, LONGEST = 1 / 8, 0.002, 0.05  # of a mean; seconds; seconds
SMOOTH = 8  # runs that a mean looks back on


class Pace:
    """What has been seen of stages here; one that has not run yet is not quick."""

    def __init__(self, hands: int) -> None:
        self._hands = hands
        self._most = hands
        self._means: dict[str, float] = {}  # seconds

    def note(self, stage: str, waited: float, took: float) -> None:
        """A job of the stage waited so many seconds for a hand, and then took so many."""
        mean = self._means.get(stage, took)
        self._means[stage] = mean + (took - mean) / SMOOTH
        if waited > WAIT:
            self._most = max(self._most // 2, self._hands)

    def ran_dry(self) -> None:
        """All that was held is done: hands are idle until more is claimed."""
        self._most = min(self._most * 2, max(MOST, self._hands))

    def clogged(self) -> None:
        """Jobs lay here that no hand came to."""
        self._most = self._hands

    def is_quick(self, stage: str) -> bool:
        """Whether it takes less than a moment."""
        return self._means.get(stage, MOMENT) < MOMENT

    def company(self, held: Iterable[str]) -> float:
        """Seconds for which a job that is done may wait for others of the stages ``held``, to be acknowledged together:
        a small part of what any of them takes."""
        return min(max(min((self._means.get(stage, 0.0) for stage in held), default=0.0) * PART, LEAST), LONGEST)

    def most(self, held: Iterable[str]) -> int:
        """How many jobs of quick stages to hold at most, those of the stages ``held`` included."""
        return self._most if all(map(self.is_quick, set(held))) else self._hands
