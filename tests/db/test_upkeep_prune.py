"""Workers prune what is long over, a little at a time, where a project says so."""

from datetime import timedelta
from uuid import uuid4

import pytest

from pipeline.build import services
from pipeline.clock import FrozenClock
from pipeline.upkeep import Upkeep
from tests.db.conftest import Sql
from tests.factories import Factory

pytestmark = pytest.mark.guarantee("R28")

OLD, NEVER = timedelta(days=90), timedelta(0)


@pytest.fixture
def passes(make: Factory, clock: FrozenClock) -> Factory:
    """One topic that went live twice, a hundred days ago, and is planned again."""
    for _ in range(3):
        make.services.planning.plan(make.site_id or make.site(), [make.row("lane", 1, input_hash=uuid4().hex)])
        for stage in ("generate", "validate", "publish"):
            for claim in make.claim(stage):
                make.say(claim)
    clock.advance(timedelta(days=100))
    return make


def upkeep(make: Factory, clock: FrozenClock, prune_after: timedelta) -> Upkeep:
    return Upkeep(services(make.engine, clock), lambda: [make.site_id], timedelta(seconds=10), prune_after)


@pytest.mark.parametrize(("prune_after", "left"), [(OLD, 1), (NEVER, 3), (timedelta(days=101), 3)])
def test_workers_prune_what_is_older_than_they_were_told(
    prune_after: timedelta, left: int, passes: Factory, clock: FrozenClock, sql: Sql
) -> None:
    """The newest pass stays; without the setting, all do."""
    upkeep(passes, clock, prune_after).run()

    assert sql("SELECT count(*) FROM jobs WHERE topic_id IS NOT NULL") == [(left,)]
    told = sql("SELECT actor, (details->>'passes')::int FROM events WHERE verb = 'prune'")
    assert told == ([("upkeep", 2)] if left == 1 else [])


def test_each_upkeep_does_a_little_of_it(
    passes: Factory, clock: FrozenClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its moment is over it stops after a transaction, and goes on the next time."""
    monkeypatch.setattr("pipeline.upkeep.PRUNE", -1.0)
    monkeypatch.setattr("pipeline.service.prune.ROWS", 1)
    work = upkeep(passes, clock, OLD)
    left = []

    for _ in range(3):
        work.run()
        left += [sql("SELECT count(*) FROM jobs WHERE topic_id IS NOT NULL")[0][0]]

    assert left == [2, 1, 1]
