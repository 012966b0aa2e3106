"""A minute of everything at once: workers, clients and faults of all kinds on a server of its own."""

import os
import random
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.faults import LONG, QUICK, plan
from tests.chaos.run import Size, run
from tests.servers.scratch import folder_for

SEED = int(os.environ.get("PIPELINE_SEED", "0")) or random.randrange(1, 10**6)
JOBS, FAULTS = 2000, 60


@pytest.mark.guarantee("R10")
@pytest.mark.guarantee("R15")
@pytest.mark.guarantee("R18")
@pytest.mark.guarantee("R21")
@pytest.mark.timeout(300)
def test_a_minute_of_chaos_breaks_no_promise(run_folder: Path) -> None:
    """At least 2,000 jobs and 60 witnessed faults, and what clients, database and stages say of it agrees."""
    size = Size(
        seconds=38, workers=4, sites=3, backlog=250, pace=0.15, faults=QUICK, jobs=JOBS + 50, durable=False
    )  # fmt: skip
    with folder_for(run_folder) as folder:
        outcome = run(folder, size, SEED)

    print(outcome.summary())
    assert outcome.broken == []
    assert outcome.jobs >= JOBS
    assert len(outcome.witnessed) >= FAULTS
    assert {fault.kind for fault in outcome.witnessed} >= QUICK.keys() - {"deadlock", "long-snapshot", "read-only"}
    assert checker.overlaps(outcome.records)[0] > 0  # the long pauses did bite


@pytest.mark.parametrize("counts", [QUICK, LONG])
def test_a_plan_is_made_of_its_seed(counts: dict[str, int]) -> None:
    """The same seed gives the same faults at the same times; another gives others."""
    one, same, other = plan(1, 60, counts), plan(1, 60, counts), plan(2, 60, counts)

    assert one == same != other
    assert sorted(fault.kind for fault in one) == sorted(k for k, n in counts.items() for _ in range(n))
    assert [fault.at for fault in one] == sorted(fault.at for fault in one)
