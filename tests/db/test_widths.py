"""Widths, leases and policies of lanes and stages, changed while work is under way: in effect at the next claim."""

from datetime import timedelta
from typing import Any

import pytest

from pipeline.errors import NotFound, Refused
from pipeline.service.acknowledging import Verb
from pipeline.service.order import StageSpec
from pipeline.service.widths import Changed
from pipeline.states import JobState
from pipeline.views import Claim
from tests.db.conftest import Sql
from tests.factories import ACTOR, STAGES, Factory

S = JobState
WIDE = (StageSpec("generate", None, 5), StageSpec("publish", 3, 5))


def width(make: Factory, value: int | None, *, lane: str = "lane", stage: str = "publish", **more: Any) -> Changed:
    return make.services.widths.of_lane(make.site_id, lane, stage, {"width": value}, actor=ACTOR, **more)


def states(make: Factory, lane: str = "lane") -> list[str]:
    return [str(make.state(job_id)) for job_id in make.job_ids(lane)]


def test_a_wider_lane_gives_more_turns_at_once(make: Factory) -> None:
    """From one to three: the two behind the head are claimable as well."""
    make.advance_to("publish", count=4)

    changed = width(make, 3)

    assert changed.jobs == 4
    assert states(make) == ["pending", "pending", "pending", "waiting"]
    assert len(make.claim("publish", 9)) == 3


def test_a_lane_that_narrows_to_one_goes_on_in_order(make: Factory) -> None:
    """What is pending gives its slot back; then the lowest that is not released is the head."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)
    make.say(make.claim("publish")[0])

    width(make, 1)

    assert states(make) == ["done", "pending", "waiting", "waiting"]
    (gate_passed,) = [line.head.position for line in make.services.lanes.list(make.site_id) if line.head]
    assert gate_passed == 2


def test_a_narrowing_to_one_is_refused_while_two_run_there(make: Factory) -> None:
    """The refusal names them, and nothing is changed."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)
    one, other = make.claim("publish", 2)
    before = [make.job(job_id) for job_id in make.job_ids()]

    with pytest.raises(Refused, match=f"jobs {one.job_id}, {other.job_id} run at stage 'publish' at once"):
        width(make, 1)

    assert [make.job(job_id) for job_id in make.job_ids()] == before


def test_a_narrowing_waits_for_the_one_that_runs(make: Factory) -> None:
    """One may be running that is not the head: the head has its turn when that one has ended."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)
    claims = make.claim("publish", 2)
    make.say(claims[0], Verb.RETRY, delay=timedelta(0))
    width(make, 1)
    assert states(make) == ["waiting", "reserved", "waiting"]

    make.say(claims[1])

    assert states(make) == ["pending", "done", "waiting"]
    make.say(make.claim("publish")[0])
    assert states(make) == ["done", "done", "pending"]


def test_a_narrowing_to_two_keeps_what_runs(make: Factory) -> None:
    """Three run and two are allowed: nobody gets a turn until only one is left."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=5)
    claims = make.claim("publish", 3)

    width(make, 2)

    assert states(make) == ["reserved"] * 3 + ["waiting"] * 2
    make.say(claims[0])
    assert states(make) == ["done"] + ["reserved"] * 2 + ["waiting"] * 2
    make.say(claims[1])
    assert states(make) == ["done"] * 2 + ["reserved", "pending", "waiting"]


def test_a_lane_without_limit_lets_all_go(make: Factory) -> None:
    """From one to none: all are claimable at once, also who comes later, and what runs ends as ever."""
    make.advance_to("publish", count=3)
    (running,) = make.claim("publish")

    width(make, None)

    assert states(make) == ["reserved", "pending", "pending"]
    make.services.planning.plan(make.site_id, [make.row("lane", 4)])
    for stage in ("generate", "validate"):
        make.say(make.claim(stage)[0])
    assert states(make)[3] == "pending"
    make.say(running)
    assert states(make)[0] == "done"


def test_a_limit_is_set_only_while_the_lane_rests(make: Factory) -> None:
    """Somebody on the way to the stage would come there beside the gate that is made."""
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("publish", None, 5)))
    make.advance_to("publish", count=3)

    with pytest.raises(Refused, match="lane 'lane' has no limit at stage 'publish' and is at work"):
        width(make, 1)

    (claim,) = make.claim("publish")
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
    with pytest.raises(Refused, match="and 1 of its jobs is still running"):
        width(make, 1)
    make.say(claim)
    width(make, 1)
    assert states(make) == ["done", "waiting", "waiting"]
    make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
    assert states(make) == ["done", "pending", "waiting"]


def test_a_stage_becomes_strict_in_all_lanes_of_a_site_that_rests(make: Factory, sql: Sql) -> None:
    """The site's pause is enough; a lane with a width of its own keeps it."""
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("publish", None, 5)))
    make.advance_to("publish", lane="one", count=2)
    make.advance_to("publish", lane="two", count=2)
    make.services.lanes.pause(make.site_id, "two", actor=ACTOR)
    width(make, 2, lane="two")
    make.services.lanes.resume(make.site_id, "two", actor=ACTOR)
    make.services.sites.pause(make.site_id, actor=ACTOR)

    make.services.widths.of_stage(make.site_id, "publish", 1, actor=ACTOR)

    assert states(make, "one") == ["pending", "waiting"]
    assert states(make, "two") == ["pending", "pending"]


def test_a_stage_that_is_limited_no_longer_keeps_its_gates(make: Factory, sql: Sql) -> None:
    """Gates are never deleted: wide open, they can be narrowed again, and begin behind what is over."""
    make.advance_to("publish", count=3)
    make.services.widths.of_stage(make.site_id, "publish", None, actor=ACTOR)
    make.say(make.claim("publish")[0])
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    make.services.widths.of_stage(make.site_id, "publish", 1, actor=ACTOR)

    make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
    assert states(make) == ["done", "pending", "waiting"]
    assert sql("SELECT count(*), min(passed) FROM gates") == [(1, 1)]


def test_a_new_lane_of_a_stage_takes_the_width_that_was_set(make: Factory, sql: Sql) -> None:
    make.plan(lane="old")
    make.services.widths.of_stage(make.site_id, "publish", 4, actor=ACTOR)

    make.plan(lane="new")

    assert sql("SELECT width FROM gates") == [(4,), (4,)]


def test_a_lane_without_its_own_width_has_that_of_its_stage_again(make: Factory) -> None:
    make.advance_to("publish", count=3)
    width(make, 3)

    make.services.widths.of_lane(make.site_id, "lane", "publish", {}, default=["width"], actor=ACTOR)

    assert states(make) == ["pending", "waiting", "waiting"]


def test_a_dry_run_says_what_would_be_and_changes_nothing(make: Factory, sql: Sql) -> None:
    make.advance_to("publish", count=3)
    before = sql("SELECT * FROM jobs ORDER BY id") + sql("SELECT * FROM gates") + sql("SELECT * FROM lanes")

    changed = width(make, 3, dry_run=True)

    assert changed == Changed("lane", {}, {"width": 3}, 3)
    after = sql("SELECT * FROM jobs ORDER BY id") + sql("SELECT * FROM gates") + sql("SELECT * FROM lanes")
    assert (after, sql("SELECT count(*) FROM events")) == (before, [(0,)])


def test_a_lane_may_have_a_longer_lease_and_deadline(make: Factory) -> None:
    """From the next claim on; other lanes have what their stage says."""
    make.plan(lane="slow")
    make.plan(lane="fast")
    longer = {"lease_seconds": 120.0, "deadline_seconds": 600.0}

    make.services.widths.of_lane(make.site_id, "slow", "generate", longer, actor=ACTOR)

    claims = {c.topic.lane: c for c in make.claim("generate", 2, lease=timedelta(seconds=30)) if c.topic}
    assert (claims["slow"].lease, claims["slow"].deadline) == (timedelta(seconds=120), timedelta(seconds=600))
    assert (claims["fast"].lease, claims["fast"].deadline) == (timedelta(seconds=30), None)
    held = make.job(claims["slow"].job_id)
    assert held.lease_expires_at - held.reserved_at >= timedelta(seconds=119)


def test_a_lane_may_give_more_attempts(make: Factory) -> None:
    """What arrives at the stage is given them, whether it is planned there, advances or is sent back."""
    make.site()
    make.plan()
    for stage in ("generate", "validate"):
        make.services.widths.of_lane(make.site_id, "lane", stage, {"max_attempts": 9}, actor=ACTOR)

    make.services.planning.plan(make.site_id, [make.row("lane", 2)])

    first, second = make.job_ids()
    assert (make.job(first).max_attempts, make.job(second).max_attempts) == (5, 9)
    make.say(make.claim("generate")[0])
    assert make.job(first).max_attempts == 9
    (claim,) = make.claim("validate")
    make.say(claim, Verb.REJECT)
    assert make.job(first).max_attempts == 9


def test_a_lane_that_skips_goes_on_over_what_fails_from_now_on(make: Factory) -> None:
    """What failed before stays for a person; what fails next is skipped, with its error kept."""
    make.advance_to("publish", count=3)
    make.services.widths.on_failed(make.site_id, "lane", "skip", actor=ACTOR)

    make.say(make.claim("publish")[0], Verb.FAIL, error_class="Odd", error="no such city")

    assert states(make) == ["skipped", "pending", "waiting"]


@pytest.mark.parametrize(
    ("lane", "stage", "step"),
    [
        ("lame", "publish", "no lane 'lame' in this site"),
        ("lane", "publsh", "no stage 'publsh' in this site; there is:"),
    ],
)
def test_what_is_not_there_is_named(make: Factory, lane: str, stage: str, step: str) -> None:
    make.plan()

    with pytest.raises(NotFound, match=step):
        width(make, 2, lane=lane, stage=stage)


def test_a_closed_lane_takes_nothing_and_does_nothing(make: Factory) -> None:
    """New and changed rows are left out by name; open, it goes on where it stood."""
    make.advance_to("publish", count=2)

    make.services.lanes.close(make.site_id, "lane", actor=ACTOR)

    planned = make.services.planning.plan(make.site_id, [make.row("lane", n) for n in (1, 2, 3)])
    assert (planned.new, planned.unchanged, planned.closed) == (0, 2, ("lane-3",))
    assert states(make) == ["waiting", "waiting"]
    make.services.lanes.open(make.site_id, "lane", actor=ACTOR)
    assert states(make) == ["pending", "waiting"]
    assert make.services.planning.plan(make.site_id, [make.row("lane", n) for n in (1, 2, 3)]).new == 1


def test_a_paused_stage_gives_nothing_away(make: Factory) -> None:
    """What runs there finishes; other stages go on; resumed, all is in its place."""
    make.site(stages=STAGES)
    make.advance_to("publish", count=2)
    (running,) = make.claim("publish")

    make.services.planning.pause(make.site_id, "publish", actor=ACTOR, reason="looking")

    make.say(running)
    assert make.claim("publish") == []
    with pytest.raises(Refused, match="stage 'publish' is paused already"):
        make.services.planning.pause(make.site_id, "publish", actor=ACTOR)
    make.services.planning.resume(make.site_id, "publish", actor=ACTOR)
    assert len(make.claim("publish")) == 1


def say_again(make: Factory, claim: Claim, how: str) -> None:
    """Give the job up for another attempt, in one of the ways that there are."""
    if how == "reap":
        make.expire(claim.job_id)
        make.services.work.reap([e for e in make.services.work.expired() if e.over])
    else:
        make.say(claim, Verb(how))


@pytest.mark.parametrize("how", ["retry", "reap", "release", "snooze"])
def test_what_ran_when_its_gate_became_strict_waits_for_its_turn(make: Factory, how: str) -> None:
    """To be tried again it stands behind the one that owes the gate its turn, and has its own after that."""
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("check", 2, 5)))
    first, second = make.plan(count=2)
    claims = {c.job_id: c for c in make.claim("generate", 2)}
    make.say(claims[second])
    (claim,) = make.claim("check")
    width(make, 1, stage="check")

    say_again(make, claim, how)

    assert make.state(second) is S.WAITING
    make.say(claims[first])
    (head,) = make.claim("check")
    assert head.job_id == first
    make.say(head)
    assert make.state(second) is S.PENDING


@pytest.mark.parametrize("how", ["retry", "reap", "release", "snooze"])
def test_a_surplus_of_a_narrowed_gate_waits(make: Factory, how: str) -> None:
    """Three ran and two are let through: the one that is to be tried again waits until another has ended."""
    make.site(stages=(StageSpec("check", 3, 5), StageSpec("after", None, 5)))
    make.plan(count=3)
    claims = make.claim("check", 3)
    width(make, 2, stage="check")

    say_again(make, claims[0], how)

    assert make.state(claims[0].job_id) is S.WAITING
    make.say(claims[1])
    assert make.state(claims[0].job_id) is S.PENDING


def test_who_owes_a_gate_nothing_goes_by_it_when_it_became_strict(make: Factory) -> None:
    """A topic released before had a place while the gate was wide; to be tried again, it waits for no turn."""
    make.site(stages=(StageSpec("publish", 2, 5),))
    make.plan()
    make.say(make.claim("publish")[0])
    make.services.planning.plan(make.site_id, [make.row("lane", 1, title="Another", input_hash="another")])
    (claim,) = make.claim("publish")
    width(make, 1)

    make.say(claim, Verb.RETRY)

    assert make.job(claim.job_id).gate_id is None
    assert make.state(claim.job_id) is S.PENDING
