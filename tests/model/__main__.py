"""Print what the model explored and which broken twins were caught: ``python -m tests.model``.

Exit 0: the model holds, each twin is caught by the property that it names, and each equivalent one is the same.
"""

import argparse
import sys

from tests.model.explore import explore
from tests.model.scopes import FULL, QUICK
from tests.model.twins import EQUIVALENT, TWINS, catch, is_same


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="explore every scope (a minute)")
    full = parser.parse_args(arguments).full
    good, states, edges, seconds = True, 0, 0, 0.0

    for scope in FULL if full else QUICK:
        found = explore(scope)
        states, edges, seconds = states + found.states, edges + found.edges, seconds + found.seconds
        good = good and found.violation is None
        print(f"{found}: {found.violation or 'every property holds'}", flush=True)
    print(f"in all: {states:,} states, {edges:,} edges, {seconds:.1f} s of a processor\n")

    for twin in TWINS:
        violation = catch(twin).violation
        good = good and violation is not None and violation.rule == twin.caught_by
        print(f"{twin.name:62} {violation.rule if violation else 'NOT CAUGHT'}", flush=True)
    for same in EQUIVALENT:
        alike = is_same(same)
        good = good and alike
        print(f"{same.name:62} {'equivalent' if alike else 'NOT THE SAME'}: {same.because}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
