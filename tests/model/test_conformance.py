"""The product is the machine that was explored: walks of the model, taken on the real services and server."""

from collections import Counter

import pytest

from tests.factories import Factory
from tests.model.replay import Replay
from tests.model.world import EVERYTHING, WORKER, Scope

STEPS = 40
WALKS = (
    Scope("generate, validate, publish", 3, 4, 3, most=6, grant=2, rounds=3, reapers=2,
          strict=(False, False, True), unsure=WORKER),
    Scope("two strict stages", 3, 4, 3, most=6, grant=2, rounds=3, reapers=2,
          strict=(True, False, True), unsure=WORKER),
    Scope("what failed is skipped", 3, 4, 2, most=4, grant=1, rounds=3, reapers=2,
          strict=(False, True), skips=True, unsure=WORKER),
)  # fmt: skip

MET = EVERYTHING | {"unsent", "resend", "written", "lost"}
"""What walks must have met, to have shown anything."""


def walks(make: Factory, scope: Scope, seeds: range, *broken: str) -> Counter[str]:
    """Walk once for each seed; how often each verb was taken and each answer heard."""
    taken: Counter[str] = Counter()
    for seed in seeds:
        taken += Replay(make, scope, seed, broken).walk(STEPS)
    print(f"{scope.name}: seeds {seeds.start} to {seeds.stop - 1}, {STEPS} steps each: {dict(taken)}")
    return taken


@pytest.mark.parametrize("scope", WALKS, ids=lambda s: s.name)
def test_the_services_walk_as_the_model_does(scope: Scope, make: Factory) -> None:
    """After each of 40 steps of 10 walks, every row of the lane is what the model says."""
    taken = walks(make, scope, range(10))

    assert taken.keys() == MET


@pytest.mark.parametrize("broken", ["cancel forgotten", "hold keeps the slot", "skip leaves passed", "second turn"])
def test_a_walk_of_a_broken_model_is_found_out(broken: str, make: Factory) -> None:
    """The walks compare closely: where the model lacks a rule that the services keep, they differ."""
    with pytest.raises(AssertionError, match="differs"):
        walks(make, WALKS[1], range(20), broken)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scope", WALKS, ids=lambda s: s.name)
def test_the_services_walk_as_the_model_does_for_long(scope: Scope, make: Factory) -> None:
    """The same in 500 walks over all scopes."""
    taken = walks(make, scope, range(10, 177))

    assert min(taken[what] for what in MET) >= 20
