"""Workers against each other and against those who take jobs away: one end for each reservation."""

from datetime import timedelta

from pipeline.service.acknowledging import Verb
from pipeline.sql import gates, prune, transitions
from tests.concurrency.stage import CLOCK
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import fate, ids, outcomes, states
from tests.interleavings.orders import COMMIT, Ended, Part, Staged, long, scenario
from tests.interleavings.parts import LOCK, claims, heals, reaps, renews, says, topic
from tests.interleavings.scenes.common import LIMITED, WIDE, over, planned

FULL = (LOCK, transitions.advance(CLOCK), gates.move_passed(), gates.promote(CLOCK), COMMIT)


@long
@scenario
def advance_and_advance_of_neighbours(make: Factory, level: str) -> Staged:
    """Two jobs of one gate end at once: both slots come to those who wait, none is lost."""
    make.site(stages=WIDE)
    make.advance_to("publish", count=5)
    one, other = make.claim("publish", 2)

    def judge(end: Ended) -> str:
        assert fate(end["one"], one) == fate(end["other"], other) == "written"
        assert states(make) == ["done", "done", "pending", "pending", "pending"]
        return "done"

    return Staged([says(one, name="one", stops=FULL), says(other, name="other", stops=FULL)], judge, outcomes=1)


@long
@scenario
def advance_to_the_gate_and_advance_from_it(make: Factory, level: str) -> Staged:
    """The head is released while the next one arrives: it gets its turn, by the one or by the other."""
    make.advance_to("publish")
    make.services.planning.plan(make.site_id, [make.row("lane", 1), make.row("lane", 2)])
    make.say(make.claim("generate")[0])
    (coming,), (head,) = make.claim("validate"), make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["comes"], coming) == fate(end["leaves"], head) == "written"
        assert states(make) == ["done", "pending"]
        return "done"

    return Staged([says(coming, name="comes", stops=FULL), says(head, name="leaves", stops=FULL)], judge, outcomes=1)


@long
@scenario
def advance_twice_with_one_token(make: Factory, level: str) -> Staged:
    """The same end said twice, after a lost answer: written once, and both are told that it is."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["one"], claim) == fate(end["again"], claim) == "written"
        assert outcomes(make, claim.job_id)[-2:] == ["done", "done"]  # validate's and publish's
        assert states(make) == ["done", "pending"]
        return "done"

    return Staged([says(claim, name="one"), says(claim, name="again")], judge, outcomes=1)


@long
@scenario
def advance_and_another_end_with_one_token(make: Factory, level: str) -> Staged:
    """Two different ends under one token: one is written, and the other is told that it is not."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        said = fate(end["advance"], claim), fate(end["fail"], claim)
        assert said in (("written", "lost"), ("lost", "written"))
        assert states(make) == (["done", "pending"] if said[0] == "written" else ["failed", "waiting"])
        return said[0]

    return Staged([says(claim), says(claim, verb=Verb.FAIL)], judge)


@long
@scenario
def advance_with_a_stale_token(make: Factory, level: str) -> Staged:
    """Who lost his reservation is told so, however the new holder's end falls."""
    stale = over(make)
    make.services.work.reap([e for e in make.services.work.expired(make.site_id) if e.over])
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["stale"], stale) == "lost"
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending"]
        return "done"

    return Staged([says(stale, name="stale"), says(claim)], judge, outcomes=1, waits=False)


@scenario
def renew_and_advance(make: Factory, level: str) -> Staged:
    """A heartbeat neither holds up an end nor brings anything back."""
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert states(make) == ["done", "pending"]
        return str(end["renew"].get(claim.fence, ("gone",))[0])

    return Staged([renews(claim), says(claim)], judge, outcomes=3)


@scenario
def fail_and_reap(make: Factory, level: str) -> Staged:
    """One of them ends it: failed, and the lane halts; or pending again."""
    claim = over(make)

    def judge(end: Ended) -> str:
        reaped, said = end["reap"].fates, fate(end["fail"], claim)
        assert (bool(reaped), said) in ((True, "lost"), (False, "written"))
        assert states(make) == ["pending" if reaped else "failed", "waiting"]
        return said

    return Staged([reaps(make), says(claim, verb=Verb.FAIL)], judge)


@scenario
def fail_in_a_skipping_lane_and_reap(make: Factory, level: str) -> Staged:
    """The same where the lane goes on over what failed: both lock every gate of it."""
    claim = over(make)
    make.services.widths.on_failed(make.site_id, "lane", "skip", actor=ACTOR)

    def judge(end: Ended) -> str:
        reaped, said = end["reap"].fates, fate(end["fail"], claim)
        assert (bool(reaped), said) in ((True, "lost"), (False, "written"))
        assert states(make) == (["pending", "waiting"] if reaped else ["skipped", "pending"])
        return said

    return Staged([reaps(make), says(claim, verb=Verb.FAIL)], judge)


@long
@scenario
def reap_and_reap(make: Factory, level: str) -> Staged:
    """Two reapers take a job back once."""
    claim = over(make)

    def judge(end: Ended) -> str:
        one, other = end["one"].fates, end["other"].fates
        assert len(one) + len(other) == 1
        assert outcomes(make, claim.job_id).count("expired") == 1
        assert states(make) == ["pending", "waiting"]
        return "one" if one else "other"

    return Staged([reaps(make, name="one"), reaps(make, name="other")], judge)


@scenario
def reap_and_claim(make: Factory, level: str) -> Staged:
    """What is taken back is claimed with a new fence, once that has committed."""
    stale = over(make)

    def judge(end: Ended) -> str:
        assert end["reap"].fates
        got = end["claim"]
        assert ids(got) in ([], [stale.job_id])
        assert all(c.fence > stale.fence and c.token != stale.token for c in got)
        return "had" if got else "missed"

    return Staged([reaps(make), claims(make, count=2, door=True)], judge, waits=False)


@long
@scenario
def reap_claim_and_advance(make: Factory, level: str) -> Staged:
    """A holder who comes back, a reaper, and one who claims: the order of the lane is kept, the job has one end."""
    claim = over(make)

    def judge(end: Ended) -> str:
        reaped, said, got = end["reap"].fates, fate(end["advance"], claim), ids(end["claim"])
        assert (bool(reaped), said) in ((True, "lost"), (False, "written"))
        second = make.job_ids()[1]
        assert got in ([], [claim.job_id] if reaped else [second])
        return f"{said} {len(got)}"

    write = transitions.advance(CLOCK)
    parts = [reaps(make, stops=(gates.move_passed(),)), says(claim, stops=(write, COMMIT)), claims(make, count=2)]
    return Staged(parts, judge, outcomes=4)


@long
@scenario
def reap_and_prune(make: Factory, level: str) -> Staged:
    """A job that is taken back is no finished one: its old passes go, itself stays."""
    make.services.operate.skip(make.plan(), actor=ACTOR)
    make.services.planning.plan(make.site_id, [make.row("lane", 1, input_hash="second")])
    (claim,) = make.claim("generate")
    make.expire(claim.job_id)
    pruning = Part(
        "prune",
        lambda hand: hand.services.prune.prune(make.site_id, timedelta(0), actor=ACTOR),
        (prune.choose(CLOCK, assemblies=False), prune.forget_passes(), COMMIT),
    )

    def judge(end: Ended) -> str:
        assert end["prune"].passes == 1
        assert end["reap"].fates
        assert states(make) == ["pending"]
        return "done"

    return Staged([reaps(make), pruning], judge, waits=False, outcomes=1)


@long
@scenario
def retry_of_the_head_and_arrival(make: Factory, level: str) -> Staged:
    """A head that is tried again keeps its place, whoever arrives behind it."""
    make.advance_to("publish")
    make.services.planning.plan(make.site_id, [make.row("lane", 1), make.row("lane", 2)])
    make.say(make.claim("generate")[0])
    (coming,), (head,) = make.claim("validate"), make.claim("publish")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], coming) == fate(end["retry"], head) == "written"
        assert states(make) == ["pending", "waiting"]
        return "done"

    return Staged([says(coming), says(head, verb=Verb.RETRY, delay=timedelta(0))], judge, outcomes=1)


@long
@scenario
def two_heals_and_an_advance(make: Factory, level: str) -> Staged:
    """Workers that mend a caller's plan, and one that ends what stood before it, give the turn once."""
    make.site(stages=LIMITED)
    make.plan()
    (claim,) = make.claim("generate")
    planned(make, topic(7), topic(8))

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert end["one"] == end["other"] == 0
        assert states(make) == ["pending", "pending", "waiting"]
        return "done"

    beside = [heals(make, name=name, stops=(COMMIT,)) for name in ("one", "other")]
    parts = [says(claim, stops=(COMMIT,)), *beside]
    return Staged(parts, judge, outcomes=1, waits=False)


@scenario
def two_heals_of_a_plan(make: Factory, level: str) -> Staged:
    """Two workers that mend the same plan count it once."""
    make.site(stages=LIMITED)
    planned(make, topic(7), topic(8))

    def judge(end: Ended) -> str:
        assert end["one"] + end["other"] == 1
        assert states(make) == ["pending", "waiting"]
        return "one" if end["one"] else "other"

    return Staged([heals(make, name="one"), heals(make, name="other")], judge, waits=False)
