"""Places and widths against an operator's other verbs: the ones that lock lanes and the ones that only share them."""

from pipeline.service.acknowledging import Verb
from pipeline.service.operate import Filter
from pipeline.sql import lanes, operate
from pipeline.states import JobState
from tests.concurrency.stage import CLOCK
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import fate, slugs, states
from tests.interleavings.orders import COMMIT, Ended, Part, Staged, long, of_callers, scenario
from tests.interleavings.parts import (
    LOCK,
    changes_lane,
    claims,
    inserts,
    moves,
    operates,
    plans,
    reaps,
    says,
    settles,
    topic,
    turns,
    width,
)
from tests.interleavings.scenes.common import OPEN, RESENDS, WIDE, over


@scenario
def change_of_lane_and_skip(make: Factory, level: str) -> Staged:
    """One that is given up while it leaves is given up where it came to, or it is not moved."""
    first, _ = make.advance_to("publish", count=2)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        assert end["skip"][0].to_state == "skipped"
        if end.refused("move", "is done or skipped"):
            assert states(make) == ["skipped", "pending"]
            return "late"
        assert states(make) == ["pending"]
        assert states(make, "other") == ["pending", "skipped"]
        return "moved"

    return Staged([changes_lane(make, "lane-1", "other"), operates("skip", first)], judge)


@long
@scenario
def change_of_lane_and_requeue(make: Factory, level: str) -> Staged:
    """One that comes back while it leaves takes its turn in its new lane."""
    first, _ = make.advance_to("publish", count=2)
    make.services.operate.cancel([first], actor=ACTOR)
    make.advance_to("publish", lane="other")

    def judge(end: Ended) -> str:
        assert end["requeue"]
        assert states(make) == ["pending"]
        assert states(make, "other") == ["pending", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([changes_lane(make, "lane-1", "other"), operates("requeue", first)], judge)


@long
@scenario
def change_of_lane_and_cancel(make: Factory, level: str) -> Staged:
    """One that is cancelled while it leaves halts the lane in which it stands then."""
    first, _ = make.advance_to("publish", count=2)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        assert end["cancel"][0].to_state == "cancelled"
        assert states(make) == ["pending"]
        assert states(make, "other") == ["pending", "cancelled"]
        return "done"

    return Staged([changes_lane(make, "lane-1", "other"), operates("cancel", first)], judge, outcomes=1)


@long
@of_callers
def change_of_lane_and_append(make: Factory, level: str) -> Staged:
    """Two come to the end of one lane, from another and from a caller: each has its place."""
    make.plan()
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        found = slugs(make, "other")
        assert sorted(found) == ["lane-1", "other-1", "other-7"]
        assert states(make, "other") == ["pending"] * 3
        return found[1]

    parts = [changes_lane(make, "lane-1", "other"), plans(topic(7, "other"))]
    return Staged(parts, judge, allows=RESENDS[level])


@scenario
def change_of_lane_and_close(make: Factory, level: str) -> Staged:
    """A lane that is closed takes nobody; who came in time waits there."""
    make.plan()
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        late = end.refused("move", "is closed")
        assert states(make) == (["pending"] if late else [])
        assert states(make, "other") == ["waiting"] * (1 if late else 2)
        return "late" if late else "in time"

    return Staged([changes_lane(make, "lane-1", "other"), turns(make, "close", lane="other")], judge)


@long
@scenario
def change_of_lane_and_move_before_it(make: Factory, level: str) -> Staged:
    """A mate by which another is to be placed may have left: then that one is not moved."""
    make.plan(count=3)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        gone = end.refused("move", "is in lane 'other'")
        assert slugs(make) == ["lane-1", "lane-3"]
        assert slugs(make, "other") == ["other-1", "lane-2"]
        return "gone" if gone else "moved"

    parts = [changes_lane(make, "lane-2", "other", name="leave"), moves(make, "lane-3", before="lane-2")]
    return Staged(parts, judge)


@scenario
def move_and_requeue(make: Factory, level: str) -> Staged:
    """One that comes back to the gate while it is moved behind the others has no turn before them."""
    first, *_ = make.advance_to("publish", count=3)
    make.services.operate.cancel([first], actor=ACTOR)

    def judge(end: Ended) -> str:
        assert slugs(make) == ["lane-2", "lane-3", "lane-1"]
        assert states(make) == ["pending", "waiting", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([moves(make, "lane-1", after="lane-3"), operates("requeue", first)], judge)


@scenario
def insert_and_requeue(make: Factory, level: str) -> Staged:
    """One that comes back just when another is put in before it waits for that."""
    first, _ = make.advance_to("publish", count=2)
    make.services.operate.cancel([first], actor=ACTOR)

    def judge(end: Ended) -> str:
        assert slugs(make) == ["lane-77", "lane-1", "lane-2"]
        assert states(make) == ["pending", "waiting", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([inserts(make, "lane-1"), operates("requeue", first)], judge)


@scenario
def insert_and_skip(make: Factory, level: str) -> Staged:
    """The mate is given up just when one is put in before it: that one is the head."""
    first, _ = make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        assert end["skip"]
        if end.refused("insert", "released up to"):
            assert states(make) == ["skipped", "pending"]
            return "late"
        assert slugs(make) == ["lane-77", "lane-1", "lane-2"]
        assert states(make) == ["pending", "skipped", "waiting"]
        return "in time"

    return Staged([inserts(make, "lane-1"), operates("skip", first)], judge)


@long
@scenario
def insert_and_reap(make: Factory, level: str) -> Staged:
    """While the head is reserved, dead or not, nothing is put in before it; once it is taken back, it is."""
    over(make)

    def judge(end: Ended) -> str:
        assert end["reap"].fates
        refused = end.refused("insert", "runs at stage")
        assert states(make) == (["pending", "waiting"] if refused else ["pending", "waiting", "waiting"])
        return "refused" if refused else "in"

    return Staged([inserts(make, "lane-1"), reaps(make)], judge)


@scenario
def insert_and_narrow(make: Factory, level: str) -> Staged:
    """One is put in while its lane becomes strict: whoever stands behind it waits."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        assert slugs(make) == ["lane-77", "lane-1", "lane-2", "lane-3"]
        assert states(make) == ["pending", "waiting", "waiting", "waiting"]
        return "done"

    return Staged([inserts(make, "lane-1"), width(make, 1)], judge, outcomes=1)


@scenario
def narrow_and_requeue(make: Factory, level: str) -> Staged:
    """One that comes back while its gate becomes strict is the head, and the only one with a turn."""
    make.site(stages=WIDE)
    first, *_ = make.advance_to("publish", count=4)
    make.services.operate.cancel([first], actor=ACTOR)

    def judge(end: Ended) -> str:
        assert states(make) == ["pending", "waiting", "waiting", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([width(make, 1), operates("requeue", first)], judge)


@scenario
def narrow_and_pause(make: Factory, level: str) -> Staged:
    """A gate that is narrowed in a lane that is paused just then gives its turn when that goes on."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        assert states(make) == ["waiting"] * 3
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting", "waiting"]
        return str(end["pause"].jobs)

    return Staged([width(make, 1), turns(make, "pause")], judge)


@scenario
def narrow_and_forced_skip(make: Factory, level: str) -> Staged:
    """Two run; one is taken from its holder just when the lane is narrowed: refused before, done after."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=4)
    one, _ = make.claim("publish", 2)

    def judge(end: Ended) -> str:
        assert end["skip"][0].to_state == "skipped"
        if end.refused("width", "run at stage"):
            assert states(make) == ["skipped", "reserved", "pending", "pending"]
            return "refused"
        assert states(make) == ["skipped", "reserved", "waiting", "waiting"]
        return "narrow"

    return Staged([width(make, 1), operates("skip", one.job_id, force=True)], judge)


@scenario
def widen_and_skip(make: Factory, level: str) -> Staged:
    """The head is given up while its gate is widened: all places are used."""
    first, *_ = make.advance_to("publish", count=4)

    def judge(end: Ended) -> str:
        assert states(make) == ["skipped", "pending", "pending", "waiting"]
        return "done"

    return Staged([width(make, 2), operates("skip", first)], judge, outcomes=1)


@long
@scenario
def no_limit_and_reap(make: Factory, level: str) -> Staged:
    """One that is taken back while the limit goes is pending with all others."""
    over(make, count=3)

    def judge(end: Ended) -> str:
        assert end["reap"].fates
        assert states(make) == ["pending"] * 3
        return "done"

    return Staged([width(make, None), reaps(make)], judge, outcomes=1)


@long
@scenario
def no_limit_and_hold(make: Factory, level: str) -> Staged:
    """One that is held while the limit goes stays held, and nobody waits for it."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["hold"], claim) == "written"
        assert states(make) == ["waiting", "pending"]
        return "done"

    return Staged([width(make, None), says(claim, verb=Verb.HOLD, hold="look")], judge, outcomes=1)


@long
@scenario
def no_limit_claim_and_narrow_back(make: Factory, level: str) -> Staged:
    """One operator takes a limit away, another sets it to two, a worker claims: in the end all have their turn."""
    make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        got = len(end["claim"])
        late = end.refused("back", "is at work")
        assert sorted(states(make)) == ["pending"] * (3 - got) + ["reserved"] * got
        return f"{'late' if late else 'in time'}, {got}"

    wide, back = width(make, None, name="wide").standing(COMMIT), width(make, 2, name="back").standing(COMMIT)
    return Staged([wide, back, claims(make, count=2)], judge, outcomes=3)


@long
@scenario
def a_new_limit_and_upkeep(make: Factory, level: str) -> Staged:
    """Upkeep repeats the pause of a lane while a stage of it gets a limit."""
    make.site(stages=OPEN)
    make.plan(count=2)
    (claim,) = make.claim("generate")
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
    make.say(claim)

    def judge(end: Ended) -> str:
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "pending"]
        assert make.job(claim.job_id).slot == 1
        return str(end["settle"])

    return Staged([width(make, 1), settles(make)], judge)


@long
@scenario
def a_new_limit_and_a_change_of_lane(make: Factory, level: str) -> Staged:
    """One comes from another lane while the stage at which it stands gets a limit there."""
    make.site(stages=OPEN)
    make.advance_to("publish", count=2)
    make.advance_to("publish", lane="other", count=1)
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    def judge(end: Ended) -> str:
        assert end["width"].after == {"width": 1}
        make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
        assert states(make) == ["pending", "waiting", "waiting"]
        return "done"

    return Staged([width(make, 1), changes_lane(make, "other-1", "lane")], judge, outcomes=1)


@long
@scenario
def a_new_limit_and_a_site_that_goes_on(make: Factory, level: str) -> Staged:
    """The site is paused instead of the lane, and resumed just then while a worker claims: never two at once."""
    make.site(stages=OPEN)
    make.advance_to("publish", count=3)
    make.services.sites.pause(make.site_id, actor=ACTOR)
    resumes = Part("resume", lambda hand: hand.services.sites.resume(make.site_id, actor=ACTOR), stops=())

    def judge(end: Ended) -> str:
        got = len(end["claim"])
        found = states(make)
        if end.refused("width"):
            assert sorted(found) == ["pending"] * (3 - got) + ["reserved"] * got
            return f"refused {got}"
        assert found in (["pending", "waiting", "waiting"], ["reserved", "waiting", "waiting"])
        return f"limited {got}"

    parts = [width(make, 1).standing(lanes.demote(), COMMIT), resumes, claims(make, count=2)]
    return Staged(parts, judge, outcomes=3)


def _filtered(verb: str, make: Factory, **conditions: object) -> Part:
    wanted = Filter(make.site_id, "lane", **conditions)  # type: ignore[arg-type]
    return Part(
        "filter",
        lambda hand: getattr(hand.services.operate, verb)(wanted, actor=ACTOR),
        (LOCK, getattr(operate, verb)(CLOCK), (COMMIT, 3)),
    )


@long
@scenario
def filtered_requeue_and_skip(make: Factory, level: str) -> Staged:
    """A filter moves what still matches when its row is locked: what was given up meanwhile stays so."""
    first, second = make.advance_to("publish", count=2)
    make.services.operate.cancel([first, second], actor=ACTOR)

    def judge(end: Ended) -> str:
        moved = sorted(m.job_id for m in end["filter"])
        if end.refused("skip"):
            raise AssertionError("what is pending can be skipped")
        assert moved in ([second], [first, second])
        assert states(make) == ["skipped", "pending"]
        return str(len(moved))

    return Staged([_filtered("requeue", make, states=frozenset({JobState.CANCELLED})), operates("skip", first)], judge)


@long
@scenario
def filtered_cancel_and_advance(make: Factory, level: str) -> Staged:
    """One that has moved on to another stage is none of those that were meant."""
    make.advance_to("validate", count=2)
    (claim,) = make.claim("validate")
    other = make.job_ids()[1]

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        moved = sorted(m.job_id for m in end["filter"])
        assert moved in ([other], [claim.job_id, other])
        assert states(make) == ["pending" if moved == [other] else "cancelled", "cancelled"]
        return str(len(moved))

    return Staged([_filtered("cancel", make, stage="validate"), says(claim)], judge)


@long
@scenario
def filtered_skip_and_change_of_lane(make: Factory, level: str) -> Staged:
    """One that has left the lane is none of those that were meant."""
    make.advance_to("publish", count=2)
    make.plan(lane="other")

    def judge(end: Ended) -> str:
        moved = len(end["filter"])
        if end.refused("move"):
            assert moved == 2
            return "late"
        assert states(make) == ["skipped"]
        assert states(make, "other") == ["pending", "waiting"]
        return str(moved)

    return Staged([_filtered("skip", make), changes_lane(make, "lane-1", "other")], judge)


@long
@scenario
def filtered_requeue_and_requeue(make: Factory, level: str) -> Staged:
    """Two operators, one with a filter and one with numbers: each job comes back once."""
    first, second = make.advance_to("publish", count=2)
    make.services.operate.cancel([first, second], actor=ACTOR)

    def judge(end: Ended) -> str:
        moved = len(end["filter"])
        assert (moved == 1) is (not end.refused("requeue", "is pending"))
        assert states(make) == ["pending", "waiting"]
        return str(moved)

    return Staged([_filtered("requeue", make), operates("requeue", first)], judge)
