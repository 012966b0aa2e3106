"""Whatever is done in whatever order, the services answer and write what the reference model says."""

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from pipeline.build import Services
from pipeline.states import TRANSITIONS
from tests.stateful import saying
from tests.stateful.compare import Reader
from tests.stateful.coverage import ALLOWED, Coverage
from tests.stateful.machine import run
from tests.stateful.model import Site
from tests.stateful.stand import Ground

SEEDS = range(1, 9)  # so many at most: what a seed leads to changes with every constant of the product
ENOUGH = 2
ANSWERS = {"done", "written", "lost", "renewed", "taken", "kept", "Refused", "NotFound", "Conflict", "LeaseLost"}


@pytest.fixture
def ground(engine: Engine, services: Services, database_url: str) -> Iterator[Ground]:
    reader = Reader(database_url)
    yield Ground(engine, services, reader, Coverage())
    reader.close()


@pytest.mark.timeout(300)
def test_the_services_do_what_the_model_says(ground: Ground) -> None:
    """In every mixture of verbs: replies, rows and invariants; and the mixtures have met every verb and answer."""
    coverage = ground.coverage
    unmet: set[object] = set()
    for seed in SEEDS:
        run(ground, examples=20, steps=40, seed=seed, shrink=False)  # `python -m tests.stateful --seed` shortens it
        unmet = _unmet(coverage)
        if seed >= ENOUGH and not unmet:
            break

    print(coverage.table())
    assert unmet == set()


def _unmet(coverage: Coverage) -> set[object]:
    """What a short run should have met: every verb and answer, most pairs of verb and state, an ended session."""
    rare = ALLOWED - coverage.pairs().keys()
    codes = {"57P01"} - coverage.codes.keys()
    return (TRANSITIONS.keys() - coverage.verbs()) | (ANSWERS - coverage.kinds()) | codes | (
        rare if len(rare) > len(ALLOWED) // 4 else set())  # fmt: skip


def resent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saying, "OUTCOMES", defaultdict(set))


def renewed_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    right = saying.reap
    monkeypatch.setattr(saying, "reap", lambda world, job, fence, *, gone: right(world, job, fence, gone=True))


def halted_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Site.head

    def wrong(self: Site, lane: str, gate: Any) -> Any:
        head = right(self, lane, gate)
        return None if head is not None and head.stage != gate.stage else head

    monkeypatch.setattr(Site, "head", wrong)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rule", [resent_is_lost, renewed_is_reaped, halted_is_passed_by], ids=lambda r: r.__name__)
def test_a_model_that_lacks_a_rule_is_found_out(rule: Any, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared closely: where the model lacks a rule that the services keep, the two differ."""
    rule(monkeypatch)

    with pytest.raises(AssertionError):
        run(ground, examples=30, steps=40, seed=1, shrink=False)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_the_services_do_what_the_model_says_for_long(ground: Ground, request: pytest.FixtureRequest) -> None:
    """The same in 2,000 examples of 80 steps, which have met every verb in every state, allowed or refused."""
    given = request.config.getoption("hypothesis_seed", None)
    seed = int(given) if given and given.isdecimal() else random.randrange(2**32)
    print(f"seed {seed}")

    coverage = run(ground, examples=2000, steps=80, seed=seed)

    print(coverage.table())
    assert coverage.missing() == set()
