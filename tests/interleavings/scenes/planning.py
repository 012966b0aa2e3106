"""Topics that are planned while work goes on: in a caller's transaction, or by a run."""

from datetime import timedelta

from pipeline.service.acknowledging import Verb
from pipeline.sql import prune
from tests.concurrency.stage import CLOCK
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import asked, fate, ids, slugs, states
from tests.interleavings.orders import COMMIT, Ended, Part, Staged, long, of_callers, scenario
from tests.interleavings.parts import claims, operates, plans, plans_file, says, topic
from tests.interleavings.scenes.common import LIMITED, RESENDS


@long
@scenario
def claim_and_plan(make: Factory, level: str) -> Staged:
    """A run plans at a limited first stage while the head is claimed: nobody overtakes."""
    make.site(stages=LIMITED)
    (first,) = make.plan()

    def judge(end: Ended) -> str:
        assert end["plan"].new == 2
        assert ids(end["claim"]) == [first]
        assert states(make) == ["reserved", "waiting", "waiting"]
        return "done"

    rows = [make.row("lane", n) for n in (1, 2, 3)]
    return Staged(
        [claims(make, "generate", count=9, door=True), plans_file(make, rows)], judge, waits=False, outcomes=1
    )


@long
@scenario
def advance_and_plan(make: Factory, level: str) -> Staged:
    """The only one there ends while more arrive: the first of them has its turn, by the one or by the other."""
    make.site(stages=LIMITED)
    make.plan()
    (claim,) = make.claim("generate")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert end["plan"].new == 2
        assert states(make) == ["pending", "pending", "waiting"]
        return "done"

    rows = [make.row("lane", n) for n in (1, 2, 3)]
    return Staged([says(claim), plans_file(make, rows)], judge, outcomes=1)


@long
@of_callers
def advance_and_append(make: Factory, level: str) -> Staged:
    """A caller's plan takes no gate: upkeep gives the turn, once, where the worker could not see what came."""
    make.site(stages=LIMITED)
    make.plan()
    (claim,) = make.claim("generate")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        assert [p.new for p in end["plan"]] == [True, True]
        healed = make.services.work.heal(make.site_id)
        assert states(make) == ["pending", "pending", "waiting"]
        return str(healed)

    return Staged([says(claim), plans(topic(7), topic(8))], judge, waits=False, allows=RESENDS[level])


@long
@of_callers
def fail_and_append(make: Factory, level: str) -> Staged:
    """A halted lane takes what comes, and stays halted."""
    make.site(stages=LIMITED)
    make.plan()
    (claim,) = make.claim("generate")

    def judge(end: Ended) -> str:
        assert fate(end["fail"], claim) == "written"
        assert make.services.work.heal(make.site_id) == 0
        assert states(make) == ["failed", "waiting"]
        return "done"

    parts = [says(claim, verb=Verb.FAIL), plans(topic(7))]
    return Staged(parts, judge, waits=False, outcomes=1, allows=RESENDS[level])


@of_callers
def skip_and_append(make: Factory, level: str) -> Staged:
    """The last one is given up while one is appended behind it: its turn is given by upkeep at the latest."""
    make.site(stages=LIMITED)
    (first,) = make.plan()

    def judge(end: Ended) -> str:
        assert end["skip"][0].to_state == "skipped"
        healed = make.services.work.heal(make.site_id)
        assert states(make) == ["skipped", "pending"]
        return str(healed)

    return Staged([operates("skip", first), plans(topic(7))], judge, waits=None, allows=RESENDS[level])


@scenario
def plan_and_plan_of_two_files(make: Factory, level: str) -> Staged:
    """Two runs plan the same file at once: each topic once, in the file's order."""
    make.plan()

    def judge(end: Ended) -> str:
        assert end["one"].new + end["other"].new == 2
        assert slugs(make) == ["lane-1", "lane-2", "lane-3"]
        assert states(make) == ["pending"] * 3
        return str(end["one"].new)

    rows = [make.row("lane", n) for n in (1, 2, 3)]
    return Staged([plans_file(make, rows, name="one"), plans_file(make, rows, name="other")], judge)


@long
@of_callers
def plan_and_plan_of_several_lanes(make: Factory, level: str) -> Staged:
    """Two callers over the same lanes, given the other way round, take turns."""
    make.plan(lane="a")
    make.plan(lane="b")

    def judge(end: Ended) -> str:
        assert all(p.new for p in [*end["one"], *end["other"]])
        assert slugs(make, "a")[1:] in (["a-7", "a-8"], ["a-8", "a-7"])
        assert slugs(make, "a")[1][-1] == slugs(make, "b")[1][-1]
        return slugs(make, "a")[1]

    parts = [plans(topic(7, "a"), topic(7, "b"), name="one"), plans(topic(8, "b"), topic(8, "a"), name="other")]
    return Staged(parts, judge, allows=RESENDS[level])


@long
@scenario
def plan_of_a_changed_topic_and_its_last_advance(make: Factory, level: str) -> Staged:
    """A topic whose row changes while its pass ends gets a new pass now, or with the next plan; never two at once."""
    make.advance_to("publish")
    (claim,) = make.claim("publish")
    changed = make.row("lane", 1, input_hash="changed")

    def judge(end: Ended) -> str:
        assert fate(end["advance"], claim) == "written"
        if end["plan"].changed == 0:
            assert states(make) == ["done"]
            assert make.services.planning.plan(make.site_id, [changed]).changed == 1
        assert states(make) == ["pending"]
        return str(end["plan"].changed)

    return Staged([says(claim), plans_file(make, [changed])], judge)


@long
@scenario
def prune_and_a_new_pass(make: Factory, level: str) -> Staged:
    """What is the newest pass when it is chosen stays; what has been followed by then goes."""
    make.services.operate.skip(make.plan(), actor=ACTOR)
    make.services.planning.plan(make.site_id, [make.row("lane", 1, input_hash="second")])
    make.services.operate.skip(make.job_ids(), actor=ACTOR)
    pruning = Part(
        "prune",
        lambda hand: hand.services.prune.prune(make.site_id, timedelta(0), actor=ACTOR),
        (prune.choose(CLOCK, assemblies=False), prune.forget_passes(), COMMIT),
    )

    def judge(end: Ended) -> str:
        assert end["plan"].changed == 1
        left = [(row[0], row[1]) for row in asked(make, "SELECT pass, state FROM {s}.jobs ORDER BY pass")]
        assert left[-1] == (3, "pending")
        assert len(left) == 3 - end["prune"].passes
        return str(end["prune"].passes)

    return Staged([pruning, plans_file(make, [make.row("lane", 1, input_hash="third")])], judge, waits=False)
