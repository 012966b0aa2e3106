"""A gate's width, changed while work goes on: no turn is lost, none is given twice, and order is kept."""

from datetime import timedelta

from pipeline.service.acknowledging import Verb
from pipeline.sql import widths
from tests.concurrency.stage import CLOCK
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import fate, gates_missing, ids, states
from tests.interleavings.orders import COMMIT, Ended, Staged, long, scenario
from tests.interleavings.parts import (
    claims,
    operates,
    reaps,
    says,
    stage_width,
    width,
)
from tests.interleavings.scenes.common import WIDE


@long
@scenario
def advance_and_narrow(make: Factory, level: str) -> Staged:
    """From three to one while the first ends: the lowest that is left is the head, alone."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert end["width"].after == {"width": 1}
        assert states(make) == ["done", "pending", "waiting", "waiting"]
        return "done"

    return Staged([says(claim), width(make, 1)], judge, outcomes=1)


@scenario
def advance_of_one_of_two_and_narrow(make: Factory, level: str) -> Staged:
    """While two run it is refused, with their names; when one has ended before, it is done."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)
    one, other = make.claim("publish", 2)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], other) == "written"
        if end.refused("width", f"jobs {one.job_id}, {other.job_id} run"):
            assert states(make) == ["reserved", "done", "pending", "pending"]
            return "refused"
        assert states(make) == ["reserved", "done", "waiting", "waiting"]
        return "done"

    return Staged([says(other), width(make, 1)], judge)


@long
@scenario
def claim_and_narrow(make: Factory, level: str) -> Staged:
    """A claim that is open is waited for, then counted: it has one and runs on, or more, and it is refused."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)

    def judge(end: Ended) -> str:
        got = len(end["claim"])
        if end.refused("width", "run at stage"):
            assert got == 2
            assert states(make) == ["reserved", "reserved", "pending", "waiting"]
            return "refused"
        assert states(make) == [["pending", "waiting", "waiting", "waiting"], ["reserved", *["waiting"] * 3]][got]
        return f"narrow, {got}"

    return Staged([claims(make, count=2, door=True), width(make, 1)], judge, outcomes=3)


@long
@scenario
def claim_of_one_that_is_not_the_head_and_narrow(make: Factory, level: str) -> Staged:
    """With the head tried again later, the second may run when the lane turns strict; then nobody else begins."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")
    make.say(claim, Verb.RETRY, delay=timedelta(hours=1))

    def judge(end: Ended) -> str:
        got = ids(end["claim"])
        assert states(make) == (["waiting", "reserved", "waiting"] if got else ["pending", "waiting", "waiting"])
        return str(len(got))

    return Staged([claims(make, door=True), width(make, 1)], judge)


@long
@scenario
def advance_claim_and_narrow(make: Factory, level: str) -> Staged:
    """Worker A ends the first, worker B claims, an operator narrows to one: never two at once that were not running."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        got = ids(end["claim"])
        refused = end.refused("width", "run at stage")
        found = states(make)
        assert found[0] == "done"
        if refused:
            assert found == ["done", "reserved", "pending", "pending"]
        else:
            assert found == ["done", "reserved" if got else "pending", "waiting", "waiting"]
        return f"{'refused' if refused else 'narrow'}, {len(got)}"

    narrow = width(make, 1)
    parts = [says(claim, stops=(COMMIT,)), claims(make), narrow.standing(widths.set_width(CLOCK), COMMIT)]
    return Staged(parts, judge, outcomes=3)


@long
@scenario
def advance_and_narrow_to_two(make: Factory, level: str) -> Staged:
    """Three run and two may: nobody gets a turn until one place is free."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=5)
    one, *_ = make.claim("publish", 3)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], one) == "written"
        found = states(make)
        assert found == ["done", "reserved", "reserved", "waiting", "waiting"]
        return "done"

    return Staged([says(one), width(make, 2)], judge, outcomes=1)


@long
@scenario
def retry_and_narrow(make: Factory, level: str) -> Staged:
    """One that is tried again keeps its place in line, not its turn."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)
    _, other = make.claim("publish", 2)

    def judge(end: Ended) -> str:
        assert fate(end["retry"], other) == "written"
        if end.refused("width", "run at stage"):
            assert states(make) == ["reserved", "pending", "pending"]
            return "refused"
        assert states(make) == ["reserved", "waiting", "waiting"]
        return "narrow"

    return Staged([says(other, verb=Verb.RETRY, delay=timedelta(0)), width(make, 1)], judge)


@long
@scenario
def hold_and_narrow(make: Factory, level: str) -> Staged:
    """A held head keeps its place: the strict lane waits for it."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["hold"], claim) == "written"
        assert end["width"].after == {"width": 1}
        assert states(make) == ["waiting", "waiting", "waiting"]
        return "done"

    return Staged([says(claim, verb=Verb.HOLD, hold="look"), width(make, 1)], judge, outcomes=1)


@long
@scenario
def fail_in_a_skipping_lane_and_narrow(make: Factory, level: str) -> Staged:
    """What fails is skipped, before or after the lane has turned strict: the next one is the head."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)
    make.services.widths.on_failed(make.site_id, "lane", "skip", actor=ACTOR)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["fail"], claim) == "written"
        assert states(make) == ["skipped", "pending", "waiting"]
        return "done"

    return Staged([says(claim, verb=Verb.FAIL), width(make, 1)], judge, outcomes=1)


@scenario
def skip_and_narrow(make: Factory, level: str) -> Staged:
    """The head is given up just when the lane turns strict."""
    make.site(stages=WIDE)
    first, *_ = make.advance_to("publish", count=4)

    def judge(end: Ended) -> str:
        assert states(make) == ["skipped", "pending", "waiting", "waiting"]
        return str(end["skip"][0].from_state)

    return Staged([operates("skip", first), width(make, 1)], judge, outcomes=1)


@long
@scenario
def reap_and_narrow(make: Factory, level: str) -> Staged:
    """One that is taken back is the head again, and alone."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")
    make.expire(claim.job_id)

    def judge(end: Ended) -> str:
        assert end["reap"].fates
        assert end["width"].after == {"width": 1}
        assert states(make) == ["pending", "waiting", "waiting"]
        return "done"

    return Staged([reaps(make), width(make, 1)], judge, outcomes=1)


@long
@scenario
def advance_and_widen(make: Factory, level: str) -> Staged:
    """From one to three while the head ends: the next three have a turn."""
    make.advance_to("publish", count=5)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending", "pending", "pending", "waiting"]
        return "done"

    return Staged([says(claim), width(make, 3)], judge, outcomes=1)


@long
@scenario
def arrival_and_widen(make: Factory, level: str) -> Staged:
    """One that arrives while the gate is widened has a place at once, and the gate is full."""
    make.advance_to("publish", count=2)
    make.services.planning.plan(make.site_id, [make.row("lane", n) for n in (1, 2, 3)])
    make.say(make.claim("generate")[0])
    (claim,) = make.claim("validate")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["pending", "pending", "waiting"]
        return "done"

    return Staged([says(claim), width(make, 2)], judge, outcomes=1)


@long
@scenario
def claim_and_widen(make: Factory, level: str) -> Staged:
    """A claim beside a widening has the head, or as many as have a turn by then, and the gate is never overrun."""
    make.advance_to("publish", count=4)

    def judge(end: Ended) -> str:
        got = len(end["claim"])
        assert got <= 2
        assert sorted(states(make)) == sorted(["reserved"] * got + ["pending"] * (2 - got) + ["waiting"] * 2)
        return str(got)

    return Staged([claims(make, count=3, door=True), width(make, 2)], judge)


@long
@scenario
def advance_and_no_limit(make: Factory, level: str) -> Staged:
    """From one to none while the head ends: all have their turn."""
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending", "pending"]
        return "done"

    return Staged([says(claim), width(make, None)], judge, outcomes=1)


@long
@scenario
def arrival_and_no_limit(make: Factory, level: str) -> Staged:
    """One that arrives while the limit goes waits for a turn that is given, or for none."""
    make.advance_to("validate", count=2)
    one, other = make.claim("validate", 2)
    make.say(other)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], one) == "written"
        assert states(make) == ["pending", "pending"]
        assert all(make.job(i).gate_id is None for i in make.job_ids())
        return "done"

    return Staged([says(one), width(make, None)], judge, outcomes=1)


@long
@scenario
def claim_and_no_limit(make: Factory, level: str) -> Staged:
    """A claim beside it has the head, or all; what it has holds no slot."""
    make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        got = len(end["claim"])
        assert states(make).count("reserved") == got
        assert states(make).count("pending") == 3 - got
        assert all(make.job(i).gate_id is None for i in make.job_ids())
        return str(got)

    return Staged([claims(make, count=3, door=True), width(make, None)], judge)


@long
@scenario
def retry_and_no_limit(make: Factory, level: str) -> Staged:
    """A holder whose slot was taken from under him by the widening still ends his job."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["retry"], claim) == "written"
        assert states(make) == ["pending", "pending"]
        assert make.job(claim.job_id).gate_id is None
        return "done"

    return Staged([says(claim, verb=Verb.RETRY, delay=timedelta(0)), width(make, None)], judge, outcomes=1)


@scenario
def two_widths_of_one_gate(make: Factory, level: str) -> Staged:
    """Two operators set the same gate: the last to commit counts, and both changes are whole."""
    make.advance_to("publish", count=4)

    def judge(end: Ended) -> str:
        pending = states(make).count("pending")
        last = {2: "two", 3: "three"}[pending]
        other = "three" if last == "two" else "two"
        assert end[last].before == end[other].after
        assert end[other].before == {}
        return last

    return Staged([width(make, 2, name="two"), width(make, 3, name="three")], judge)


@long
@scenario
def width_of_the_lane_and_of_the_stage(make: Factory, level: str) -> Staged:
    """A lane's own width counts over its stage's, whichever is set last."""
    make.advance_to("publish", count=4)

    def judge(end: Ended) -> str:
        assert states(make) == ["pending", "pending", "waiting", "waiting"]
        assert gates_missing(make) == []
        return "done"

    return Staged([width(make, 2, name="lane"), stage_width(make, 3, name="stage")], judge, outcomes=1)
