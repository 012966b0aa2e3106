"""Stages that are added and taken out while work goes on: nobody is left behind, and no order is broken."""

from pipeline.service.order import StageSpec
from tests.factories import STAGES, Factory
from tests.interleavings.facts import fate, gates_missing, ids, states, work_off
from tests.interleavings.orders import COMMIT, Ended, Staged, long, of_callers, scenario
from tests.interleavings.parts import (
    LOCK,
    changes_lane,
    claims,
    operates,
    plans,
    plans_file,
    registers,
    retires,
    says,
    topic,
    width,
)
from tests.interleavings.scenes.common import RESENDS, TRANSLATED


def _stages(make: Factory) -> list[str]:
    return [make.job(job_id).stage for job_id in make.job_ids()]


@long
@scenario
def a_new_stage_and_advance_to_it(make: Factory, level: str) -> Staged:
    """One on its way there goes to the new stage, or had gone by; the lane is worked off in order either way."""
    make.advance_to("validate", count=2)
    one, other = make.claim("validate", 2)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], one) == "written"
        came = _stages(make)[0]
        assert came in ("translate", "publish")
        work_off(make, other)
        assert states(make) == ["done", "done"]
        return came

    return Staged([says(one), registers(make, TRANSLATED)], judge)


@long
@scenario
def a_new_stage_and_advance_beyond_it(make: Factory, level: str) -> Staged:
    """One that had gone by ends while the gate is made: the new gate has passed it."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        work_off(make)
        assert states(make) == ["done", "done"]
        return "done"

    return Staged([says(claim), registers(make, TRANSLATED)], judge, outcomes=1)


@long
@scenario
def a_new_stage_and_skip(make: Factory, level: str) -> Staged:
    """One that is given up while the gate is made owes it nothing."""
    first, _ = make.advance_to("validate", count=2)

    def judge(end: Ended) -> str:
        assert end["skip"][0].to_state == "skipped"
        work_off(make)
        assert states(make) == ["skipped", "done"]
        return "done"

    return Staged([operates("skip", first), registers(make, TRANSLATED)], judge, outcomes=1)


@long
@of_callers
def a_new_stage_and_a_new_lane(make: Factory, level: str) -> Staged:
    """A lane that a caller makes meanwhile has the new gate, as all others."""
    make.plan()

    def judge(end: Ended) -> str:
        assert end["plan"][0].new
        assert gates_missing(make) == []
        return "done"

    parts = [registers(make, TRANSLATED), plans(topic(7, "new"))]
    return Staged(parts, judge, outcomes=1, allows=RESENDS[level])


@long
@scenario
def a_new_stage_and_a_new_lane_of_a_file(make: Factory, level: str) -> Staged:
    """The same where a run of the older release makes it."""
    make.plan()

    def judge(end: Ended) -> str:
        assert end["plan"].new == 1
        assert gates_missing(make) == []
        return "done"

    parts = [registers(make, TRANSLATED), plans_file(make, [make.row("lane", 1), make.row("new", 7)])]
    return Staged(parts, judge, outcomes=1)


@long
@scenario
def two_releases_register_at_once(make: Factory, level: str) -> Staged:
    """Two processes of the new release add the stage once."""
    make.plan()

    def judge(end: Ended) -> str:
        assert end["one"] == end["other"]
        assert [r.name for r in make.services.planning.order(make.site_id)] == [s.name for s in TRANSLATED]
        assert gates_missing(make) == []
        return "done"

    return Staged(
        [registers(make, TRANSLATED, name="one"), registers(make, TRANSLATED, name="other")], judge, outcomes=1
    )


@long
@scenario
def retire_and_advance_to_it(make: Factory, level: str) -> Staged:
    """One that comes to a stage which is taken out just then is moved on, by the retirement or by upkeep."""
    make.site(stages=TRANSLATED)
    make.advance_to("validate", count=2)
    one, other = make.claim("validate", 2)
    make.say(other)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], one) == "written"
        left = make.services.planning.move_on(make.site_id)
        assert _stages(make) == ["publish", "publish"]
        assert states(make) == ["pending", "waiting"]
        return str(left)

    return Staged([says(one), retires(make, "translate")], judge, outcomes=1)


@long
@scenario
def retire_and_advance_from_it(make: Factory, level: str) -> Staged:
    """One that leaves it just then goes to the next stage, as all that stood behind it."""
    make.site(stages=TRANSLATED)
    make.advance_to("translate", count=3)
    (claim,) = make.claim("translate")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        make.services.planning.move_on(make.site_id)
        assert _stages(make) == ["publish"] * 3
        assert states(make) == ["pending", "waiting", "waiting"]
        return str(end["retire"].moved)

    return Staged([says(claim), retires(make, "translate")], judge, outcomes=1)


@long
@scenario
def retire_and_claim(make: Factory, level: str) -> Staged:
    """One that is claimed just then is finished by its worker; the others move on."""
    make.site(stages=TRANSLATED)
    first, _ = make.advance_to("translate", count=2)

    def judge(end: Ended) -> str:
        got = ids(end["claim"])
        assert got in ([], [first])
        assert _stages(make) == ["translate" if got else "publish", "publish"]
        assert states(make) == ["reserved" if got else "pending", "waiting"]
        work_off(make, *end["claim"])
        assert states(make) == ["done", "done"]
        return str(len(got))

    return Staged([claims(make, "translate", count=2, door=True), retires(make, "translate")], judge)


@long
@scenario
def retire_and_requeue(make: Factory, level: str) -> Staged:
    """One that comes back to a stage which is taken out just then goes on to the next one."""
    make.site(stages=TRANSLATED)
    first, _ = make.advance_to("translate", count=2)
    make.services.operate.cancel([first], actor="test")

    def judge(end: Ended) -> str:
        assert end["requeue"]
        make.services.planning.move_on(make.site_id)
        assert _stages(make) == ["publish", "publish"]
        assert states(make) == ["pending", "waiting"]
        return str(end["requeue"][0].stage)

    return Staged([operates("requeue", first), retires(make, "translate")], judge)


@long
@scenario
def a_new_stage_arrival_and_advance_beyond_it(make: Factory, level: str) -> Staged:
    """Another arrives at the new gate while the one before it, which had gone by, ends: it does not wait for ever."""
    make.plan(count=2)
    one, other = make.claim("generate", 2)
    make.say(one)
    make.say(other)
    one, other = make.claim("validate", 2)
    make.say(one)
    (head,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["ends"], head) == fate(end["arrives"], other) == "written"
        work_off(make)
        assert states(make) == ["done", "done"]
        return "done"

    ends = says(head, name="ends", stops=(LOCK,))
    parts = [ends, says(other, name="arrives", stops=(COMMIT,)), registers(make, TRANSLATED).standing(COMMIT)]
    return Staged(parts, judge, outcomes=1)


@long
@scenario
def retire_and_change_of_lane(make: Factory, level: str) -> Staged:
    """One that leaves its lane while its stage is taken out moves on where it comes to."""
    make.site(stages=TRANSLATED)
    make.advance_to("translate", count=2)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        make.services.planning.move_on(make.site_id)
        assert [make.job(job_id).stage for job_id in make.job_ids("other")] == ["generate", "publish"]
        assert states(make) == ["pending"]
        assert states(make, "other") == ["pending", "waiting"]
        return "done"

    return Staged([retires(make, "translate"), changes_lane(make, "lane-1", "other")], judge, outcomes=1)


@long
@scenario
def retire_and_narrow(make: Factory, level: str) -> Staged:
    """The stage to which all move on is narrowed meanwhile: one turn, in order."""
    make.site(stages=(*STAGES[:2], StageSpec("translate", None, 3), StageSpec("publish", 3, 5)))
    make.advance_to("translate", count=3)

    def judge(end: Ended) -> str:
        make.services.planning.move_on(make.site_id)
        assert states(make) == ["pending", "waiting", "waiting"]
        return "done"

    return Staged([retires(make, "translate"), width(make, 1)], judge, outcomes=1)
