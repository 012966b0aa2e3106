"""What every measure of the bench shares: how large it is, and what it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

from bench.ground import Ground


class Size(StrEnum):
    """How large a measure is."""

    QUICK = "quick"  # all of them together in less than five minutes
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Ratio:
    """One row of the table: ``value`` is ours against the other's, both measured in one run, in turns.

    ``bar`` must be reached and ``aim`` is wished for; with ``lower`` the smaller value is the better one. ``detail``
    holds what it was made of, JSON-able: rates, latencies, how often, and the guarantees that were kept.
    """

    name: str
    value: float
    bar: float | None = None
    aim: float | None = None
    lower: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        return self.bar is None or (self.value <= self.bar if self.lower else self.value >= self.bar)


Measure = Callable[[Ground, Size], Sequence[Ratio]]


def in_turns(repeats: int, *each: Callable[[], float]) -> list[list[float]]:
    """What each answers, ``repeats`` times, one after another in turns: a machine that slows down slows them all."""
    found: list[list[float]] = [[] for _ in each]
    for _ in range(repeats):
        for values, ask in zip(found, each, strict=True):
            values.append(ask())
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the one against the median of the other."""
    return median(ours) / median(theirs)
