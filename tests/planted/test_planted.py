"""Faults planted in the product are caught; the product itself passes every scenario that catches them."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from pipeline.build import Services
from tests.concurrency.stage import Play
from tests.factories import Factory
from tests.planted.faults import EQUIVALENT, FAULTS, NotPlanted, rewritten
from tests.planted.judging import Verdict, judge
from tests.planted.scenarios import SCENARIOS, a_late_answer
from tests.planted.stand import Stand


@pytest.fixture
def stand(database_url: str, engine: Engine, services: Services, make: Factory) -> Iterator[Stand]:
    with Play(database_url) as play:
        yield Stand(database_url, engine, services, make, play)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_product_passes(name: str, stand: Stand) -> None:
    """Without a fault no scenario finds anything."""
    verdict = judge(SCENARIOS[name], stand)

    assert verdict == Verdict(None)


@pytest.mark.plants_faults
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name: str, stand: Stand) -> None:
    """Each fault is seen by the scenario that is set for it."""
    verdict = judge(FAULTS[name].scenario, stand, FAULTS[name])

    assert verdict.by is not None


@pytest.mark.parametrize("name", EQUIVALENT)
def test_one_wall_of_two_is_enough(name: str, stand: Stand) -> None:
    """What another guard makes up for breaks no promise; both gone are caught above."""
    verdict = judge(EQUIVALENT[name].scenario, stand, EQUIVALENT[name])

    assert verdict == Verdict(None)


def test_a_fault_that_cannot_be_planted_is_no_catch(stand: Stand) -> None:
    """A statement that reads otherwise by now fails the test of its faults, instead of passing it."""
    fault = FAULTS["ending-ignores-token"]
    elsewhere = type(fault)(fault.what, rewritten("no such statement", ("a", "b")), a_late_answer)

    with pytest.raises(NotPlanted):
        judge(a_late_answer, stand, elsewhere)
