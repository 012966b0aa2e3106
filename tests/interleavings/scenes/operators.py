"""Operators' verbs on jobs against the work that goes on: whoever commits first wins, and the other acts on that."""

from datetime import timedelta

from pipeline.service.acknowledging import Verb
from pipeline.service.order import StageSpec
from pipeline.sql import sites
from tests.factories import ACTOR, STAGES, Factory
from tests.interleavings.facts import asked, fate, ids, outcomes, states
from tests.interleavings.orders import COMMIT, Ended, Part, Staged, long, scenario
from tests.interleavings.parts import claims, operates, policy, says
from tests.interleavings.scenes.common import CHECKED


@long
@scenario
def claim_and_skip(make: Factory, level: str) -> Staged:
    """A skipped head is had by nobody and the lane goes on; a claimed one cannot be skipped."""
    first, _ = make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        got = ids(end["claim"])
        if got == [first]:
            assert end.refused("skip", "cancel it first")
            assert states(make) == ["reserved", "waiting"]
        else:
            assert end["skip"][0].to_state == "skipped"
            assert states(make) == ["skipped", "reserved" if got else "pending"]
        return "nothing" if not got else "the head" if got == [first] else "the next"

    return Staged([claims(make, count=2, door=True), operates("skip", first)], judge)


@long
@scenario
def claim_and_forced_skip(make: Factory, level: str) -> Staged:
    """Forced, it is skipped in any case; the holder's token is worth nothing then."""
    first, second = make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        assert states(make)[0] == "skipped"
        got = end["claim"]
        assert ids(got) in ([], [first], [second])
        assert outcomes(make, first)[-1] == ("cancelled" if ids(got) == [first] else "done")
        return "nothing" if not got else "the head" if ids(got) == [first] else "the next"

    return Staged([claims(make, count=2, door=True), operates("skip", first, force=True)], judge, outcomes=3)


@long
@scenario
def claim_and_cancel(make: Factory, level: str) -> Staged:
    """A cancelled head is had by nobody and halts the lane; the holder of a claimed one is asked to stop."""
    first, _ = make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        got = ids(end["claim"])
        assert got in ([], [first])
        assert end["cancel"][0].to_state == ("reserved" if got else "cancelled")
        assert states(make) == ["reserved" if got else "cancelled", "waiting"]
        assert make.job(first).cancel_requested is bool(got)
        return "had" if got else "missed"

    return Staged([claims(make, count=2, door=True), operates("cancel", first)], judge)


@long
@scenario
def advance_and_cancel(make: Factory, level: str) -> Staged:
    """Before the last stage: a cancel that comes first wins over the end, one that comes later stops it at the gate."""
    make.advance_to("validate")
    (claim,) = make.claim("validate")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["cancelled"]
        return outcomes(make, claim.job_id)[-1]

    return Staged([says(claim), operates("cancel", claim.job_id)], judge)


@long
@scenario
def last_advance_and_cancel(make: Factory, level: str) -> Staged:
    """At the last stage done wins, and an operator who comes second is told so."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending"]
        if end.refused("cancel", "is done"):
            return "late"
        assert end["cancel"][0].to_state == "reserved"
        return "in time"

    return Staged([says(claim), operates("cancel", claim.job_id)], judge)


@long
@scenario
def advance_and_forced_cancel(make: Factory, level: str) -> Staged:
    """Forced, the first to commit wins, and the holder learns it."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        said = fate(end["advance"], claim)
        if said == "written":
            assert end.refused("cancel", "is done")
            assert states(make) == ["done", "pending"]
        else:
            assert said == "lost"
            assert end["cancel"][0].to_state == "cancelled"
            assert states(make) == ["cancelled", "waiting"]
        return said

    return Staged([says(claim), operates("cancel", claim.job_id, force=True)], judge)


@long
@scenario
def advance_to_the_gate_and_forced_cancel(make: Factory, level: str) -> Staged:
    """Also on its way to a gate: it is cancelled where it came to, or its holder is told that it is lost."""
    make.advance_to("validate", count=2)
    claim, other = make.claim("validate", 2)
    make.say(other)

    def judge(end: Ended) -> str:
        assert end["cancel"][0].to_state == "cancelled"
        assert states(make) == ["cancelled", "waiting"]
        return fate(end["advance"], claim)

    return Staged([says(claim), operates("cancel", claim.job_id, force=True)], judge)


@long
@scenario
def advance_and_forced_skip(make: Factory, level: str) -> Staged:
    """The lane goes on in either case."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        said = fate(end["advance"], claim)
        assert end.refused("skip", "is done") is (said == "written")
        assert states(make) == ["done" if said == "written" else "skipped", "pending"]
        return said

    return Staged([says(claim), operates("skip", claim.job_id, force=True)], judge)


@long
@scenario
def advance_and_skip_of_one_that_is_not_there_yet(make: Factory, level: str) -> Staged:
    """A topic that is skipped before it reached the gate stands in nobody's way, whoever commits first."""
    make.plan(count=3)
    held = {c.topic.position: c for c in make.claim("generate", 3) if c.topic}
    for n in (1, 3):
        make.say(held[n])
    for claim in make.claim("validate", 3):
        make.say(claim)
    make.say(held[2], Verb.FAIL)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert end["skip"][0].to_state == "skipped"
        assert states(make) == ["done", "skipped", "pending"]
        return "done"

    return Staged([says(claim), operates("skip", held[2].job_id)], judge, outcomes=1)


@long
@scenario
def two_skips_in_one_lane(make: Factory, level: str) -> Staged:
    """Two that stood in the way are skipped at once: the third has its turn."""
    first, second, _ = make.advance_to("publish", count=3)

    def judge(end: Ended) -> str:
        assert states(make) == ["skipped", "skipped", "pending"]
        return "done"

    parts = [operates("skip", first, name="one"), operates("skip", second, name="other")]
    return Staged(parts, judge, outcomes=1)


@long
@scenario
def requeue_and_requeue(make: Factory, level: str) -> Staged:
    """Two operators with the same will act once, and the second is told what he found."""
    first, _ = make.advance_to("publish", count=2)
    make.services.operate.cancel([first], actor=ACTOR)

    def judge(end: Ended) -> str:
        won = [name for name in ("one", "other") if not end.refused(name, "is pending")]
        assert len(won) == 1
        assert end[won[0]][0].to_state == "pending"
        assert states(make) == ["pending", "waiting"]
        return won[0]

    return Staged([operates("requeue", first, name="one"), operates("requeue", first, name="other")], judge)


@long
@scenario
def requeue_and_promote(make: Factory, level: str) -> Staged:
    """One that comes back to the gate just when its turn comes has it."""
    _, second, _ = make.advance_to("publish", count=3)
    make.services.operate.cancel([second], actor=ACTOR)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([says(claim), operates("requeue", second)], judge)


@long
@scenario
def requeue_and_skip_of_the_head(make: Factory, level: str) -> Staged:
    """The head is given up while the one behind it comes back."""
    first, second, _ = make.advance_to("publish", count=3)
    make.services.operate.cancel([first, second], actor=ACTOR)

    def judge(end: Ended) -> str:
        assert states(make) == ["skipped", "pending", "waiting"]
        return str(end["requeue"][0].to_state)

    return Staged([operates("skip", first), operates("requeue", second)], judge)


@scenario
def cancel_and_skip(make: Factory, level: str) -> Staged:
    """Whoever comes second finds a state that his verb allows, or is told."""
    first, _ = make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        assert states(make) == ["skipped", "pending"]
        return "late" if end.refused("cancel", "is skipped") else "in time"

    return Staged([operates("cancel", first), operates("skip", first)], judge)


@long
@scenario
def reject_and_a_new_head(make: Factory, level: str) -> Staged:
    """A job behind the gate goes back over it while the next one is released there: it takes no second turn."""
    make.site(stages=CHECKED)
    make.advance_to("publish", count=3)
    make.say(make.claim("publish")[0])
    (back,), (head,) = make.claim("check"), make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["reject"], back) == fate(end["advance"], head) == "written"
        assert states(make) == ["pending", "pending", "pending"]
        assert [make.job(i).stage for i in make.job_ids()] == ["publish", "check", "publish"]
        assert make.job(back.job_id).gate_id is None
        return "done"

    return Staged([says(back, verb=Verb.REJECT, to_stage="publish"), says(head)], judge, outcomes=1)


@scenario
def reject_of_the_head_and_arrival(make: Factory, level: str) -> Staged:
    """A head sent back from before the gate keeps its place: who stands at the gate waits for it."""
    make.advance_to("validate", count=2)
    one, other = make.claim("validate", 2)

    def judge(end: Ended) -> str:
        assert fate(end["reject"], one) == fate(end["advance"], other) == "written"
        assert states(make) == ["pending", "waiting"]
        assert make.job(one.job_id).stage == "generate"
        return "done"

    return Staged([says(one, verb=Verb.REJECT), says(other)], judge, outcomes=1)


@scenario
def policy_and_fail(make: Factory, level: str) -> Staged:
    """A lane that is told to go on over what fails does so from the next failure on, and never half."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["fail"], claim) == "written"
        found = states(make)
        assert found in (["failed", "waiting"], ["skipped", "pending"])
        return found[0]

    return Staged([policy(make, "skip"), says(claim, verb=Verb.FAIL)], judge)


@scenario
def policy_and_fail_at_a_stage_without_gate(make: Factory, level: str) -> Staged:
    """The same for one that fails before any gate, while another waits at it for him."""
    make.advance_to("validate", count=2)
    one, other = make.claim("validate", 2)
    make.say(other)

    def judge(end: Ended) -> str:
        assert fate(end["fail"], one) == "written"
        found = states(make)
        assert found in (["failed", "waiting"], ["skipped", "pending"])
        return found[0]

    return Staged([policy(make, "skip"), says(one, verb=Verb.FAIL)], judge, waits=False)


@long
@scenario
def grant_and_last_retry(make: Factory, level: str) -> Staged:
    """Attempts granted before the last one has failed count; afterwards the operator is told what to do instead."""
    make.site(stages=(*STAGES[:2], StageSpec("publish", 1, 1)))
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["retry"], claim) == "written"
        late = end.refused("grant", "requeue")
        assert states(make) == ["failed" if late else "pending", "waiting"]
        return "late" if late else "in time"

    return Staged([operates("grant", claim.job_id, attempts=2),
                   says(claim, verb=Verb.RETRY, delay=timedelta(0))], judge)  # fmt: skip


@scenario
def site_removed_and_claim(make: Factory, level: str) -> Staged:
    """A site with work is not removed, whoever claims just then; and a claim waits for no removal."""
    (job_id,) = make.plan()

    def judge(end: Ended) -> str:
        assert end.refused("remove", "1 unfinished job")
        assert ids(end["claim"]) == [job_id]
        return "refused"

    return Staged([_removes(make), claims(make, "generate", door=True)], judge, waits=False, outcomes=1)


@long
@scenario
def site_removed_skip_and_claim(make: Factory, level: str) -> Staged:
    """The last job is skipped or claimed just when its site is removed: nothing of a site stays, or all of it."""
    (job_id,) = make.plan()

    def judge(end: Ended) -> str:
        got = ids(end["claim"])
        there = asked(make, "SELECT 1 FROM {s}.sites")
        assert bool(there) is (end.refused("remove"))
        if got:
            assert there
            assert end.refused("skip")
        return f"{bool(there)} {got != []}"

    return Staged(
        [_removes(make), operates("skip", job_id, stops=(COMMIT,)), claims(make, "generate")], judge, outcomes=3
    )


def _removes(make: Factory) -> Part:
    def body(hand: object) -> object:
        return hand.services.sites.remove(make.site_id, "acme", actor=ACTOR)  # type: ignore[attr-defined]

    return Part("remove", body, (sites.contents(), COMMIT))
