"""Lanes keep their order, and say so when they stand."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, text

from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.planning import StageSpec
from pipeline.states import JobState as S
from pipeline.views import Claim
from tests.conftest import SCHEMA
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory, draft_of, finding

STRICT = (StageSpec("generate", None, 5), StageSpec("publish", 1, 5))


def states(make: Factory, lane: str = "lane") -> list[S]:
    """The states of a lane's jobs, by position."""
    return [make.state(i) for i in make.job_ids(lane)]


def passed(sql: Sql, stage: str = "publish") -> int:
    return int(sql("SELECT max(passed) FROM gates WHERE stage = :stage", stage=stage)[0][0])


def through(make: Factory, stage: str, job_id: int, verb: Verb = Verb.ADVANCE) -> Claim:
    """Claim one certain job at a stage and end its reservation; the others claimed with it are given back."""
    claims = make.claim(stage, 99)
    mine = next(c for c in claims if c.job_id == job_id)
    make.say(mine, verb, draft=draft_of(mine) if stage == "generate" else None)
    for other in claims:
        if other is not mine:
            make.say(other, Verb.RELEASE)
    return mine


def test_a_strict_gate_releases_by_position(make: Factory, sql: Sql) -> None:
    """One at a time, in the order of the lane; passed follows."""
    ids = make.advance_to("publish", count=3)
    order = []
    while claims := make.claim("publish", 9):
        assert len(claims) == 1
        assert passed(sql) == len(order)
        order.append(claims[0].job_id)
        make.say(claims[0])

    assert order == ids
    assert passed(sql) == 3


def test_who_comes_early_waits_for_the_first(make: Factory) -> None:
    """A later position that arrives first is not promoted before the earlier ones are through."""
    make.site(stages=STRICT)
    first, second, third = make.plan(count=3)

    through(make, "generate", third)
    assert states(make) == [S.PENDING, S.PENDING, S.WAITING]
    through(make, "generate", second)
    assert make.claim("publish", 9) == []
    through(make, "generate", first)

    assert [c.job_id for c in make.claim("publish", 9)] == [first]


def test_a_wide_gate_holds_so_many_at_once(make: Factory, sql: Sql) -> None:
    """Width k: the k lowest hold slots of their own; a slot that is free goes to the next."""
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("publish", 2, 5)))
    ids = make.advance_to("publish", count=4)
    assert states(make) == [S.PENDING, S.PENDING, S.WAITING, S.WAITING]

    claims = make.claim("publish", 9)
    make.say(claims[1])

    assert [make.job(i).slot for i in ids] == [1, None, 2, None]
    assert states(make) == [S.RESERVED, S.DONE, S.PENDING, S.WAITING]


def test_a_wide_gate_goes_on_over_a_failure(make: Factory) -> None:
    """At width k a failure gives its slot to the next: only strict order halts."""
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("publish", 2, 5)))
    make.advance_to("publish", count=3)

    make.say(make.claim("publish")[0], Verb.FAIL)

    assert states(make) == [S.FAILED, S.PENDING, S.PENDING]


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.REPAIR])
def test_a_head_in_trouble_halts_its_lane(verb: Verb, make: Factory, sql: Sql) -> None:
    """Failed or in repair, the head keeps its lane waiting, visibly; other lanes never notice."""
    head, *_ = make.advance_to("publish", count=2)
    make.advance_to("publish", lane="other")

    through(make, "publish", head, verb)

    assert states(make)[1] is S.WAITING
    assert states(make, "other") == [S.PENDING]
    assert [(t.job.id, t.waiting) for t in make.services.reading.troubles(make.site_id)] == [(head, 1)]
    assert sql("SELECT passed FROM gates ORDER BY id") == [(0,), (0,)]


def test_a_cancelled_head_halts_and_comes_back_to_its_place(make: Factory) -> None:
    """To cancel is not to remove: the lane waits, until the job is requeued to its place and slot."""
    head, second = make.advance_to("publish", count=2)

    make.services.operate.cancel([head], actor=ACTOR)
    assert states(make) == [S.CANCELLED, S.WAITING]

    make.services.operate.requeue([head], actor=ACTOR)
    assert states(make) == [S.PENDING, S.WAITING]
    assert make.job(head).slot == 1
    make.say(make.claim("publish")[0])
    assert make.state(second) is S.PENDING


def test_a_cancelled_topic_in_the_middle_is_not_crossed(make: Factory, sql: Sql) -> None:
    """What was cancelled behind the head halts the lane when its turn comes; passed stays below it."""
    _, second, third = make.advance_to("publish", count=3)
    make.services.operate.cancel([second], actor=ACTOR)

    make.say(make.claim("publish")[0])

    assert states(make) == [S.DONE, S.CANCELLED, S.WAITING]
    assert passed(sql) == 1
    make.services.operate.skip([second], actor=ACTOR)
    assert make.state(third) is S.PENDING


def test_a_skipped_head_frees_the_lane(make: Factory, sql: Sql) -> None:
    """A job that is given up gives its turn to the next."""
    head, second = make.advance_to("publish", count=2)

    make.services.operate.skip([head], actor=ACTOR)

    assert states(make) == [S.SKIPPED, S.PENDING]
    assert passed(sql) == 1
    assert make.job(second).slot == 1


def test_passed_never_stands_in_a_hole(make: Factory, sql: Sql) -> None:
    """A skip in the middle moves nothing yet; then passed takes both, and ends at the last position there is."""
    first, second, third = make.advance_to("publish", count=3)
    make.services.operate.skip([second], actor=ACTOR)
    assert passed(sql) == 0

    through(make, "publish", first)
    assert passed(sql) == 2
    assert make.state(third) is S.PENDING

    through(make, "publish", third)
    assert passed(sql) == 3


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.REPAIR])
def test_trouble_before_the_gate_halts_at_the_gate(verb: Verb, make: Factory) -> None:
    """A position that failed at an earlier stage is the head still: nobody overtakes it."""
    make.site(stages=STRICT)
    first, second = make.plan(count=2)
    through(make, "generate", first, verb)
    through(make, "generate", second)
    assert states(make)[1] is S.WAITING

    make.services.operate.requeue([first], actor=ACTOR)
    through(make, "generate", first)

    assert states(make) == [S.PENDING, S.WAITING]


def test_a_skip_before_the_gate_frees_the_gate(make: Factory) -> None:
    """To give up a job at an earlier stage promotes whoever waits behind it at a later gate."""
    make.site(stages=STRICT)
    first, second = make.plan(count=2)
    through(make, "generate", second)

    make.services.operate.skip([first], actor=ACTOR)

    assert states(make) == [S.SKIPPED, S.PENDING]


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_lane_that_skips_goes_on_over_what_failed(stage: str, make: Factory, sql: Sql) -> None:
    """Where the lane says so, a failure at any stage is skipped, with its error kept, and the next is promoted."""
    make.site(stages=STRICT)
    first, second = make.plan(count=2)
    sql("UPDATE lanes SET on_failed = 'skip'")
    through(make, "generate", second)
    if stage == "publish":
        through(make, "generate", first)

    make.say(make.claim(stage)[0], Verb.FAIL, error_class="Broken", error="no")

    assert states(make) == [S.SKIPPED, S.PENDING]
    assert make.job(first).error_class == "Broken"


def test_a_lane_that_skips_still_waits_for_repair(make: Factory, sql: Sql) -> None:
    """Only failed is gone over."""
    make.advance_to("publish", count=2)
    sql("UPDATE lanes SET on_failed = 'skip'")

    make.say(make.claim("publish")[0], Verb.REPAIR)

    assert states(make) == [S.REPAIR, S.WAITING]


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE, Verb.RELEASE])
def test_who_comes_again_keeps_slot_and_place(verb: Verb, make: Factory) -> None:
    """A retry, a snooze and a release keep the turn: the lane waits."""
    head, _ = make.advance_to("publish", count=2)

    make.say(make.claim("publish")[0], verb)

    assert states(make) == [S.PENDING, S.WAITING]
    assert make.job(head).slot == 1


def test_a_reaped_head_keeps_slot_and_place(make: Factory) -> None:
    """A worker that dies costs its lane time, never its order."""
    head, _ = make.advance_to("publish", count=2)
    make.claim("publish")
    make.expire(head)

    make.services.work.reap(make.services.work.expired())

    assert states(make) == [S.PENDING, S.WAITING]
    assert make.job(head).slot == 1


def test_a_held_head_gives_the_slot_back_and_the_lane_waits(make: Factory) -> None:
    """Who waits for approval holds no slot, but nobody overtakes it, and upkeep does not promote it."""
    head, _ = make.advance_to("publish", count=2)

    make.say(make.claim("publish")[0], Verb.HOLD, hold="approve me")

    assert states(make) == [S.WAITING, S.WAITING]
    assert (make.job(head).slot, make.job(head).hold) == (None, "approve me")
    assert make.services.work.heal(make.site_id) == 0


def test_a_rejected_job_crosses_a_gate_that_it_passed(make: Factory) -> None:
    """Sent back before a gate where it was released, it takes no second turn, and waits for nobody there."""
    make.site(stages=(StageSpec("outline", 1, 5), StageSpec("write", None, 5)))
    first, second, _ = make.plan(count=3)
    make.say(make.claim("outline")[0])
    assert states(make) == [S.PENDING, S.PENDING, S.WAITING]

    make.say(make.claim("write")[0], Verb.REJECT, findings=[finding()])

    back = make.job(first)
    assert (back.state, back.stage, back.gate_id, back.slot) == ("pending", "outline", None, None)
    assert {c.job_id for c in make.claim("outline", 9)} == {first, second}


def test_a_job_rejected_before_its_gate_still_owes_its_turn(make: Factory) -> None:
    """A rejection does not lose the place: later positions wait for the job to come back."""
    make.site(stages=STRICT)
    first, second = make.plan(count=2)
    through(make, "generate", first)
    through(make, "generate", second)

    make.say(make.claim("publish")[0], Verb.REJECT, findings=[finding()])
    assert states(make) == [S.PENDING, S.WAITING]
    assert make.claim("publish", 9) == []

    through(make, "generate", first)
    assert [c.job_id for c in make.claim("publish", 9)] == [first]


def test_a_pass_over_a_released_topic_takes_no_turn(make: Factory) -> None:
    """What is live is released again beside the lane: it waits for no head, and halts none."""
    first, _ = make.advance_to("publish", count=2)
    through(make, "publish", first)
    changed = replace(make.row("lane", 1), input_hash="changed")
    make.services.planning.plan(make.site_id, [changed, make.row("lane", 2)])

    again = make.job_ids()[0]
    for stage in ("generate", "validate"):
        through(make, stage, again)

    assert (make.job(again).state, make.job(again).gate_id) == ("pending", None)
    through(make, "publish", again, Verb.FAIL)
    assert states(make) == [S.FAILED, S.PENDING]


def test_a_paused_lane_promotes_nobody(make: Factory, sql: Sql) -> None:
    """Who arrives at the gate of a lane that stands still waits; upkeep promotes once it goes on, and says so."""
    make.site(stages=STRICT)
    make.plan()
    claim = make.claim("generate")[0]
    sql("UPDATE lanes SET state = 'paused'")

    make.say(claim)
    assert states(make) == [S.WAITING]
    assert make.services.work.heal(make.site_id) == 0

    sql("UPDATE lanes SET state = 'active'")
    assert make.services.work.heal(make.site_id) == 1
    assert states(make) == [S.PENDING]


def test_a_busy_gate_delays_only_its_own_lane(make: Factory, engine: Engine, sql: Sql) -> None:
    """A batch writes what it can; what stands behind a locked gate is told to come again, and is unchanged."""
    make.site(stages=STRICT)
    one, other = make.advance_to("publish", lane="one")[0], make.advance_to("publish", lane="other")[0]
    claims = {c.job_id: c for c in make.claim("publish", 9)}
    before = make.job(one)
    with engine.connect() as rival, rival.begin():
        rival.execute(text(f"SELECT 1 FROM {SCHEMA}.gates WHERE id = {before.gate_id} FOR NO KEY UPDATE"))

        settled = make.services.work.acknowledge([Ack(c, Verb.ADVANCE) for c in claims.values()])

        assert settled.fates == {claims[one].fence: Fate.BUSY, claims[other].fence: Fate.WRITTEN}
        assert make.job(one) == before

    assert make.say(claims[one]).fates == {claims[one].fence: Fate.WRITTEN}


def test_one_flush_moves_many_lanes(make: Factory) -> None:
    """One batch ends jobs of several lanes and verbs, and promotes in each."""
    make.site(stages=STRICT)
    for lane in ("a", "b", "c"):
        make.advance_to("publish", lane=lane, count=2)
    verbs = {"a": Verb.ADVANCE, "b": Verb.FAIL, "c": Verb.RETRY}
    acks = [Ack(c, verbs[c.topic.lane]) for c in make.claim("publish", 9) if c.topic]

    settled = make.services.work.acknowledge(acks)

    assert set(settled.fates.values()) == {Fate.WRITTEN}
    assert [states(make, lane) for lane in ("a", "b", "c")] == [
        [S.DONE, S.PENDING],
        [S.FAILED, S.WAITING],
        [S.PENDING, S.WAITING],
    ]
    assert settled.ready == {(make.site_id, "publish", 2)}


def test_the_first_stage_may_be_strict(make: Factory) -> None:
    """A plan at a limited first stage promotes the head in the same breath."""
    make.site(stages=(StageSpec("publish", 1, 5),))

    ids = make.plan(count=3)

    assert states(make) == [S.PENDING, S.WAITING, S.WAITING]
    assert [c.job_id for c in make.claim("publish", 9)] == ids[:1]


def test_upkeep_mends_what_an_append_left(make: Factory, sql: Sql) -> None:
    """A head that nobody promoted is promoted by upkeep, and counted; a second look finds nothing."""
    make.site(stages=(StageSpec("publish", 1, 5),))
    make.plan(count=2)
    sql("UPDATE jobs SET state = 'waiting', slot = NULL")

    assert make.services.work.heal(make.site_id) == 1
    assert make.services.work.heal(make.site_id) == 0
    assert states(make) == [S.PENDING, S.WAITING]


REVIEW = (StageSpec("generate", None, 5), StageSpec("review", 1, 5), StageSpec("publish", 1, 5))


def test_a_strict_stage_that_is_added_is_met_by_whom_it_concerns(make: Factory) -> None:
    """A limited stage has its gates from the moment it is known: nobody crosses it without a turn."""
    make.site(stages=STRICT)
    first, second = make.plan(count=2)
    make.site(stages=REVIEW)

    through(make, "generate", second)
    assert (make.job(second).stage, make.job(second).state) == ("review", "waiting")
    through(make, "generate", first)

    assert [c.job_id for c in make.claim("review", 9)] == [first]


def test_a_strict_stage_that_is_added_takes_what_is_over_as_passed(make: Factory, sql: Sql) -> None:
    """A gate made for a lane that is through already begins behind what was released."""
    make.site(stages=STRICT)
    for job_id in make.advance_to("publish", count=2):
        through(make, "publish", job_id)

    make.site(stages=REVIEW)
    make.plan(count=3)

    assert passed(sql, "review") == 2


def test_a_strict_stage_that_is_added_waits_for_those_beyond_it(make: Factory) -> None:
    """Who stands beyond the new gate owes it no visit; when it is released, the next is promoted at once."""
    make.site(stages=STRICT)
    first, second = make.plan(count=2)
    through(make, "generate", first)
    make.site(stages=REVIEW)
    through(make, "generate", second)
    assert (make.job(second).stage, make.job(second).state) == ("review", "waiting")

    through(make, "publish", first)

    assert make.state(second) is S.PENDING


def test_a_gate_whose_stage_was_removed_keeps_up(make: Factory, sql: Sql) -> None:
    """A gate outlives its stage, and lets everybody by: should the stage come back, nobody waits for the past."""
    make.site(stages=REVIEW)
    first, second = make.plan(count=2)
    make.services.planning.retire(make.site_id, "review", actor=ACTOR)
    for job_id in (first, second):
        through(make, "generate", job_id)
        through(make, "publish", job_id)
    make.services.planning.restore(make.site_id, "review", actor=ACTOR)

    assert passed(sql, "review") == 2
