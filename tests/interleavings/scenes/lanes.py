"""Lanes paused, resumed and closed while work goes on."""

from pipeline.service.acknowledging import Verb
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import fate, ids, states
from tests.interleavings.orders import COMMIT, Ended, Staged, long, of_callers, scenario
from tests.interleavings.parts import (
    LOCK,
    claims,
    operates,
    plans,
    plans_file,
    reaps,
    says,
    settles,
    topic,
    turns,
)
from tests.interleavings.scenes.common import RESENDS, over


@long
@scenario
def claim_and_pause(make: Factory, level: str) -> Staged:
    """What was claimed before the pause finishes, and is counted as running; nothing begins after it."""
    make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        got = end["claim"]
        assert end["pause"].running == len(got)
        assert states(make) == ["reserved" if got else "waiting", "waiting"]
        return str(len(got))

    return Staged([claims(make, count=2, door=True), turns(make, "pause")], judge)


@scenario
def claim_and_resume(make: Factory, level: str) -> Staged:
    """The head is had once the resumption has committed."""
    first, _ = make.advance_to("publish", count=2)
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        got = ids(end["claim"])
        assert got in ([], [first])
        assert states(make) == ["reserved" if got else "pending", "waiting"]
        return str(len(got))

    return Staged([claims(make, count=2, door=True), turns(make, "resume")], judge, waits=False)


@long
@scenario
def advance_and_pause(make: Factory, level: str) -> Staged:
    """The head ends; the next one has no turn while the lane is paused, and has it when it goes on."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "waiting"]
        assert make.claim("publish") == []
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["done", "pending"]
        return str(end["pause"].running)

    return Staged([says(claim), turns(make, "pause")], judge)


@long
@scenario
def advance_without_gate_and_pause(make: Factory, level: str) -> Staged:
    """A step to a stage without limit looks at no lane: upkeep takes its turn, and no claim has it before."""
    make.plan(count=2)
    (claim,) = make.claim("generate")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert make.claim("generate", 9) == make.claim("validate", 9) == []
        moved = make.services.lanes.settle(make.site_id)
        assert states(make) == ["waiting", "waiting"]
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "pending"]
        return str(moved)

    return Staged([says(claim), turns(make, "pause")], judge, waits=False)


@long
@scenario
def settle_and_resume(make: Factory, level: str) -> Staged:
    """Upkeep that repeats a pause takes nobody's turn once the lane goes on."""
    make.plan(count=2)
    (claim,) = make.claim("generate")
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
    make.say(claim)

    def judge(end: Ended) -> str:
        assert states(make) == ["pending", "pending"]
        return str(end["settle"])

    return Staged([settles(make), turns(make, "resume")], judge)


@long
@scenario
def advance_and_resume(make: Factory, level: str) -> Staged:
    """The head of a paused lane ends while it is resumed: the next one has its turn."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending"]
        return "done"

    return Staged([says(claim), turns(make, "resume")], judge, outcomes=1)


@long
@scenario
def arrival_and_resume(make: Factory, level: str) -> Staged:
    """One that arrives at the gate while its lane is resumed has its turn, by the one or by the other."""
    make.advance_to("validate", count=2)
    (claim,) = make.claim("validate")
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["pending", "pending"]
        assert make.job(claim.job_id).slot == 1
        return "done"

    return Staged([says(claim), turns(make, "resume")], judge, outcomes=1)


@long
@scenario
def hold_and_pause(make: Factory, level: str) -> Staged:
    """What is held waits for a person, and neither pause nor resumption frees it."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["hold"], claim) == "written"
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["waiting", "waiting"]
        assert make.job(claim.job_id).hold == "look at it"
        return str(end["pause"].running)

    return Staged([says(claim, verb=Verb.HOLD, hold="look at it"), turns(make, "pause")], judge)


@long
@scenario
def retry_and_pause(make: Factory, level: str) -> Staged:
    """A head that is tried again comes to no claim while its lane is paused, and is the head afterwards."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["retry"], claim) == "written"
        assert make.claim("publish", 9) == []
        make.services.lanes.settle(make.site_id)
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting"]
        return str(end["pause"].running)

    return Staged([says(claim, verb=Verb.RETRY), turns(make, "pause")], judge)


@long
@scenario
def reap_and_pause(make: Factory, level: str) -> Staged:
    """The same for one whose worker died."""
    over(make)

    def judge(end: Ended) -> str:
        assert end["reap"].fates
        assert make.claim("publish", 9) == []
        make.services.lanes.settle(make.site_id)
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting"]
        return str(end["pause"].running)

    return Staged([reaps(make), turns(make, "pause")], judge)


@long
@scenario
def pause_and_resume_and_advance(make: Factory, level: str) -> Staged:
    """Two operators of opposite wills and a worker: whatever the lane is in the end, its jobs are that."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        resumed = not end.refused("resume", "is active already")
        assert states(make) == ["done", "pending" if resumed else "waiting"]
        return "active" if resumed else "paused"

    pause, resume = turns(make, "pause").standing(COMMIT), turns(make, "resume").standing(COMMIT)
    parts = [says(claim, stops=(LOCK, COMMIT)), pause, resume]
    return Staged(parts, judge)


@scenario
def pause_and_requeue(make: Factory, level: str) -> Staged:
    """A head that comes back while its lane is paused waits, and goes on with it."""
    first, _ = make.advance_to("publish", count=2)
    make.services.operate.cancel([first], actor=ACTOR)

    def judge(end: Ended) -> str:
        assert states(make) == ["waiting", "waiting"]
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([turns(make, "pause"), operates("requeue", first)], judge)


@of_callers
def close_and_plan(make: Factory, level: str) -> Staged:
    """A topic comes in time, and waits in the closed lane; or too late, and its caller is told."""
    make.plan()

    def judge(end: Ended) -> str:
        late = end.refused("plan", "is closed")
        assert states(make) == ["waiting"] * (1 if late else 2)
        return "late" if late else "in time"

    return Staged([turns(make, "close"), plans(topic(7))], judge, allows=RESENDS[level])


@scenario
def close_and_plan_of_a_file(make: Factory, level: str) -> Staged:
    """The same for a run: what is in the file, and comes too late, is named."""
    make.plan()

    def judge(end: Ended) -> str:
        late = end["plan"].closed == ("lane-7",)
        assert end["plan"].new == (0 if late else 1)
        assert states(make) == ["waiting"] * (1 if late else 2)
        return "late" if late else "in time"

    return Staged([turns(make, "close"), plans_file(make, [make.row("lane", 1), make.row("lane", 7)])], judge)
