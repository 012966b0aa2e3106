"""Races for one reservation: the first commit wins, and the other side learns it."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text, update
from sqlalchemy.exc import OperationalError

from pipeline import upkeep
from pipeline.build import Services
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.work import Expired, Prefix
from pipeline.sql import claim as claims, gates, transitions
from pipeline.sql.tables import jobs
from pipeline.views import Claim
from tests.concurrency.conftest import Lane
from tests.concurrency.stage import CLOCK, Play, door_to_jobs
from tests.factories import ACTOR, LEASE, Factory, draft_of

STRICT, FREE = "publish", "validate"  # a stage with a gate, and one without


def acks(claim: Claim, verb: Verb = Verb.ADVANCE, *, wait: bool = True) -> Callable[[Services], dict[int, Fate]]:
    draft = draft_of(claim) if claim.stage == "generate" and verb is Verb.ADVANCE else None
    return lambda s: s.work.acknowledge([Ack(claim, verb, draft=draft)], wait=wait).fates


def claims_at(make: Factory, stage: str, count: int = 1) -> Callable[[Services], list[Claim]]:
    return lambda s: s.work.claim([Prefix(make.site_id, stage, 2, count, LEASE)], "rival")


def overdue(make: Factory, claim: Claim) -> Expired:
    """The claim as a reaper reads it, its lease over."""
    make.expire(claim.job_id)
    (found,) = [e for e in make.services.work.expired() if e.job_id == claim.job_id]
    assert found.over
    return found


def reserved(make: Factory, stage: str) -> Claim:
    make.advance_to(stage)
    (claim,) = make.claim(stage)
    return claim


@pytest.mark.parametrize("stage", [STRICT, FREE])
@pytest.mark.usefixtures("serializable")
def test_a_reaper_finds_nothing_behind_a_completion(play: Play, make: Factory, lane: Lane, stage: str) -> None:
    """A job whose completion is on its way is not taken, and stays done when that commits."""
    claim = reserved(make, stage)
    candidate = overdue(make, claim)
    worker, reaper = play.actor("worker"), play.actor("reaper")
    stop = worker.before_commit()
    completion = worker.does(acks(claim))
    stop.reached()

    reap = reaper.does(lambda s: s.work.reap([candidate]).fates)
    if stage == STRICT:
        play.wait_until_blocked(reaper, worker)  # for the gate
        stop.go()
        assert reap.result() == {}
    else:
        assert reap.result() == {}  # the locked row is stepped over, while the completion stands
        stop.go()

    assert completion.result() == {claim.fence: Fate.WRITTEN}
    assert make.services.work.reap([candidate]).fates == {}
    assert lane.outcomes(claim.job_id)[-1] == "done"
    assert make.state(claim.job_id) == ("done" if stage == STRICT else "pending")


@pytest.mark.parametrize("stage", [STRICT, FREE])
@pytest.mark.usefixtures("serializable")
def test_a_completion_behind_a_reaper_is_lost(play: Play, make: Factory, lane: Lane, stage: str) -> None:
    """A completion that waits for a reaper is told that the job is no longer its own, and writes nothing."""
    claim = reserved(make, stage)
    candidate = overdue(make, claim)
    worker, reaper = play.actor("worker"), play.actor("reaper")
    stop = reaper.before_commit()
    reap = reaper.does(lambda s: s.work.reap([candidate]).fates)
    stop.reached()
    completion = worker.does(acks(claim))
    play.wait_until_blocked(worker, reaper)

    stop.go()

    assert reap.result() == {claim.fence: Fate.WRITTEN}
    assert completion.result() == {claim.fence: Fate.LOST}
    assert lane.outcomes(claim.job_id)[-1] == "expired"
    assert make.job(claim.job_id).stage == stage
    assert make.state(claim.job_id) == "pending"


@pytest.mark.parametrize("stage", [STRICT, FREE])
def test_a_reaper_finds_nothing_behind_a_renewal(play: Play, make: Factory, stage: str) -> None:
    """A lease that is being renewed is not taken, neither before nor after the renewal commits."""
    claim = reserved(make, stage)
    candidate = overdue(make, claim)
    worker, reaper = play.actor("worker"), play.actor("reaper")
    stop = worker.before_commit()
    renewal = worker.does(lambda s: s.work.renew([claim]))
    stop.reached()

    while_open = reaper.does(lambda s: s.work.reap([candidate]).fates).result()
    stop.go()
    assert renewal.result() == {claim.fence: ("renewed", False)}
    after = reaper.does(lambda s: s.work.reap([candidate]).fates).result()

    assert while_open == after == {}
    assert make.state(claim.job_id) == "reserved"


def test_a_renewal_that_commits_under_the_eyes_of_the_reaper_counts(play: Play, make: Factory, lane: Lane) -> None:
    """The lease is judged when the row is locked: what the reaper's snapshot saw is not enough."""
    claim = reserved(make, FREE)
    candidate = overdue(make, claim)
    worker, reaper = play.actor("worker"), play.actor("reaper")
    with door_to_jobs(play.url, reaper) as door:
        stop = reaper.before(transitions.reap(CLOCK, holder_is_gone=False))
        reap = reaper.does(lambda s: s.work.reap([candidate]).fates)
        stop.reached()
        door.shut()
        stop.go()
        play.wait_until_waiting(reaper, "advisory")
        assert worker.does(lambda s: s.work.renew([claim])).result() == {claim.fence: ("renewed", False)}
        door.open()
        assert reap.result() == {}

    assert make.state(claim.job_id) == "reserved"
    assert lane.outcomes(claim.job_id) == ["done"]  # of the stage before


@pytest.mark.parametrize("stage", [STRICT, FREE])
def test_a_renewal_behind_a_reaper_is_told_to_try_again_and_then_that_it_is_gone(
    play: Play, make: Factory, stage: str
) -> None:
    """A renewal never waits for a locked row; once the reap has committed the reservation is gone."""
    claim = reserved(make, stage)
    candidate = overdue(make, claim)
    worker, reaper = play.actor("worker"), play.actor("reaper")
    stop = reaper.before_commit()
    reap = reaper.does(lambda s: s.work.reap([candidate]).fates)
    stop.reached()

    assert worker.does(lambda s: s.work.renew([claim])).result() == {claim.fence: ("locked", False)}
    stop.go()
    reap.result()
    assert worker.does(lambda s: s.work.renew([claim])).result() == {}


@pytest.mark.parametrize("stage", [STRICT, FREE])
def test_two_reapers_take_a_job_once(play: Play, make: Factory, lane: Lane, stage: str) -> None:
    """Nobody is elected: the second reaper writes nothing, and the attempt stands once."""
    claim = reserved(make, stage)
    candidate = overdue(make, claim)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(lambda s: s.work.reap([candidate]).fates)
    stop.reached()
    second = other.does(lambda s: s.work.reap([candidate]).fates)
    if stage == STRICT:
        play.wait_until_blocked(other, one)
    else:
        assert second.result() == {}  # the locked row is stepped over

    stop.go()

    assert first.result() == {claim.fence: Fate.WRITTEN}
    assert second.result() == {}
    assert lane.outcomes(claim.job_id).count("expired") == 1
    assert make.job(claim.job_id).attempts == 1


def test_two_claims_share_the_work(play: Play, make: Factory) -> None:
    """A second claim takes what the first one left, without waiting for it."""
    make.plan(count=5)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(claims_at(make, "generate", 3))
    stop.reached()

    second = other.does(claims_at(make, "generate", 5)).result()
    stop.go()

    taken = [c.job_id for c in first.result()]
    rest = [c.job_id for c in second]
    assert len(taken) == 3
    assert sorted(taken + rest) == make.job_ids()


@pytest.mark.parametrize("share", [1, 2])
def test_a_candidate_that_was_taken_since_the_snapshot_is_left_alone(play: Play, make: Factory, share: int) -> None:
    """A claim whose snapshot still shows a job pending does not take it from the one that committed meanwhile."""
    ids = make.plan(count=3)
    slow, quick = play.actor("slow"), play.actor("quick")
    with door_to_jobs(play.url, slow) as door:
        door.shut()
        late = slow.does(claims_at(make, "generate", share))
        play.wait_until_waiting(slow, "advisory")
        (early,) = quick.does(claims_at(make, "generate", 1)).result()
        door.open()
        got = late.result()

    assert early.job_id == ids[0]
    assert [c.job_id for c in got] == ids[1 : 1 + share]
    assert len({early.token, *(c.token for c in got)}) == 2
    assert make.job(early.job_id).token == early.token


def test_the_head_of_a_lane_that_was_taken_since_the_snapshot_lets_no_other_through(play: Play, make: Factory) -> None:
    """At a strict gate a claim with an old snapshot finds the head taken, and takes nothing in its place."""
    head, _ = make.advance_to("publish", count=2)
    slow, quick = play.actor("slow"), play.actor("quick")
    with door_to_jobs(play.url, slow) as door:
        door.shut()
        late = slow.does(claims_at(make, "publish", 2))
        play.wait_until_waiting(slow, "advisory")
        (early,) = quick.does(claims_at(make, "publish", 2)).result()
        door.open()
        assert late.result() == []

    assert early.job_id == head


def test_a_claim_does_not_take_what_was_cancelled_since_its_snapshot(play: Play, make: Factory) -> None:
    """The guard stands in the write: a cancel that committed under the claim's eyes holds."""
    first, second = make.plan(count=2)
    slow = play.actor("slow")
    with door_to_jobs(play.url, slow) as door:
        door.shut()
        late = slow.does(claims_at(make, "generate", 2))
        play.wait_until_waiting(slow, "advisory")
        make.services.operate.cancel([first], actor=ACTOR)
        door.open()
        got = late.result()

    assert [c.job_id for c in got] == [second]
    assert make.state(first) == "cancelled"


@pytest.mark.parametrize("stage", [STRICT, FREE])
def test_the_same_outcome_told_twice_is_written_once(play: Play, make: Factory, lane: Lane, stage: str) -> None:
    """A resent acknowledgement waits for the first one and is answered as it was."""
    claim = reserved(make, stage)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(acks(claim))
    stop.reached()
    again = other.does(acks(claim))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result() == again.result() == {claim.fence: Fate.WRITTEN}
    assert len(lane.outcomes(claim.job_id)) == (3 if stage == STRICT else 2)
    assert make.say(claim).fates == {claim.fence: Fate.WRITTEN}


def test_another_outcome_under_the_same_token_is_refused(play: Play, make: Factory, lane: Lane) -> None:
    """What was told first stands; a different word for the same reservation is answered lost."""
    claim = reserved(make, FREE)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(acks(claim))
    stop.reached()
    second = other.does(acks(claim, Verb.FAIL))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result() == {claim.fence: Fate.WRITTEN}
    assert second.result() == {claim.fence: Fate.LOST}
    assert lane.outcomes(claim.job_id) == ["done", "done"]


@pytest.mark.parametrize("stage", [STRICT, FREE])
@pytest.mark.parametrize("verb", list(Verb))
def test_a_late_worker_cannot_say_anything(make: Factory, verb: Verb, stage: str) -> None:
    """Whatever the verb, a token that was taken over changes nothing."""
    late = reserved(make, stage)
    make.services.work.reap([overdue(make, late)])
    (owner,) = make.claim(stage)
    before = make.job(late.job_id)

    fates = make.say(late, verb).fates

    assert fates == {late.fence: Fate.LOST}
    assert make.services.work.renew([late]) == {}
    assert make.job(late.job_id) == before
    assert make.say(owner).fates == {owner.fence: Fate.WRITTEN}


@pytest.mark.parametrize("stage", [STRICT, FREE])
def test_a_session_that_is_ended_before_its_commit_leaves_the_job_to_be_told_again(
    play: Play, make: Factory, lane: Lane, stage: str
) -> None:
    """An outcome that is unknown to the worker is settled by saying it again: it is written once."""
    claim = reserved(make, stage)
    worker, killer = play.actor("worker"), play.actor("killer")
    stop = worker.before_commit()
    completion = worker.does(acks(claim))
    stop.reached()
    with killer.engine.begin() as connection:
        assert connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": worker.pid}).scalar_one()
    stop.go()
    assert isinstance(completion.error(), OperationalError)
    before = lane.outcomes(claim.job_id)

    assert worker.does(acks(claim)).result() == {claim.fence: Fate.WRITTEN}

    assert lane.outcomes(claim.job_id) == [*before, "done"]
    assert worker.does(acks(claim)).result() == {claim.fence: Fate.WRITTEN}
    assert lane.outcomes(claim.job_id) == [*before, "done"]


def test_a_renewal_beside_an_acknowledgement_is_never_told_that_a_job_is_gone(play: Play, make: Factory) -> None:
    """Rows that an acknowledgement has locked are answered locked, the others are renewed, and nobody waits."""
    make.plan(count=4)
    held = make.claim("generate", 4)
    worker, heart = play.actor("worker"), play.actor("heart")
    stop = worker.before_commit()
    said = [Ack(c, Verb.ADVANCE, draft=draft_of(c)) for c in held[:2]]
    batch = worker.does(lambda s: s.work.acknowledge(said).fates)
    stop.reached()

    answers = heart.does(lambda s: s.work.renew(held)).result()
    stop.go()
    batch.result()

    assert [answers[c.fence][0] for c in held] == ["locked", "locked", "renewed", "renewed"]
    assert set(heart.does(lambda s: s.work.renew(held)).result()) == {c.fence for c in held[2:]}


def test_an_acknowledgement_waits_for_a_renewal_and_is_written(play: Play, make: Factory) -> None:
    """A completion behind an open renewal ends as if there had been none."""
    claim = reserved(make, FREE)
    worker, heart = play.actor("worker"), play.actor("heart")
    stop = heart.before_commit()
    renewal = heart.does(lambda s: s.work.renew([claim]))
    stop.reached()
    completion = worker.does(acks(claim))
    play.wait_until_blocked(worker, heart)

    stop.go()

    assert renewal.result() == {claim.fence: ("renewed", False)}
    assert completion.result() == {claim.fence: Fate.WRITTEN}
    assert make.job(claim.job_id).lease_expires_at is None


def test_acknowledgements_and_heartbeats_never_deadlock(play: Play, make: Factory) -> None:
    """Two hundred batches beside a heartbeat that never rests: no lock is refused, and no lease is lost by it."""
    rounds, size = 200, 4
    make.plan(count=size)
    worker, heart = play.actor("worker"), play.actor("heart")
    held: list[Claim] = []
    answers: list[dict[int, tuple[str, bool]]] = []
    done = 0

    def work(s: Services) -> None:
        nonlocal held, done
        for _ in range(rounds):
            # Fewer than all where the heartbeat has a row locked just now.
            held = s.work.claim([Prefix(make.site_id, "generate", 2, size, LEASE)], "worker")
            # Snoozed: the attempt comes back, so that this can go on for ever.
            fates = s.work.acknowledge([Ack(c, Verb.SNOOZE) for c in reversed(held)]).fates
            assert fates == {c.fence: Fate.WRITTEN for c in held}
            done += len(held)

    def beat(s: Services) -> None:
        while not working.over:
            answers.append(s.work.renew(reversed(held)))

    working = worker.does(work)
    beating = heart.does(beat)
    working.result()
    beating.result()

    assert done > rounds
    assert worker.sqlstates == heart.sqlstates == []
    kinds = {kind for given in answers for kind, _ in given.values()}
    assert kinds <= {"renewed", "locked"}
    assert "renewed" in kinds


def test_a_batch_of_several_verbs_does_not_cross_an_operator(play: Play, make: Factory) -> None:
    """Rows are locked in id order whatever is said of them, so that bulk verbs never meet head-on."""
    make.plan(count=2)
    low, high = sorted(make.claim("generate", 2), key=lambda c: c.job_id)
    worker, operator = play.actor("worker"), play.actor("operator")
    said = [Ack(high, Verb.ADVANCE, draft=draft_of(high)), Ack(low, Verb.RETRY)]
    between = worker.before(transitions.retry(CLOCK))
    batch = worker.does(lambda s: s.work.acknowledge(said).fates)
    between.reached()
    cancel = operator.does(lambda s: s.operate.cancel([low.job_id, high.job_id], actor=ACTOR))
    play.wait_until_blocked(operator, worker)

    between.go()

    assert batch.result() == {low.fence: Fate.WRITTEN, high.fence: Fate.WRITTEN}
    cancel.result()
    assert worker.sqlstates == operator.sqlstates == []
    assert {make.state(low.job_id), make.state(high.job_id)} == {"cancelled"}


def test_a_lease_that_is_over_may_still_be_used_until_it_is_taken(make: Factory) -> None:
    """The token is the fence; the lease only permits others to take over."""
    claim = reserved(make, FREE)
    make.expire(claim.job_id)

    assert make.services.work.renew([claim]) == {claim.fence: ("renewed", False)}
    make.expire(claim.job_id)
    assert make.say(claim).fates == {claim.fence: Fate.WRITTEN}


def test_a_job_that_is_taken_at_its_last_attempt_halts_the_lane(
    play: Play, make: Factory, lane: Lane, engine: Engine
) -> None:
    """Reaper and arrival at one gate: a head without attempts left goes to repair, and nobody passes it."""
    make.advance_to("validate", count=2)
    near, far = make.claim("validate", 2)
    make.say(near)
    with engine.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == near.job_id).values(max_attempts=1))
    (head,) = make.claim("publish", lease=timedelta(seconds=30))
    candidate = overdue(make, head)
    reaper, worker = play.actor("reaper"), play.actor("worker")
    stop = reaper.before(gates.move_passed())
    reap = reaper.does(lambda s: s.work.reap([candidate]).outcomes)
    stop.reached()
    arrival = worker.does(acks(far))
    play.wait_until_blocked(worker, reaper)

    stop.go()

    assert reap.result() == {head.fence: "expired"}
    assert arrival.result() == {far.fence: Fate.WRITTEN}
    assert lane.states() == [("publish", "repair", None), ("publish", "waiting", None)]


def test_the_claim_is_one_statement(play: Play, make: Factory) -> None:
    """What the races above hold still is the claim that workers run."""
    make.plan()
    actor = play.actor("alone")
    met = actor.after(claims.claim(CLOCK, claims.Which.ALL))

    act = actor.does(claims_at(make, "generate"))
    met.reached()
    met.go()

    assert len(act.result()) == 1


def test_a_transaction_that_stands_still_holds_up_no_other_lane(play: Play, make: Factory) -> None:
    """Whoever has the gate of one lane may have stopped for good: jobs of other lanes are taken back all the same."""
    stuck, free = make.advance_to("publish", lane="stuck"), make.advance_to("publish", lane="free")
    held = {c.topic.lane: c for c in make.claim("publish", 2) if c.topic}
    make.expire(*stuck, *free)
    worker = play.actor("worker")
    stop = worker.before_commit()
    advance = worker.does(lambda s: s.work.acknowledge([Ack(held["stuck"], Verb.ADVANCE)], wait=True))
    stop.reached()

    settled = upkeep.reap(make.services)

    assert settled.outcomes == {held["free"].fence: "expired"}
    assert settled.fates[held["stuck"].fence] is Fate.BUSY
    stop.go()
    assert advance.result().fates == {held["stuck"].fence: Fate.WRITTEN}
