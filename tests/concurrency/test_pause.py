"""Pause and resume against the work that goes on: no row is left behind that nobody would ever claim or promote.

Whoever comes second waits for the gate's row or the job's, then acts on what the first one committed.
"""

from collections.abc import Callable

import pytest

from pipeline.build import Services
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.lanes import Turned
from pipeline.service.work import Prefix
from pipeline.sql import append, gates, lanes, sites
from pipeline.views import Claim
from tests.concurrency.conftest import Lane
from tests.concurrency.stage import CLOCK, Actor, Play, Stop, door_to_jobs
from tests.factories import ACTOR, LEASE, Factory, draft_of

Turns = Callable[[Services], Turned]


def pauses(make: Factory) -> Turns:
    return lambda s: s.lanes.pause(make.site_id, "lane", actor=ACTOR)


def resumes(make: Factory) -> Turns:
    return lambda s: s.lanes.resume(make.site_id, "lane", actor=ACTOR)


def acks(claim: Claim, verb: Verb = Verb.ADVANCE) -> Callable[[Services], dict[int, Fate]]:
    draft = draft_of(claim) if claim.stage == "generate" and verb is Verb.ADVANCE else None
    return lambda s: s.work.acknowledge([Ack(claim, verb, draft=draft)], wait=True).fates


def claims(make: Factory, stage: str) -> Callable[[Services], list[Claim]]:
    return lambda s: s.work.claim([Prefix(make.site_id, stage, 2, 9, LEASE)], "worker")


def paused(make: Factory) -> None:
    pauses(make)(make.services)


WORKER_STEPS = ("locked", "moved", "promoted", "committing")
OPERATOR_STEPS = ("locked", "turned", "flipped", "committing")


def worker_at(worker: Actor, step: str) -> Stop:
    """A stop of a worker that comes to a gate."""
    match step:
        case "locked":
            return worker.after(gates.lock(wait=True))
        case "moved":
            return worker.before(gates.promote(CLOCK))
        case "promoted":
            return worker.after(gates.promote(CLOCK))
        case _:
            return worker.before_commit()


def operator_at(operator: Actor, step: str, *, pause: bool) -> Stop:
    """A stop of a pause or a resume, its gates locked."""
    match step:
        case "locked":
            return operator.after(lanes.lock_gates())
        case "turned":
            return operator.after(lanes.turn())
        case "flipped":
            return operator.after(lanes.demote() if pause else lanes.free(CLOCK))
        case _:
            return operator.before_commit()


def at_the_gate_and_before_it(make: Factory) -> tuple[Claim, Claim]:
    """Position 1 is reserved at the gate, position 2 at the stage before it."""
    make.advance_to("validate", count=2)
    near, far = make.claim("validate", 2)
    make.say(near)
    (at_gate,) = make.claim("publish")
    return at_gate, far


@pytest.mark.parametrize("step", WORKER_STEPS)
@pytest.mark.parametrize("side", ["leaves", "comes"])
def test_a_pause_behind_an_open_advance_takes_back_what_that_promoted(
    play: Play, make: Factory, lane: Lane, step: str, side: str
) -> None:
    """The operator waits for the gate, then sees whoever got the turn meanwhile, and lets him wait."""
    at_gate, far = at_the_gate_and_before_it(make)
    make.say(far if side == "leaves" else at_gate)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = worker_at(worker, step)
    advance = worker.does(acks(at_gate if side == "leaves" else far))
    stop.reached()
    pause = operator.does(pauses(make))
    play.wait_until_blocked(operator, worker)

    stop.go()

    assert list(advance.result().values()) == [Fate.WRITTEN]
    assert (pause.result().jobs, pause.result().running) == (1, 0)
    assert lane.states() == [("publish", "done", None), ("publish", "waiting", None)]
    assert operator.sqlstates == worker.sqlstates == []
    resumes(make)(make.services)
    assert lane.states()[1] == ("publish", "pending", 1)


@pytest.mark.parametrize("step", OPERATOR_STEPS)
@pytest.mark.parametrize("side", ["leaves", "comes"])
def test_an_advance_behind_an_open_pause_promotes_nobody(
    play: Play, make: Factory, lane: Lane, step: str, side: str
) -> None:
    """The worker waits for the gate, writes what it did, and finds the lane paused."""
    at_gate, far = at_the_gate_and_before_it(make)
    make.say(far if side == "leaves" else at_gate)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator_at(operator, step, pause=True)
    pause = operator.does(pauses(make))
    stop.reached()
    advance = worker.does(acks(at_gate if side == "leaves" else far))
    play.wait_until_blocked(worker, operator)

    stop.go()

    assert pause.result().running == 1
    assert list(advance.result().values()) == [Fate.WRITTEN]
    assert lane.states() == [("publish", "done", None), ("publish", "waiting", None)]
    assert lane.passed() == 1
    assert operator.sqlstates == worker.sqlstates == []
    resumes(make)(make.services)
    assert lane.states()[1] == ("publish", "pending", 1)


@pytest.mark.parametrize("step", WORKER_STEPS)
@pytest.mark.parametrize("side", ["leaves", "comes"])
def test_a_resume_behind_an_open_advance_promotes_what_that_left(
    play: Play, make: Factory, lane: Lane, step: str, side: str
) -> None:
    """The worker saw a paused lane and promoted nobody; whoever resumes waits for it, and does."""
    at_gate, far = at_the_gate_and_before_it(make)
    make.say(far if side == "leaves" else at_gate)
    paused(make)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = worker_at(worker, step)
    advance = worker.does(acks(at_gate if side == "leaves" else far))
    stop.reached()
    resume = operator.does(resumes(make))
    play.wait_until_blocked(operator, worker)

    stop.go()

    assert list(advance.result().values()) == [Fate.WRITTEN]
    assert resume.result().jobs == 1
    assert lane.states() == [("publish", "done", None), ("publish", "pending", 1)]
    assert operator.sqlstates == worker.sqlstates == []


@pytest.mark.parametrize("step", OPERATOR_STEPS)
@pytest.mark.parametrize("side", ["leaves", "comes"])
def test_an_advance_behind_an_open_resume_promotes_the_next(
    play: Play, make: Factory, lane: Lane, step: str, side: str
) -> None:
    """The worker waits for the gate, and finds the lane active: the next position gets its turn exactly once."""
    at_gate, far = at_the_gate_and_before_it(make)
    make.say(far if side == "leaves" else at_gate)
    paused(make)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator_at(operator, step, pause=False)
    resume = operator.does(resumes(make))
    stop.reached()
    advance = worker.does(acks(at_gate if side == "leaves" else far))
    play.wait_until_blocked(worker, operator)

    stop.go()

    assert resume.result().running == 1
    assert list(advance.result().values()) == [Fate.WRITTEN]
    assert lane.states() == [("publish", "done", None), ("publish", "pending", 1)]
    assert lane.passed() == 1


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_pause_behind_an_open_claim_lets_that_finish(play: Play, make: Factory, stage: str) -> None:
    """What a claim has taken when the pause comes is reserved, and its holder may end it."""
    (job_id,) = make.advance_to(stage)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = worker.before_commit()
    claim = worker.does(claims(make, stage))
    stop.reached()
    pause = operator.does(pauses(make))
    play.wait_until_blocked(operator, worker)

    stop.go()

    (held,) = claim.result()
    assert (pause.result().jobs, pause.result().running) == (0, 1)
    assert make.state(job_id) == "reserved"
    assert make.say(held).fates == {held.fence: Fate.WRITTEN}


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_claim_beside_an_open_pause_takes_nothing(play: Play, make: Factory, stage: str) -> None:
    """Rows that a pause has locked are stepped over, and wait in the end."""
    make.advance_to(stage, count=2)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator.before_commit()
    pause = operator.does(pauses(make))
    stop.reached()

    assert worker.does(claims(make, stage)).result() == []
    stop.go()

    pause.result()
    assert {make.state(job_id) for job_id in make.job_ids()} == {"waiting"}
    assert worker.does(claims(make, stage)).result() == []


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_claim_with_a_snapshot_from_before_the_pause_takes_nothing(play: Play, make: Factory, stage: str) -> None:
    """It still sees an active lane and a pending job; the row itself says otherwise once it is locked."""
    make.advance_to(stage, count=2)
    operator, worker = play.actor("operator"), play.actor("worker")
    with door_to_jobs(play.url, worker) as door:
        door.shut()
        late = worker.does(claims(make, stage))
        play.wait_until_waiting(worker, "advisory")
        operator.does(pauses(make)).result()
        door.open()
        assert late.result() == []

    assert {make.state(job_id) for job_id in make.job_ids()} == {"waiting"}


def test_a_step_to_a_stage_without_limit_during_a_pause_is_not_claimed(play: Play, make: Factory) -> None:
    """It waits for nobody and comes to be pending; the claim looks at the lane, and upkeep lets it wait."""
    make.plan()
    (claim,) = make.claim("generate")
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator.before_commit()
    pause = operator.does(pauses(make))
    stop.reached()
    worker.does(acks(claim)).result()
    stop.go()
    pause.result()
    assert make.state(claim.job_id) == "pending"
    assert worker.does(claims(make, "validate")).result() == []

    assert make.services.lanes.settle(make.site_id) == 1

    assert make.state(claim.job_id) == "waiting"


def test_a_resume_behind_upkeep_brings_back_what_that_took(play: Play, make: Factory) -> None:
    """It waits for the lane, and finds it as upkeep left it: nothing waits in an active lane for nothing."""
    make.plan()
    (claim,) = make.claim("generate")
    paused(make)
    make.say(claim)
    settles: Callable[[Services], object] = lambda s: s.lanes.settle(make.site_id)  # noqa: E731
    upkeep, operator = play.actor("upkeep"), play.actor("operator")
    stop = upkeep.after(lanes.demote())
    settled = upkeep.does(settles)
    stop.reached()
    resumed = operator.does(resumes(make))
    play.wait_until_blocked(operator, upkeep)

    stop.go()

    settled.result()
    resumed.result()
    assert make.state(claim.job_id) == "pending"
    assert len(make.claim("validate")) == 1


def test_upkeep_waits_for_no_lane(play: Play, make: Factory) -> None:
    """A resume that is under way, or an application's open plan, is left alone: a worker has other work to do."""
    make.plan()
    (claim,) = make.claim("generate")
    paused(make)
    make.say(claim)
    operator = play.actor("operator")
    stop = operator.before_commit()
    resumed = operator.does(resumes(make))
    stop.reached()

    assert make.services.lanes.settle(make.site_id) == 0

    stop.go()
    resumed.result()
    assert make.state(claim.job_id) == "pending"
    assert len(make.claim("validate")) == 1


@pytest.mark.parametrize("pause_first", [True, False], ids=["pause-first", "resume-first"])
def test_a_pause_and_a_resume_take_turns(play: Play, make: Factory, lane: Lane, pause_first: bool) -> None:
    """The second one acts on what the first one left; the lane ends as the second one wants it."""
    make.advance_to("publish", count=2)
    if not pause_first:
        paused(make)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(pauses(make) if pause_first else resumes(make))
    stop.reached()
    second = other.does(resumes(make) if pause_first else pauses(make))
    play.wait_until_blocked(other, one)

    stop.go()

    assert (first.result().jobs, second.result().jobs) == (1, 1)
    assert lane.states()[0] == (("publish", "pending", 1) if pause_first else ("publish", "waiting", None))


def test_two_pauses_act_once(play: Play, make: Factory) -> None:
    """The second one is told that the lane is paused already."""
    make.plan()
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(pauses(make))
    stop.reached()
    second = other.does(pauses(make))
    play.wait_until_blocked(other, one)

    stop.go()

    first.result()
    assert "paused already" in str(second.error())


def test_a_plan_and_a_pause_take_turns(play: Play, make: Factory) -> None:
    """A pause waits for a plan's lanes, and lets what that made pending wait."""
    make.plan()
    planner, operator = play.actor("planner"), play.actor("operator")
    stop = planner.before_commit()
    planning = planner.does(lambda s: s.planning.plan(make.site_id, [make.row("lane", n) for n in (1, 2, 3)]))
    stop.reached()
    pause = operator.does(pauses(make))
    play.wait_until_blocked(operator, planner)

    stop.go()

    assert planning.result().new == 2
    assert pause.result().jobs == 3


@pytest.mark.parametrize("remove_first", [True, False], ids=["remove-first", "plan-first"])
def test_a_site_that_is_planned_meanwhile_is_not_removed_in_part(play: Play, make: Factory, remove_first: bool) -> None:
    """Either the plan is there whole and the removal is refused, or the site is gone and the plan ends in an error."""
    ids = make.plan()
    make.services.operate.skip(ids, actor=ACTOR)
    rows = [make.row("lane", n) for n in (1, 2)]
    operator, planner = play.actor("operator"), play.actor("planner")
    if remove_first:
        stop = operator.after(sites.contents())
        removal = operator.does(lambda s: s.sites.remove(make.site_id, "acme", actor=ACTOR))
        stop.reached()
        planning = planner.does(lambda s: s.planning.plan(make.site_id, rows))
        play.wait_until_blocked(planner, operator)
        stop.go()
        removal.result()
        planning.error()
        assert make.services.reading.sites() == []
    else:
        stop = planner.after(append.count())
        planning = planner.does(lambda s: s.planning.plan(make.site_id, rows))
        stop.reached()
        removal = operator.does(lambda s: s.sites.remove(make.site_id, "acme", actor=ACTOR))
        play.wait_until_blocked(operator, planner)
        stop.go()
        assert planning.result().new == 1
        assert "1 unfinished job" in str(removal.error())
        assert len(make.job_ids()) == 2
