"""Every interleaving within bounds: the state machine of a lane keeps its promises; and each rule of it is needed."""

import pytest

from tests.model.explore import explore
from tests.model.properties import GOALS, OF_STEPS, OF_WORLDS
from tests.model.scopes import FULL, QUICK
from tests.model.twins import EQUIVALENT, TWINS, Same, Twin, catch, is_same
from tests.model.world import EVERYTHING, Scope


@pytest.mark.parametrize("scope", QUICK, ids=lambda s: s.name)
def test_every_interleaving_keeps_every_property(scope: Scope) -> None:
    """In a small lane, whatever workers, reapers and people do in whatever order, each property holds."""
    found = explore(scope)

    print(found)
    assert found.violation is None, found.violation
    assert found.states > 100


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_interleaving_of_a_larger_lane_keeps_every_property() -> None:
    """The same, in scopes that together hold every verb, and more than 100,000 worlds."""
    all_found = [explore(scope) for scope in FULL]

    for found in all_found:
        print(found)
    assert [f.violation for f in all_found if f.violation] == []
    assert sum(f.states for f in all_found) >= 100_000
    assert {verb for f in all_found for verb in f.verbs} == EVERYTHING | {"unsent", "resend"}


@pytest.mark.parametrize("twin", TWINS, ids=lambda t: t.name)
def test_a_broken_twin_is_caught(twin: Twin) -> None:
    """Without the rule, the property that stands for it is broken."""
    violation = catch(twin).violation

    assert violation is not None
    assert violation.rule == twin.caught_by


@pytest.mark.parametrize("same", EQUIVALENT, ids=lambda s: s.name)
def test_a_rule_that_others_imply_changes_nothing(same: Same) -> None:
    """Without it the model has the very same worlds: there is nothing to catch."""
    assert is_same(same)


def test_twins_name_real_properties() -> None:
    """What a twin is said to be caught by exists."""
    known = {rule.__name__ for rule in OF_WORLDS} | {r.__name__ for rules in OF_STEPS.values() for r in rules}

    assert {twin.caught_by for twin in TWINS} <= known | set(GOALS)
