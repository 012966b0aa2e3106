"""How many jobs a worker holds beyond its hands, and whose turn that makes it."""

from typing import Any

import pytest

from pipeline import Stage
from pipeline.pace import MOMENT, MOST, WAIT, Pace
from pipeline.project.loading import Stages
from pipeline.rota import Rota

HANDS = 8


class Some(Stage):
    def run(self, topic: Any, ctx: Any) -> Any:
        raise AssertionError


def quick(*stages: str) -> Pace:
    """One that has run dry with these stages until it can hold no more."""
    pace = Pace(HANDS)
    for stage in stages:
        pace.note(stage, 0, MOMENT / 100)
    for _ in range(10):
        pace.ran_dry()
    return pace


def test_a_stage_that_has_not_run_is_not_held_in_store() -> None:
    """Nobody knows yet whether it takes an hour."""
    pace = quick("validate")

    assert not pace.is_quick("generate")
    assert pace.most(["validate", "generate"]) == HANDS


def test_what_is_quick_is_held_in_store_once_hands_ran_dry() -> None:
    """More each time, and never more than the most."""
    pace = Pace(HANDS)
    pace.note("validate", 0, MOMENT / 100)
    before = pace.most(["validate"])

    pace.ran_dry()

    assert (before, pace.most(["validate"])) == (HANDS, 2 * HANDS)
    assert quick("validate").most([]) == MOST


def test_a_job_that_lay_too_long_halves_the_store() -> None:
    """Down to what the hands can run at once."""
    pace = quick("validate")

    pace.note("validate", WAIT * 2, MOMENT / 100)
    once = pace.most([])
    for _ in range(10):
        pace.note("validate", WAIT * 2, MOMENT / 100)

    assert (once, pace.most([])) == (MOST // 2, HANDS)


def test_a_stage_that_becomes_slow_is_held_in_store_no_more() -> None:
    """Its mean follows what it takes."""
    pace = quick("generate")

    for _ in range(3):
        pace.note("generate", 0, 30.0)

    assert not pace.is_quick("generate")


def test_more_hands_than_the_most_are_all_used() -> None:
    """A setting is kept, whatever the store may hold."""
    pace = Pace(2 * MOST)

    pace.ran_dry()

    assert pace.most([]) == 2 * MOST


def test_quick_stages_are_asked_for_beyond_the_room() -> None:
    """And with no room at all."""
    rota = Rota(Stages({"generate": Some(), "validate": Some()}, None))
    rota.ready = {(1, "generate", 2), (1, "validate", 2)}
    quick = ["generate", "validate"]

    asked = [{p.stage: p.share for p in rota.shares(room, {1}, 100, quick)} for room in (4, 0)]

    assert asked == [{"generate": 52, "validate": 52}, {"generate": 50, "validate": 50}]


@pytest.mark.parametrize("slow", [(1, "generate", 2), (1, "assemble", 2), (2, "generate", 2)])
def test_nothing_is_held_in_store_while_something_slow_is_ready(slow: tuple[int, str, int]) -> None:
    """It would wait behind the store, and behind each refill of it, as long as there is quick work."""
    rota = Rota(Stages({"generate": Some(), "validate": Some()}, None))
    rota.ready = {(1, "validate", 2), slow}

    beside, full = ([p.share for p in rota.shares(room, {1, 2}, 100, ["validate"])] for room in (4, 0))

    assert (beside, full) == ([2, 2], [])
