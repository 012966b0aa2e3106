"""An operator's verbs against the work that goes on: whoever commits first wins, and the other acts on what it left."""

from collections.abc import Callable

import pytest

from pipeline.build import Services
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.work import Prefix
from pipeline.sql import operate
from pipeline.views import Claim
from tests.concurrency.conftest import Lane
from tests.concurrency.stage import CLOCK, Play
from tests.factories import ACTOR, LEASE, Factory, draft_of


def acks(claim: Claim, verb: Verb = Verb.ADVANCE) -> Callable[[Services], dict[int, Fate]]:
    draft = draft_of(claim) if claim.stage == "generate" else None
    return lambda s: s.work.acknowledge([Ack(claim, verb, draft=draft)], wait=True).fates


def cancels(job_id: int) -> Callable[[Services], str]:
    return lambda s: s.operate.cancel([job_id], actor=ACTOR)[0].to_state


def reserved(make: Factory, stage: str) -> Claim:
    make.advance_to(stage)
    (claim,) = make.claim(stage)
    return claim


@pytest.mark.parametrize("stage", ["generate", "validate", "publish"])
def test_a_completion_after_an_open_cancel_sees_it(play: Play, make: Factory, lane: Lane, stage: str) -> None:
    """A cancel that was asked for first wins over every outcome but done of the last stage."""
    claim = reserved(make, stage)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator.before_commit()
    cancel = operator.does(cancels(claim.job_id))
    stop.reached()
    completion = worker.does(acks(claim))
    play.wait_until_blocked(worker, operator)

    stop.go()

    assert cancel.result() == "reserved"
    assert completion.result() == {claim.fence: Fate.WRITTEN}
    ended = "done" if stage == "publish" else "cancelled"
    assert make.state(claim.job_id) == ended
    assert lane.outcomes(claim.job_id)[-1] == ended


@pytest.mark.parametrize("stage", ["generate", "validate"])
def test_a_cancel_after_an_open_completion_stops_the_job_where_it_came_to(
    play: Play, make: Factory, lane: Lane, stage: str
) -> None:
    """An operator who waits for a completion cancels what it left, at the next stage or before its gate."""
    claim = reserved(make, stage)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = worker.before_commit()
    completion = worker.does(acks(claim))
    stop.reached()
    cancel = operator.does(cancels(claim.job_id))
    play.wait_until_blocked(operator, worker)

    stop.go()

    assert completion.result() == {claim.fence: Fate.WRITTEN}
    assert cancel.result() == "cancelled"
    assert make.state(claim.job_id) == "cancelled"
    assert lane.outcomes(claim.job_id)[-1] == "done"
    assert make.job(claim.job_id).gate_id is None


def test_a_cancel_after_the_last_completion_is_refused(play: Play, make: Factory) -> None:
    """What is done cannot be cancelled, and the operator is told so."""
    claim = reserved(make, "publish")
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = worker.before_commit()
    completion = worker.does(acks(claim))
    stop.reached()
    cancel = operator.does(cancels(claim.job_id))
    play.wait_until_blocked(operator, worker)

    stop.go()

    completion.result()
    assert f"job {claim.job_id} is done" in str(cancel.error())
    assert make.state(claim.job_id) == "done"


def test_a_job_that_comes_to_a_gate_under_the_eyes_of_an_operator_is_cancelled(play: Play, make: Factory) -> None:
    """A job that moved between the look for its gates and the write is looked for again."""
    claim = reserved(make, "validate")
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator.before(operate.cancel(CLOCK))
    cancel = operator.does(cancels(claim.job_id))
    stop.reached()
    worker.does(acks(claim)).result()
    assert make.job(claim.job_id).gate_id is not None

    stop.go()

    assert cancel.result() == "cancelled"
    assert make.state(claim.job_id) == "cancelled"


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_cancel_behind_an_open_claim_asks_the_holder_to_stop(play: Play, make: Factory, stage: str) -> None:
    """The operator waits for the claim, then his cancel is a wish that the holder sees."""
    (job_id,) = make.advance_to(stage)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = worker.before_commit()
    claim = worker.does(lambda s: s.work.claim([Prefix(make.site_id, stage, 2, 1, LEASE)], "worker"))
    stop.reached()
    cancel = operator.does(cancels(job_id))
    play.wait_until_blocked(operator, worker)

    stop.go()

    (held,) = claim.result()
    assert cancel.result() == "reserved"
    assert make.services.work.renew([held]) == {held.fence: ("renewed", True)}
    make.say(held, Verb.RETRY)
    assert make.state(job_id) == "cancelled"


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_claim_beside_an_open_cancel_takes_nothing(play: Play, make: Factory, stage: str) -> None:
    """A row that an operator has locked is stepped over, and is cancelled in the end."""
    (job_id,) = make.advance_to(stage)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator.before_commit()
    cancel = operator.does(cancels(job_id))
    stop.reached()

    got = worker.does(lambda s: s.work.claim([Prefix(make.site_id, stage, 2, 1, LEASE)], "worker")).result()
    stop.go()

    assert got == []
    assert cancel.result() == "cancelled"
    assert make.claim(stage) == []


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_claim_beside_an_open_requeue_waits_for_its_commit(play: Play, make: Factory, stage: str) -> None:
    """A requeued job is claimable once the requeue has committed, and not before."""
    (job_id,) = make.advance_to(stage)
    make.services.operate.cancel([job_id], actor=ACTOR)
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = operator.before_commit()
    requeue = operator.does(lambda s: s.operate.requeue([job_id], actor=ACTOR))
    stop.reached()

    assert worker.does(lambda s: s.work.claim([Prefix(make.site_id, stage, 2, 1, LEASE)], "worker")).result() == []
    stop.go()
    requeue.result()

    assert [c.job_id for c in make.claim(stage)] == [job_id]


@pytest.mark.parametrize("verb", ["requeue", "skip", "cancel"])
def test_two_operators_with_the_same_will_act_once(play: Play, make: Factory, verb: str) -> None:
    """The second one is refused with the state that the first one left."""
    (job_id,) = make.advance_to("publish")
    if verb == "requeue":
        make.services.operate.cancel([job_id], actor=ACTOR)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(lambda s: getattr(s.operate, verb)([job_id], actor=ACTOR))
    stop.reached()
    second = other.does(lambda s: getattr(s.operate, verb)([job_id], actor=ACTOR))
    play.wait_until_blocked(other, one)

    stop.go()

    first.result()
    left = {"requeue": "pending", "skip": "skipped", "cancel": "cancelled"}[verb]
    assert f"job {job_id} is {left}" in str(second.error())
    assert make.state(job_id) == left


def test_a_skip_behind_an_open_claim_is_refused_with_the_next_step(play: Play, make: Factory) -> None:
    """A running job cannot be skipped: it must be cancelled first."""
    (job_id,) = make.advance_to("generate")
    operator, worker = play.actor("operator"), play.actor("worker")
    stop = worker.before_commit()
    claim = worker.does(lambda s: s.work.claim([Prefix(make.site_id, "generate", 2, 1, LEASE)], "worker"))
    stop.reached()
    skip = operator.does(lambda s: s.operate.skip([job_id], actor=ACTOR))
    play.wait_until_blocked(operator, worker)

    stop.go()

    claim.result()
    assert "cancel it first" in str(skip.error())
    assert make.state(job_id) == "reserved"
