"""Topics that are put in, or change their place or their lane, while work goes on."""

from pipeline.sql import places
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import fate, slugs, states
from tests.interleavings.orders import COMMIT, Ended, Staged, long, of_callers, scenario
from tests.interleavings.parts import (
    changes_lane,
    claims,
    inserts,
    moves,
    operates,
    plans,
    says,
    topic,
    turns,
    width,
)
from tests.interleavings.scenes.common import LIMITED, RESENDS, WIDE


@long
@scenario
def advance_and_insert(make: Factory, level: str) -> Staged:
    """A topic is put in behind the head while that ends: who stands behind it waits for it, whatever turn he had."""
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert slugs(make) == ["lane-1", "lane-77", "lane-2", "lane-3"]
        assert states(make) == ["done", "pending", "waiting", "waiting"]
        return "done"

    return Staged([says(claim), inserts(make, "lane-2")], judge, outcomes=1)


@long
@scenario
def advance_and_insert_before_the_head(make: Factory, level: str) -> Staged:
    """Before one that runs, or has been released, nothing is put in."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert slugs(make) == ["lane-1", "lane-2"]
        assert states(make) == ["done", "pending"]
        return "runs" if end.refused("insert", "runs at stage") else str(end.refused("insert", "has released up to"))

    return Staged([says(claim), inserts(make, "lane-1")], judge)


@long
@scenario
def claim_and_insert(make: Factory, level: str) -> Staged:
    """Looking who runs comes after taking the turns: a claim that is open is waited for, and then it is refused."""
    make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        got = len(end["claim"])
        if got:
            assert end.refused("insert", "runs at stage")
            assert states(make) == ["reserved", "waiting"]
        else:
            assert slugs(make) == ["lane-77", "lane-1", "lane-2"]
            assert states(make) == ["pending", "waiting", "waiting"]
        return str(got)

    return Staged([claims(make, count=2, door=True), inserts(make, "lane-1")], judge)


@long
@scenario
def advance_claim_and_insert(make: Factory, level: str) -> Staged:
    """Worker A ends the head, worker B claims the next, an operator puts one in before it: never both."""
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        got = len(end["claim"])
        if end.refused("insert", "runs at stage"):
            assert states(make) == ["done", "reserved", "waiting"]
            return "refused"
        assert got == 0
        assert states(make) == ["done", "pending", "waiting", "waiting"]
        return "in"

    insert = inserts(make, "lane-2").standing(places.running(), COMMIT)
    return Staged([says(claim, stops=(COMMIT,)), claims(make), insert], judge)


@long
@of_callers
def insert_and_append(make: Factory, level: str) -> Staged:
    """One put in and one appended: each has its place, and the counter is behind both."""
    make.plan(count=2)

    def judge(end: Ended) -> str:
        assert slugs(make) == ["lane-1", "lane-77", "lane-2", "lane-7"]
        assert states(make) == ["pending"] * 4
        return str(end["plan"][0].position)

    return Staged([inserts(make, "lane-2"), plans(topic(7))], judge, allows=RESENDS[level])


@scenario
def two_inserts(make: Factory, level: str) -> Staged:
    """Two at one place: both are there, one before the other."""
    make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        found = slugs(make)
        assert sorted(found[1:3]) == ["lane-77", "lane-78"]
        assert (found[0], found[3]) == ("lane-1", "lane-2")
        assert states(make) == ["pending", "pending", "pending", "waiting"]
        return found[1]

    return Staged([inserts(make, "lane-2", name="one"), inserts(make, "lane-2", 78, name="other")], judge)


@long
@of_callers
def insert_and_plan_of_the_same_topic(make: Factory, level: str) -> Staged:
    """One slug put in and appended at once: one topic; who comes second is told."""
    make.plan(count=2)

    def judge(end: Ended) -> str:
        assert sorted(slugs(make)) == ["lane-1", "lane-2", "lane-77"]
        late = end.refused("insert", "is planned already")
        assert late or end.refused("plan", "lane-77")
        return "insert late" if late else "plan late"

    return Staged([inserts(make, "lane-2"), plans(topic(77))], judge, allows=RESENDS[level])


@long
@scenario
def move_and_claim(make: Factory, level: str) -> Staged:
    """The head is moved back, or claimed: who had the turn runs, and then nothing is moved."""
    make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        got = [c.topic.slug for c in end["claim"] if c.topic]
        if end.refused("move", "runs at stage"):
            assert got == ["lane-1"]
            assert slugs(make) == ["lane-1", "lane-2", "lane-3"]
        else:
            assert got in ([], ["lane-2"])
            assert slugs(make) == ["lane-2", "lane-3", "lane-1"]
        assert states(make) == ["reserved" if got else "pending", "waiting", "waiting"]
        return str(got)

    return Staged([claims(make, count=2, door=True), moves(make, "lane-1", after="lane-3")], judge)


@long
@scenario
def move_and_advance(make: Factory, level: str) -> Staged:
    """The last is moved right behind the head while that ends: it is next."""
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert slugs(make) == ["lane-1", "lane-3", "lane-2"]
        assert states(make) == ["done", "pending", "waiting"]
        return "done"

    return Staged([says(claim), moves(make, "lane-3", before="lane-2")], judge, outcomes=1)


@long
@scenario
def move_and_arrival(make: Factory, level: str) -> Staged:
    """One that is on its way to the gate is not moved; once it is there it has the turn by its new place."""
    make.advance_to("validate", count=2)
    one, other = make.claim("validate", 2)
    make.say(one)

    def judge(end: Ended) -> str:
        assert fate(end["advance"], other) == "written"
        refused = end.refused("move", "is running")
        assert slugs(make) == (["lane-1", "lane-2"] if refused else ["lane-2", "lane-1"])
        assert states(make) == ["pending", "waiting"]
        return "refused" if refused else "moved"

    return Staged([says(other), moves(make, "lane-2", before="lane-1")], judge)


@scenario
def move_and_skip(make: Factory, level: str) -> Staged:
    """A topic that is given up has no place to be moved from; what was moved before is given up there."""
    *_, last = make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        late = end.refused("move", "is done or skipped")
        assert slugs(make) == (["lane-1", "lane-2", "lane-3"] if late else ["lane-3", "lane-1", "lane-2"])
        assert states(make) == (["pending", "waiting", "skipped"] if late else ["skipped", "pending", "waiting"])
        return "late" if late else "in time"

    return Staged([moves(make, "lane-3", before="lane-1"), operates("skip", last)], judge)


@scenario
def two_moves(make: Factory, level: str) -> Staged:
    """Two operators turn the same stretch: one after the other, and the order is one of theirs."""
    make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        found = slugs(make)
        assert found in (["lane-2", "lane-3", "lane-1"], ["lane-3", "lane-2", "lane-1"], ["lane-3", "lane-1", "lane-2"])
        assert states(make) == ["pending", "waiting", "waiting"]
        return str(found)

    parts = [moves(make, "lane-1", name="one", after="lane-2"), moves(make, "lane-3", name="other", before="lane-1")]
    return Staged(parts, judge)


@long
@scenario
def change_of_lane_and_claim(make: Factory, level: str) -> Staged:
    """A topic leaves for another lane, or is claimed where it was; one lane's head is never claimed in both."""
    make.advance_to("publish", count=2)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        got = [c.topic.slug for c in end["claim"] if c.topic]
        if end.refused("move", "is running"):
            assert got == ["lane-1"]
            assert states(make) == ["reserved", "waiting"]
            return "refused"
        assert slugs(make, "other") == ["other-1", "lane-1"]
        assert got in ([], ["lane-2"])
        assert states(make) == ["reserved" if got else "pending"]
        assert states(make, "other") == ["pending", "waiting"]
        return str(got)

    return Staged([claims(make, count=2, door=True), changes_lane(make, "lane-1", "other")], judge)


@long
@scenario
def change_of_lane_and_advance_where_it_was(make: Factory, level: str) -> Staged:
    """The head ends while the second leaves: the third is next."""
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending"]
        assert states(make, "other") == ["pending", "waiting"]
        return "done"

    return Staged([says(claim), changes_lane(make, "lane-2", "other")], judge, outcomes=1)


@long
@scenario
def change_of_lane_and_advance_where_it_goes(make: Factory, level: str) -> Staged:
    """The head of the other lane ends while one comes to its end: that one has the turn."""
    make.advance_to("publish", lane="other")
    (claim,) = make.claim("publish")
    make.plan(lane="lane", count=1)
    for stage in ("generate", "validate"):
        make.say(make.claim(stage)[0])

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert slugs(make, "other") == ["other-1", "lane-1"]
        assert states(make, "other") == ["done", "pending"]
        return "done"

    return Staged([says(claim), changes_lane(make, "lane-1", "other")], judge, outcomes=1)


@long
@scenario
def change_of_lane_and_its_own_advance(make: Factory, level: str) -> Staged:
    """One that runs cannot leave; once it has ended it can, and takes its turn where it came to."""
    make.advance_to("validate", count=2)
    one, two = make.claim("validate", 2)
    make.say(two)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], one) == "written"
        if end.refused("move", "is running"):
            assert states(make) == ["pending", "waiting"]
            return "refused"
        assert states(make) == ["pending"]
        assert states(make, "other") == ["pending", "waiting"]
        return "moved"

    return Staged([says(one), changes_lane(make, "lane-1", "other")], judge)


@long
@scenario
def two_changes_of_lane_crossed(make: Factory, level: str) -> Staged:
    """One goes each way at once: both lanes' locks are taken in one order."""
    make.advance_to("publish", lane="a", count=2)
    make.advance_to("publish", lane="b", count=2)

    def judge(end: Ended) -> str:
        assert slugs(make, "a") == ["a-1", "b-2"]
        assert slugs(make, "b") == ["b-1", "a-2"]
        assert states(make, "a") == states(make, "b") == ["pending", "waiting"]
        return "done"

    parts = [changes_lane(make, "a-2", "b", name="there"), changes_lane(make, "b-2", "a", name="back")]
    return Staged(parts, judge, outcomes=1)


@long
@scenario
def change_of_lane_and_pause(make: Factory, level: str) -> Staged:
    """The lane that it comes to is paused meanwhile: it waits there, and goes on with it."""
    make.plan()
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        assert states(make, "other") == ["waiting", "waiting"]
        make.services.lanes.resume(make.site_id, "other", actor=ACTOR)
        assert states(make, "other") == ["pending", "pending"]
        return str(end["pause"].jobs)

    return Staged([turns(make, "pause", lane="other"), changes_lane(make, "lane-1", "other")], judge)


@long
@scenario
def change_of_lane_and_narrow(make: Factory, level: str) -> Staged:
    """The lane that it leaves is narrowed meanwhile: in order, with whom it has left."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        assert states(make) == ["pending", "waiting"]
        assert states(make, "other") == ["pending", "pending"]
        return str(end["width"].jobs)

    return Staged([width(make, 1), changes_lane(make, "lane-1", "other")], judge)


@long
@scenario
def advance_claim_and_change_of_lane(make: Factory, level: str) -> Staged:
    """Worker A ends the head, worker B claims the second, an operator takes the second away: it runs in one lane."""
    make.advance_to("publish", count=3)
    (claim,) = make.claim("publish")
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        got = [c.topic.slug for c in end["claim"] if c.topic]
        if end.refused("move", "is running"):
            assert got == ["lane-2"]
            return "refused"
        assert got in ([], ["lane-3"])
        assert states(make) == ["done", "reserved" if got else "pending"]
        assert states(make, "other") == ["pending", "waiting"]
        return str(got)

    move = changes_lane(make, "lane-2", "other").standing(places.lock_passes(), COMMIT)
    return Staged([says(claim, stops=(COMMIT,)), claims(make), move], judge)


@long
@scenario
def insert_at_a_limited_first_stage_and_advance(make: Factory, level: str) -> Staged:
    """Where the first stage is strict, one put in before all others has the turn, or the one before it runs on."""
    make.site(stages=LIMITED)
    make.plan(count=2)
    (claim,) = make.claim("generate")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert slugs(make) == ["lane-1", "lane-77", "lane-2"]
        assert states(make) == ["pending", "pending", "waiting"]
        return "done"

    return Staged([says(claim), inserts(make, "lane-2")], judge, outcomes=1)
