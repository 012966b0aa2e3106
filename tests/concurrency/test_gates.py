"""Two verbs at the two sides of one gate: exactly the right one is promoted, and the lane never stands still.

Whoever comes second waits for the gate's row, then sees what the first one committed. Each race runs with either verb
first, stopped at every step between its lock and its commit.
"""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, update

from pipeline.build import Services
from pipeline.service.acknowledging import Ack, Fate, Settled, Verb
from pipeline.service.planning import StageSpec
from pipeline.sql import gates, operate, plan, transitions
from pipeline.sql.tables import lanes
from pipeline.views import Claim
from tests.concurrency.conftest import Lane
from tests.concurrency.stage import CLOCK, Actor, Play, Stop
from tests.factories import ACTOR, Factory, draft_of

Body = Callable[[Services], object]


def says(claim: Claim, verb: Verb = Verb.ADVANCE, *, wait: bool = True) -> Callable[[Services], Settled]:
    draft = draft_of(claim) if claim.stage == "generate" and verb is Verb.ADVANCE else None
    return lambda services: services.work.acknowledge([Ack(claim, verb, draft=draft)], wait=wait)


def skips(job_id: int) -> Body:
    return lambda services: services.operate.skip([job_id], actor=ACTOR)


STEPS = ("locked", "written", "moved", "promoted", "committing")


def stop_at(actor: Actor, step: str) -> Stop:
    """A stop at one of the steps that every verb at a gate takes."""
    match step:
        case "locked":
            return actor.after(gates.lock(wait=True))
        case "written":
            return actor.before(gates.move_passed())
        case "moved":
            return actor.before(gates.promote(CLOCK))
        case "promoted":
            return actor.after(gates.promote(CLOCK))
        case _:
            return actor.before_commit()


def one_after_the_other(play: Play, first: Body, second: Body, step: str) -> tuple[object, object]:
    """``first`` stands at the step while ``second`` waits for the gate; then both end."""
    one, other = play.actor("first"), play.actor("second")
    stop = stop_at(one, step)
    ahead = one.does(first)
    stop.reached()
    behind = other.does(second)
    play.wait_until_blocked(other, one)
    stop.go()
    answers = ahead.result(), behind.result()
    assert one.sqlstates == other.sqlstates == []
    return answers


def at_both_sides(make: Factory) -> tuple[Claim, Claim]:
    """Position 1 is reserved at the gate, position 2 at the stage before it."""
    make.advance_to("validate", count=2)
    near, far = make.claim("validate", 2)
    make.say(near)
    (at_gate,) = make.claim("publish")
    return at_gate, far


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("leaver_first", [True, False], ids=["leaver-first", "comer-first"])
def test_one_leaves_a_gate_while_the_next_comes_to_it(
    play: Play, make: Factory, lane: Lane, leaver_first: bool, step: str
) -> None:
    """Whichever locks the gate first, the next position is promoted exactly once and the lane goes on."""
    leaver, comer = at_both_sides(make)
    bodies = [says(leaver), says(comer)]

    one_after_the_other(play, *(bodies if leaver_first else bodies[::-1]), step)

    assert lane.states() == [("publish", "done", None), ("publish", "pending", 1)]
    assert lane.passed() == 1


@pytest.mark.usefixtures("serializable")
@pytest.mark.parametrize("leaver_first", [True, False], ids=["leaver-first", "comer-first"])
def test_the_default_of_the_role_changes_nothing(play: Play, make: Factory, lane: Lane, leaver_first: bool) -> None:
    """A role whose default is serializable sees the same race with the same end."""
    leaver, comer = at_both_sides(make)
    bodies = [says(leaver), says(comer)]
    with play.actor("first").engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW default_transaction_isolation").scalar_one() == "serializable"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"

    one_after_the_other(play, *(bodies if leaver_first else bodies[::-1]), "written")

    assert lane.states() == [("publish", "done", None), ("publish", "pending", 1)]


@pytest.mark.usefixtures("serializable")
@pytest.mark.parametrize("goer_first", [True, False], ids=["goer-first", "comer-first"])
def test_a_turn_given_up_is_seen_whatever_the_default_of_the_role(
    play: Play, make: Factory, lane: Lane, engine: Engine, goer_first: bool
) -> None:
    """Fail and advance at one gate end as they do by default."""
    make.advance_to("validate", count=2)
    near, far = make.claim("validate", 2)
    with engine.begin() as connection:
        connection.execute(update(lanes).values(on_failed="skip"))
    bodies = [says(near, Verb.FAIL), says(far)]

    one_after_the_other(play, *(bodies if goer_first else bodies[::-1]), "written")

    assert lane.states() == [("validate", "skipped", None), ("publish", "pending", 1)]


@pytest.mark.parametrize("step", ["locked", "promoted"])
@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.REPAIR])
@pytest.mark.parametrize("leaver_first", [True, False], ids=["leaver-first", "comer-first"])
def test_a_head_that_halts_keeps_the_next_one_waiting(
    play: Play, make: Factory, lane: Lane, leaver_first: bool, verb: Verb, step: str
) -> None:
    """A failure at the gate halts the lane, whether the next one came to the gate before or after it."""
    leaver, comer = at_both_sides(make)
    bodies = [says(leaver, verb), says(comer)]

    one_after_the_other(play, *(bodies if leaver_first else bodies[::-1]), step)

    halted = "failed" if verb is Verb.FAIL else "repair"
    assert lane.states() == [("publish", halted, None), ("publish", "waiting", None)]
    assert lane.passed() == 0


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", ["fail", "last-retry", "skip"])
@pytest.mark.parametrize("goer_first", [True, False], ids=["goer-first", "comer-first"])
def test_one_gives_its_turn_up_before_the_gate_while_the_next_comes_to_it(
    play: Play, make: Factory, lane: Lane, engine: Engine, how: str, goer_first: bool, step: str
) -> None:
    """A turn given up at an earlier stage moves the gate too: the next position is promoted in either order."""
    first, _ = make.advance_to("validate", count=2)
    near, far = make.claim("validate", 2)
    with engine.begin() as connection:
        connection.execute(update(lanes).values(on_failed="skip"))
    if how == "skip":
        make.say(near, Verb.RETRY)
        goer: Body = skips(first)
    elif how == "fail":
        goer = says(near, Verb.FAIL)
    else:
        for _ in range(4):
            make.say(near, Verb.RETRY)
            (near,) = make.claim("validate")
        goer = says(near, Verb.RETRY)
    bodies = [goer, says(far)]

    one_after_the_other(play, *(bodies if goer_first else bodies[::-1]), step)

    assert lane.states() == [("validate", "skipped", None), ("publish", "pending", 1)]
    assert lane.passed() == 1


@pytest.mark.parametrize("step", ["locked", "promoted"])
@pytest.mark.parametrize("requeue_first", [True, False], ids=["requeue-first", "comer-first"])
def test_the_head_is_requeued_while_the_next_one_comes(
    play: Play, make: Factory, lane: Lane, requeue_first: bool, step: str
) -> None:
    """A requeued head takes its turn again; the one behind it waits."""
    head, comer = at_both_sides(make)
    make.say(head, Verb.REPAIR)
    bodies: list[Body] = [lambda s: s.operate.requeue([head.job_id], actor=ACTOR), says(comer)]

    one_after_the_other(play, *(bodies if requeue_first else bodies[::-1]), step)

    assert lane.states() == [("publish", "pending", 1), ("publish", "waiting", None)]


@pytest.mark.parametrize("step", ["locked", "promoted"])
@pytest.mark.parametrize("skip_first", [True, False], ids=["skip-first", "requeue-first"])
def test_a_halted_head_is_skipped_and_requeued_at_once(
    play: Play, make: Factory, lane: Lane, skip_first: bool, step: str
) -> None:
    """One of two operators has his will, the other is refused with the reason; the lane never stands still."""
    head, _ = make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], Verb.FAIL)
    one, other = play.actor("first"), play.actor("second")
    requeue: Body = lambda s: s.operate.requeue([head], actor=ACTOR)  # noqa: E731
    first, second = (skips(head), requeue) if skip_first else (requeue, skips(head))
    stop = stop_at(one, step)
    ahead = one.does(first)
    stop.reached()
    behind = other.does(second)
    play.wait_until_blocked(other, one)
    stop.go()
    ahead.result()

    if skip_first:
        assert "is skipped" in str(behind.error())
        assert lane.states() == [("publish", "skipped", None), ("publish", "pending", 1)]
    else:
        behind.result()  # a pending job may be skipped
        assert lane.states() == [("publish", "skipped", None), ("publish", "pending", 1)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("plan_first", [True, False], ids=["plan-first", "leaver-first"])
def test_topics_are_planned_while_the_last_one_leaves_the_first_gate(
    play: Play, make: Factory, lane: Lane, plan_first: bool, step: str
) -> None:
    """A lane with a gate at its first stage takes new topics and goes on, in either order."""
    make.site(stages=(StageSpec("generate", 1, 5), StageSpec("publish", 1, 5)))
    make.plan(count=1)
    (head,) = make.claim("generate")
    rows = [make.row("lane", n) for n in (1, 2, 3)]
    plans: Body = lambda s: s.planning.plan(make.site_id, rows)  # noqa: E731
    one, other = play.actor("first"), play.actor("second")
    first, second = (plans, says(head)) if plan_first else (says(head), plans)
    stop = one.after(plan.lock_first_gates()) if plan_first and step == "locked" else stop_at(one, step)
    ahead = one.does(first)
    stop.reached()
    behind = other.does(second)
    play.wait_until_blocked(other, one)

    stop.go()
    ahead.result()
    behind.result()

    assert lane.states() == [("publish", "pending", 1), ("generate", "pending", 1), ("generate", "waiting", None)]
    assert lane.passed("generate") == 1


def test_a_busy_gate_is_told_and_the_job_is_written_later(play: Play, make: Factory, lane: Lane) -> None:
    """An acknowledgement does not wait behind a gate unless told to: it is answered busy, and kept."""
    leaver, comer = at_both_sides(make)
    one, other = play.actor("first"), play.actor("second")
    stop = one.before_commit()
    ahead = one.does(says(leaver))
    stop.reached()

    missed = other.does(says(comer, wait=False)).result()
    assert missed.fates == {comer.fence: Fate.BUSY}
    assert lane.states()[1] == ("validate", "reserved", None)
    stop.go()
    ahead.result()

    assert other.does(says(comer, wait=False)).result().fates == {comer.fence: Fate.WRITTEN}
    assert lane.states() == [("publish", "done", None), ("publish", "pending", 1)]


def test_a_lane_that_learns_to_skip_under_the_eyes_of_a_failure(
    play: Play, make: Factory, lane: Lane, engine: Engine
) -> None:
    """A failure whose lane now goes on needs all its gates: it is not written with fewer, but told again."""
    make.advance_to("validate", count=2)
    near, far = make.claim("validate", 2)
    make.say(far)
    worker = play.actor("worker")
    stop = worker.before(transitions.fail(CLOCK))
    failure = worker.does(says(near, Verb.FAIL))
    stop.reached()
    with engine.begin() as connection:
        connection.execute(update(lanes).values(on_failed="skip"))

    stop.go()

    assert failure.result().fates == {near.fence: Fate.BUSY}
    assert make.say(near, Verb.FAIL).fates == {near.fence: Fate.WRITTEN}
    assert lane.states() == [("validate", "skipped", None), ("publish", "pending", 1)]


def test_a_batch_is_written_but_for_those_behind_a_busy_gate(play: Play, make: Factory, lane: Lane) -> None:
    """One busy gate holds up only the jobs that it concerns."""
    leaver, comer = at_both_sides(make)
    free = make.plan(lane="other")[0]
    (generated,) = make.claim("generate")
    one, other = play.actor("first"), play.actor("second")
    stop = one.before_commit()
    ahead = one.does(says(leaver))
    stop.reached()

    batch = [Ack(comer, Verb.ADVANCE), Ack(generated, Verb.ADVANCE, draft=draft_of(generated))]
    settled = other.does(lambda s: s.work.acknowledge(batch)).result()

    assert settled.fates == {comer.fence: Fate.BUSY, generated.fence: Fate.WRITTEN}
    assert make.job(free).stage == "validate"
    stop.go()
    ahead.result()
    assert make.say(comer).fates == {comer.fence: Fate.WRITTEN}


def test_a_gate_of_two_gives_each_place_once(play: Play, make: Factory, lane: Lane) -> None:
    """At a gate of width two, one that leaves and one that comes never share a slot, and none stays empty."""
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("render", 2, 5)))
    make.plan(count=4)
    *early, late = make.claim("generate", 4)
    for claim in early:
        make.say(claim, draft=draft_of(claim))
    leaving, staying = make.claim("render", 2)

    one_after_the_other(play, says(leaving), says(late), "written")

    left = [("render", "done", None), ("render", "reserved", staying_slot(lane)), ("render", "pending", 1)]
    assert lane.states() == [*left, ("render", "waiting", None)]
    assert staying.job_id == make.job_ids()[1]


def staying_slot(lane: Lane) -> int | None:
    return lane.states()[1][2]


def test_a_lost_place_at_a_gate_is_given_on(play: Play, make: Factory, lane: Lane) -> None:
    """A reap that sends the head to repair halts the lane; one that gives it back leaves it its place."""
    leaver, comer = at_both_sides(make)
    make.expire(leaver.job_id)
    (candidate,) = [e for e in make.services.work.expired() if e.over]

    one_after_the_other(play, lambda s: s.work.reap([candidate]), says(comer), "written")

    assert lane.states() == [("publish", "pending", 1), ("publish", "waiting", None)]
    assert lane.outcomes(leaver.job_id)[-1] == "expired"


def test_the_statements_that_are_stopped_at_are_those_that_run(play: Play, make: Factory) -> None:
    """A stop that is never met is a failure, not a pass."""
    make.advance_to("validate")
    (claim,) = make.claim("validate")
    actor = play.actor("alone")
    written = actor.after(transitions.advance(CLOCK))
    never = actor.before(operate.skip(CLOCK))

    act = actor.does(says(claim))
    written.reached()
    written.go()
    act.result()

    assert not never._reached.is_set()
