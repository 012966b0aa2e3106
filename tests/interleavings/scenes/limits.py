"""A stage without limit that gets one in a lane which rests; and several who change one gate."""

from pipeline.service.order import StageSpec
from pipeline.sql import lanes, widths
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import fate, gates_missing, states
from tests.interleavings.orders import COMMIT, Ended, Staged, long, of_callers, scenario
from tests.interleavings.parts import (
    heals,
    operates,
    plans,
    plans_file,
    retires,
    says,
    stage_width,
    topic,
    turns,
    width,
)
from tests.interleavings.scenes.common import OPEN, RESENDS, WIDE, planned


def resting(make: Factory, count: int = 3) -> list[int]:
    """A lane that is paused, at a stage without limit."""
    make.site(stages=OPEN)
    ids = make.advance_to("publish", count=count)
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
    return ids


@scenario
def a_new_limit_and_requeue(make: Factory, level: str) -> Staged:
    """One that comes back while its stage gets a limit takes its turn there, as all others."""
    first, *_ = resting(make)
    make.services.operate.cancel([first], actor=ACTOR)

    def judge(end: Ended) -> str:
        assert end["width"].after == {"width": 1}
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([width(make, 1), operates("requeue", first)], judge)


@scenario
def a_new_limit_and_resume(make: Factory, level: str) -> Staged:
    """A lane that goes on before is at work, and refuses it; one that goes on after does so in order."""
    resting(make)

    def judge(end: Ended) -> str:
        if end.refused("width", "is at work"):
            assert states(make) == ["pending"] * 3
            return "refused"
        assert states(make) == ["pending", "waiting", "waiting"]
        return "limited"

    return Staged([width(make, 1), turns(make, "resume")], judge)


@scenario
def a_new_limit_and_skip(make: Factory, level: str) -> Staged:
    """One that is given up while its stage gets a limit owes it nothing."""
    first, *_ = resting(make)

    def judge(end: Ended) -> str:
        assert end["width"].after == {"width": 1}
        assert end["skip"][0].to_state == "skipped"
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["skipped", "pending", "waiting"]
        return "done"

    return Staged([width(make, 1), operates("skip", first)], judge, outcomes=1)


@long
@scenario
def a_new_limit_and_cancel(make: Factory, level: str) -> Staged:
    """One that is cancelled meanwhile halts the lane, which is strict now."""
    first, *_ = resting(make)

    def judge(end: Ended) -> str:
        assert end["width"].after == {"width": 1}
        assert end["cancel"][0].to_state == "cancelled"
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["cancelled", "waiting", "waiting"]
        return "done"

    return Staged([width(make, 1), operates("cancel", first)], judge, outcomes=1)


@scenario
def a_new_limit_and_a_last_advance(make: Factory, level: str) -> Staged:
    """It is refused while one runs, and done once that has ended; the one that is done is passed."""
    make.site(stages=OPEN)
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        refused = end.refused("width", "still running")
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == (["done", "pending", "pending"] if refused else ["done", "pending", "waiting"])
        return "refused" if refused else "limited"

    return Staged([width(make, 1), says(claim)], judge, waits=False)


@scenario
def a_new_limit_and_an_arrival(make: Factory, level: str) -> Staged:
    """The same for one that is on its way there."""
    make.site(stages=OPEN)
    make.plan(count=2)
    (claim,) = make.claim("generate")
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        refused = end.refused("width", "still running")
        make.services.lanes.settle(make.site_id)
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "pending"]
        assert (make.job(claim.job_id).gate_id is None) is refused
        return "refused" if refused else "limited"

    return Staged([width(make, 1), says(claim)], judge, waits=False)


@long
@of_callers
def a_new_limit_and_a_plan(make: Factory, level: str) -> Staged:
    """Topics that are appended meanwhile arrive at the limit, or are judged by it."""
    make.site(stages=OPEN)
    make.plan(count=2)
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        assert end["width"].after == {"width": 1}
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting", "waiting"]
        return "done"

    return Staged([width(make, 1, stage="generate"), plans(topic(7))], judge, outcomes=1, allows=RESENDS[level])


@long
@scenario
def a_new_limit_and_a_retired_stage(make: Factory, level: str) -> Staged:
    """What moves on from a stage that is taken out comes to a limit that is made just then: it takes its turn there."""
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("translate", None, 5), StageSpec("publish", None, 5)))
    make.advance_to("translate", count=2)
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        assert end["width"].after == {"width": 1}
        make.services.planning.move_on(make.site_id)
        make.services.lanes.settle(make.site_id)
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting"]
        return "done"

    return Staged([width(make, 1), retires(make, "translate")], judge, outcomes=1)


@of_callers
def a_stage_width_and_a_new_lane(make: Factory, level: str) -> Staged:
    """A lane that a caller makes while its stage is narrowed has the width of its stage."""
    make.site(stages=WIDE)
    make.plan()

    def judge(end: Ended) -> str:
        assert end["plan"][0].new
        assert gates_missing(make) == []
        return "done"

    stops = (widths.set_stage(), COMMIT)
    return Staged([stage_width(make, 1).standing(*stops), plans(topic(7, "new"))], judge, outcomes=1,
                  allows=RESENDS[level])  # fmt: skip


@scenario
def a_stage_width_and_a_new_lane_of_a_file(make: Factory, level: str) -> Staged:
    """The same where a run's plan makes it."""
    make.site(stages=WIDE)
    make.plan()

    def judge(end: Ended) -> str:
        assert end["plan"].new == 1
        assert gates_missing(make) == []
        return "done"

    rows = [make.row("lane", 1), make.row("new", 7)]
    return Staged([stage_width(make, 1), plans_file(make, rows)], judge, outcomes=1)


@long
@scenario
def narrow_and_two_advances(make: Factory, level: str) -> Staged:
    """Two workers end what runs while an operator narrows: refused as long as both run, and in order after that."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)
    one, other = make.claim("publish", 2)

    def judge(end: Ended) -> str:
        assert fate(end["one"], one) == fate(end["other"], other) == "written"
        refused = end.refused("width", "run at stage")
        assert states(make) == ["done", "done", "pending", "pending" if refused else "waiting"]
        return "refused" if refused else "narrow"

    narrow = width(make, 1).standing(lanes.lock_gates(), COMMIT)
    parts = [says(one, name="one", stops=(COMMIT,)), says(other, name="other", stops=(COMMIT,)), narrow]
    return Staged(parts, judge)


@long
@scenario
def narrow_heal_and_a_plan(make: Factory, level: str) -> Staged:
    """Upkeep gives turns while a gate is narrowed, after a caller's plan at a limited first stage: one turn."""
    make.site(stages=(StageSpec("generate", 3, 5), StageSpec("publish", 1, 5)))
    make.plan()
    planned(make, topic(7), topic(8))

    def judge(end: Ended) -> str:
        assert states(make) == ["pending", "waiting", "waiting"]
        return str(end["heal"])

    return Staged([width(make, 1, stage="generate"), heals(make)], judge)
