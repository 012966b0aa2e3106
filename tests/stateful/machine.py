"""The machine: every rule, on one ground."""

from unittest.mock import patch

from hypothesis import HealthCheck, Phase, seed as seeded, settings
from hypothesis.stateful import get_state_machine_test

from tests.stateful.coverage import Coverage
from tests.stateful.house_rules import HouseRules
from tests.stateful.people_rules import PeopleRules
from tests.stateful.stand import Ground
from tests.stateful.work_rules import WorkRules


class Mixture(WorkRules, PeopleRules, HouseRules):
    """Everything that anybody may do."""


def run(ground: Ground, *, examples: int, steps: int, seed: int | None = None, shrink: bool = True) -> Coverage:
    """Run so many examples of so many steps; what they reached. Raises AssertionError with the shortest sequence.

    Without a ``seed`` it is the same each time.
    """

    def machine() -> Mixture:
        return Mixture(ground)

    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=seed is None,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
        suppress_health_check=list(HealthCheck),
    )
    test = get_state_machine_test(machine, settings=chosen)  # type: ignore[arg-type]
    # The model has no time: an assembly is not due by itself, however slow this machine.
    with patch("pipeline.service.base.ASSEMBLE_DELAY_SECONDS", 3600):
        (test if seed is None else seeded(seed)(test))()
    return ground.coverage
