"""Taking a stage out against work on its way there, and against itself: nobody is left behind, no order is broken."""

from collections.abc import Callable

import pytest
from sqlalchemy import func, select

from pipeline.build import Services
from pipeline.clock import DatabaseClock
from pipeline.service.acknowledging import Ack, Fate, Settled, Verb
from pipeline.service.order import Retired, StageSpec
from pipeline.sql import stages as order, transitions
from pipeline.sql.tables import events
from pipeline.views import Claim
from tests.concurrency.conftest import Lane
from tests.concurrency.stage import Play
from tests.factories import STAGES, Factory

CLOCK = DatabaseClock()
LOOSE = (*STAGES[:2], StageSpec("translate", None, 3), STAGES[2])
STRICT = (*STAGES[:2], StageSpec("translate", 1, 3), STAGES[2])


def retires(make: Factory) -> Callable[[Services], Retired]:
    return lambda s: s.planning.retire(make.site_id, "translate", actor="test")


def advances(*claims: Claim) -> Callable[[Services], Settled]:
    return lambda s: s.work.acknowledge([Ack(c, Verb.ADVANCE) for c in claims])


@pytest.mark.parametrize("specs", [LOOSE, STRICT])
def test_a_job_on_its_way_to_a_stage_that_is_taken_out(
    specs: tuple[StageSpec, ...], play: Play, make: Factory, lane: Lane
) -> None:
    """It decided to go there before the retirement and commits after it: the next upkeep moves it on."""
    make.site(stages=specs)
    make.advance_to("validate", count=2)
    claims = make.claim("validate", 2)
    worker, operator = play.actor("worker"), play.actor("operator")
    stop = worker.before_commit()
    work = worker.does(advances(*claims))
    stop.reached()

    done = operator.does(retires(make))
    assert done.result() == Retired("translate", "publish", 0)
    stop.go()
    assert set(work.result().fates.values()) == {Fate.WRITTEN}
    assert [stage for stage, _, _ in lane.states()] == ["translate"] * 2

    assert make.services.planning.move_on(make.site_id) == 2
    assert lane.states() == [("publish", "pending", 1), ("publish", "waiting", None)]
    assert worker.sqlstates == operator.sqlstates == []


def test_a_job_that_finds_its_next_stage_gone_says_it_again(play: Play, make: Factory, lane: Lane) -> None:
    """It looked for the gates of the old order: what it would enter now is not locked, so nothing is written yet."""
    make.site(stages=LOOSE)
    make.advance_to("validate", count=1)
    claims = make.claim("validate", 1)
    worker, operator = play.actor("worker"), play.actor("operator")
    stop = worker.before(transitions.advance(CLOCK))
    work = worker.does(advances(*claims))
    stop.reached()
    operator.does(retires(make)).result()
    stop.go()

    assert list(work.result().fates.values()) == [Fate.BUSY]
    assert list(worker.does(advances(*claims)).result().fates.values()) == [Fate.WRITTEN]
    assert lane.states() == [("publish", "pending", 1)]


@pytest.mark.parametrize("specs", [LOOSE, STRICT])
def test_a_job_that_is_claimed_while_its_stage_is_taken_out(
    specs: tuple[StageSpec, ...], play: Play, make: Factory, lane: Lane
) -> None:
    """The claim came first: the worker keeps it, and its end brings it to the stage that follows."""
    make.site(stages=specs)
    first, *_ = make.advance_to("translate", count=2)
    worker, operator = play.actor("worker"), play.actor("operator")
    stop = operator.before(order.move_on(CLOCK))
    done = operator.does(retires(make))
    stop.reached()
    claim = make.claim("translate", 1)[0]
    stop.go()

    assert done.result().moved == 1
    assert lane.states()[0][:2] == ("translate", "reserved")
    assert list(worker.does(advances(claim)).result().fates.values()) == [Fate.WRITTEN]
    assert claim.job_id == first
    assert lane.states() == [("publish", "pending", 1), ("publish", "waiting", None)]


def test_two_that_take_a_stage_out_do_it_once(play: Play, make: Factory, lane: Lane) -> None:
    """They take turns at the gates; each job is moved by one of them, with one event."""
    make.site(stages=STRICT)
    make.advance_to("translate", count=3)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before(order.move_on(CLOCK))
    first = one.does(retires(make))
    stop.reached()
    second = other.does(retires(make))
    play.wait_until_blocked(other, one)
    stop.go()

    assert first.result().moved + second.result().moved == 3
    assert [state for _, state, _ in lane.states()] == ["pending", "waiting", "waiting"]
    with make.engine.begin() as connection:
        noted = connection.execute(select(func.count()).where(events.c.verb == "retire")).scalar_one()
    assert noted == 4
    assert one.sqlstates == other.sqlstates == []


def test_upkeep_leaves_jobs_behind_a_busy_gate_for_the_next_time(play: Play, make: Factory, lane: Lane) -> None:
    """It does not wait for a worker that is about to end, and takes nothing twice."""
    make.site(stages=LOOSE)
    make.advance_to("publish", count=1)
    publishing = make.claim("publish", 1)[0]
    make.plan(count=2)
    for stage in ("generate", "validate"):
        make.say(make.claim(stage, 1)[0])
    claim = make.claim("translate", 1)[0]
    make.services.planning.retire(make.site_id, "translate", actor="test")
    make.say(claim, Verb.RETRY)
    worker = play.actor("worker")
    stop = worker.before_commit()
    work = worker.does(advances(publishing))
    stop.reached()

    assert make.services.planning.move_on(make.site_id) == 0
    stop.go()
    work.result()

    assert make.services.planning.move_on(make.site_id) == 1
    assert lane.states()[1] == ("publish", "pending", 1)
