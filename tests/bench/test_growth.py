"""The measures of growth run, in the smallest."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench import claims, naive, planning, snapshot
from bench.filling import Filled
from bench.ground import Ground, ground
from bench.measure import Size

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def there() -> Iterator[Ground]:
    with ground() as made:
        yield made


def test_planning_is_compared_with_copy(there: Ground) -> None:
    """Two doors, each a share of what COPY does."""
    found = planning.compare(there, 300, repeats=1)

    assert [r.name for r in found] == ["planning, a file", "planning, in a caller's transaction"]
    assert all(r.value > 0 for r in found)


def test_a_scene_is_compared_with_and_without_its_mass(there: Ground) -> None:
    """Times of the claim, and pages of it and of all that is asked beside it."""
    work = Filled(lanes=5, behind=1, fresh=20)

    found = {r.name: r for r in claims.compare(there, claims.Scene("a mass", (work,), (replace(work, finished=9),)), 2)}

    assert {"claim, p50: a mass", "claim, pages: a mass", "acknowledgement, pages: a mass"} <= found.keys()
    assert found["claim, pages: a mass"].detail["alone"] > 0


@pytest.mark.parametrize("stages", [snapshot.FREE, snapshot.STRICT])
def test_capacity_is_measured_while_a_snapshot_is_held(stages: tuple[object, ...], there: Ground) -> None:
    """One rate for each burst, and what could not be cleaned away."""
    found = snapshot.compare(there, "tiny", stages, seconds=0.5, bursts=2, burst=60)  # type: ignore[arg-type]

    assert len(found.detail["capacity_a_second"]) == 2
    assert found.detail["held_seconds"] >= 0


def test_the_naive_claim_is_shown_beside_others(there: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number for each way and each count of workers."""
    monkeypatch.setattr(naive, "SECONDS", {Size.QUICK: 0.05})
    monkeypatch.setattr(naive, "REPEATS", 1)

    found = naive.measure(there, Size.QUICK)

    assert [len(r.detail["jobs_a_second"]) for r in found] == [len(naive.WORKERS)] * 3
