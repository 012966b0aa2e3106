"""Whether a scenario catches a fault, and by what."""

from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from tests.planted.faults import Fault
from tests.planted.scenarios import Scenario
from tests.planted.stand import Caught, Stand


@dataclass(frozen=True, slots=True)
class Verdict:
    """``by``: an invariant of the audit, a property of the scenario, or a constraint of the server; None: nothing."""

    by: str | None
    what: str = ""


def judge(scenario: Scenario, stand: Stand, fault: Fault | None = None) -> Verdict:
    """Play the scenario, with a fault or without. What is no catch, but a mistake of the test, is raised."""
    try:
        if fault is None:
            scenario(stand)
        else:
            with fault.plant(stand):
                scenario(stand)
    except Caught as caught:
        return Verdict(caught.by, caught.what)
    except IntegrityError as error:
        name = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
        return Verdict("constraint", str(name))
    return Verdict(None)
