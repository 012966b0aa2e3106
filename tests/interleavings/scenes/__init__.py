"""The scenarios, by what they are about."""

from tests.interleavings.scenes import (
    lanes,
    limits,
    moving,
    operators,
    places,
    planning,
    publishing,
    stages,
    textbook,
    widths,
    workers,
)

__all__ = [
    "lanes",
    "limits",
    "moving",
    "operators",
    "places",
    "planning",
    "publishing",
    "stages",
    "textbook",
    "widths",
    "workers",
]
