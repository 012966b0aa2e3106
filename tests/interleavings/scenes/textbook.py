"""M1 to M14: the races that every queue on PostgreSQL meets, in our terms.

M15 (a row that is updated beside an old snapshot swells) is a measurement and no race: the plans and figures of claims
beside a pinned snapshot are measured elsewhere.
"""

from datetime import timedelta

from pipeline.service.acknowledging import Ack, Verb
from pipeline.sql import append, claim as claim_sql, gates
from tests.concurrency.stage import CLOCK
from tests.factories import ACTOR, Factory
from tests.interleavings.facts import fate, ids, outcomes, slugs, states
from tests.interleavings.orders import COMMIT, LEVELS, Ended, Hand, Part, Staged, long, of_callers, scenario
from tests.interleavings.parts import claims, operates, plans, plans_file, reaps, renews, says, topic
from tests.interleavings.scenes.common import RESENDS, WIDE, over


@scenario
def m1_claim_and_claim(make: Factory, level: str) -> Staged:
    """M1, M2: of two claims of a lane's head one has it, the other nothing, and no error is spent on it."""
    first, _ = make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        one, other = ids(end["one"]), ids(end["other"])
        assert sorted([one, other]) == [[], [first]]
        assert states(make) == ["reserved", "waiting"]
        return "one" if one else "other"

    return Staged([claims(make, name="one"), claims(make, name="other")], judge, waits=False)


@scenario
def m3_claim_with_an_old_snapshot(make: Factory, level: str) -> Staged:
    """M3, M4, M5: who looked before another claimed, and locks after, does not go on to the next position."""
    first, second = make.advance_to("publish", count=2)

    def judge(end: Ended) -> str:
        slow, fast = ids(end["slow"]), ids(end["fast"])
        assert sorted([slow, fast]) == [[], [first]]
        assert make.state(second) == "waiting"
        return "slow" if slow else "fast"

    return Staged(
        [claims(make, name="slow", count=2, door=True), claims(make, name="fast", count=2)], judge, waits=False
    )


@scenario
def m5_claim_beside_a_claim_that_ends(make: Factory, level: str) -> Staged:
    """M5: nor when the other has ended meanwhile; the second is had once the first was released, not before."""
    first, second = make.advance_to("publish", count=2)
    claim = claims(make, name="fast")

    def body(hand: Hand) -> list[int]:
        got = claim.verb(hand)
        for c in got:
            hand.services.work.acknowledge([Ack(c, Verb.ADVANCE)], wait=True)
        return ids(got)

    def judge(end: Ended) -> str:
        slow, fast = ids(end["slow"]), end["fast"]
        assert (slow, fast) in (([first], []), ([], [first]), ([second], [first]), ([first], [second]))
        if slow == [second]:
            assert outcomes(make, first)[-1] == "done"
        return f"{len(slow)}, {len(fast)}: {slow == [first]}"

    stops = (COMMIT, gates.promote(CLOCK))
    return Staged([claims(make, name="slow", door=True), Part("fast", body, stops)], judge, waits=False)


@scenario
def m6_requeue_and_claim(make: Factory, level: str) -> Staged:
    """M6: the head comes back while a claim is on its way: the claim has it, or nothing, and never the one behind."""
    first, _ = make.advance_to("publish", count=2)
    make.services.operate.cancel([first], actor=ACTOR)

    def judge(end: Ended) -> str:
        assert end["requeue"][0].to_state == "pending"
        got = ids(end["claim"])
        assert got in ([], [first])
        assert states(make) == ["reserved" if got else "pending", "waiting"]
        return "had" if got else "missed"

    return Staged([operates("requeue", first), claims(make, count=2, door=True)], judge, waits=False)


@long
@scenario
def m7_reap_and_advance(make: Factory, level: str) -> Staged:
    """M7, M8: a lease that is over, and its holder who ends after all: one of them has it, and both learn who."""
    claim = over(make)

    def judge(end: Ended) -> str:
        reaped, said = end["reap"].fates, fate(end["advance"], claim)
        assert (bool(reaped), said) in ((True, "lost"), (False, "written"))
        assert states(make) == (["pending", "waiting"] if reaped else ["done", "pending"])
        assert outcomes(make, claim.job_id)[-1] == ("expired" if reaped else "done")
        return said

    return Staged([reaps(make), says(claim)], judge)


@scenario
def m8_reap_and_renew(make: Factory, level: str) -> Staged:
    """M7, M8: a renewal that commits first keeps its job; one that comes second is told that it is gone."""
    claim = over(make)

    def judge(end: Ended) -> str:
        reaped, told = end["reap"].fates, end["renew"].get(claim.fence, ("gone", False))[0]
        assert bool(reaped) is (told != "renewed")
        assert states(make)[0] == ("pending" if reaped else "reserved")
        return str(told)

    return Staged([reaps(make), renews(claim)], judge, waits=False)


@scenario
def m8_reap_with_an_old_snapshot_and_renew(make: Factory, level: str) -> Staged:
    """M8: the lease is judged when the row is locked, not when it was read."""
    claim = over(make)

    def judge(end: Ended) -> str:
        reaped, told = end["reap"].fates, end["renew"].get(claim.fence, ("gone", False))[0]
        assert bool(reaped) is (told != "renewed")
        return str(told)

    return Staged([reaps(make, stops=((COMMIT, 2),), door=True), renews(claim)], judge, waits=False)


@long
@scenario
def m9_crossed_batches(make: Factory, level: str) -> Staged:
    """M9: two batches over the same lanes, given in opposite orders, take turns and never each other's locks."""
    make.site(stages=WIDE)
    for lane in ("a", "b"):
        make.advance_to("publish", lane=lane, count=2)
    held = {(c.topic.lane, c.topic.position): c for c in make.claim("publish", 9) if c.topic}
    one, other = [held["a", 1], held["b", 1]], [held["b", 2], held["a", 2]]

    def judge(end: Ended) -> str:
        assert all(fate(end["one"], c) == "written" for c in one)
        assert all(fate(end["other"], c) == "written" for c in other)
        assert states(make, "a") == states(make, "b") == ["done", "done"]
        return "done"

    return Staged([says(*one, name="one"), says(*other, name="other")], judge, outcomes=1)


@long
@scenario
def m9_crossed_batch_and_bulk_verb(make: Factory, level: str) -> Staged:
    """M9: a worker's batch and an operator's, the same jobs the other way round."""
    make.site(stages=WIDE)
    for lane in ("a", "b"):
        make.advance_to("publish", lane=lane, count=1)
    held = make.claim("publish", 9)
    both = [c.job_id for c in held]

    def judge(end: Ended) -> str:
        said = {fate(end["advance"], c) for c in held}
        assert said in ({"written"}, {"lost"})
        if said == {"lost"}:
            assert {m.to_state for m in end["cancel"]} == {"cancelled"}
        else:
            assert end.refused("cancel", "is done")
        assert states(make, "a") == states(make, "b") == (["done"] if said == {"written"} else ["cancelled"])
        return said.pop()

    return Staged([says(*held), operates("cancel", *reversed(both), force=True)], judge)


@of_callers
def m10_claim_beside_an_open_plan(make: Factory, level: str) -> Staged:
    """M10: while a caller's plan is open, its lane can be claimed from, and neither waits for the other."""
    (first,) = make.plan()

    def judge(end: Ended) -> str:
        (planned,) = end["plan"]
        assert planned.new
        got = ids(end["claim"])
        assert got in ([first], [first, planned.job_id])
        return str(len(got))

    return Staged([plans(topic(7)), claims(make, "generate", count=9)], judge, waits=False)


@of_callers
def m11_same_slug_and_the_first_regrets(make: Factory, level: str) -> Staged:
    """M11: who waited for a plan that was rolled back plans the topic himself."""
    make.plan()

    def judge(end: Ended) -> str:
        (kept,) = end["kept"]
        assert kept.new
        assert end["regretted"] == []
        assert slugs(make) == ["lane-1", "lane-7"]
        return "kept"

    parts = [plans(topic(7), name="regretted", regrets=True), plans(topic(7), name="kept")]
    return Staged(parts, judge, allows=RESENDS[level], outcomes=1)


@long
@of_callers
def m12_same_slug_and_both_mean_it(make: Factory, level: str) -> Staged:
    """M12: one plans the topic, the other gets the very same; at the stronger levels after 40001."""
    make.plan()

    def judge(end: Ended) -> str:
        (one,), (other,) = end["one"], end["other"]
        assert (one.topic_id, one.job_id) == (other.topic_id, other.job_id)
        assert one.new is not other.new
        assert slugs(make) == ["lane-1", "lane-7"]
        return "one" if one.new else "other"

    return Staged([plans(topic(7), name="one"), plans(topic(7), name="other")], judge, allows=RESENDS[level])


@of_callers
def m12_same_slug_in_a_new_lane(make: Factory, level: str) -> Staged:
    """M12: also where the lane itself is new to both."""
    make.site()

    def judge(end: Ended) -> str:
        (one,), (other,) = end["one"], end["other"]
        assert (one.topic_id, one.job_id) == (other.topic_id, other.job_id)
        assert one.new is not other.new
        assert slugs(make) == ["lane-7"]
        return "one" if one.new else "other"

    return Staged([plans(topic(7), name="one"), plans(topic(7), name="other")], judge, allows=RESENDS[level])


@long
@of_callers
def m12_same_slug_in_two_lanes(make: Factory, level: str) -> Staged:
    """M12: a slug has one lane; who comes second is told of the conflict, and nothing of his is kept."""
    make.plan(lane="a")
    make.plan(lane="b")
    mine, theirs = topic(7, "a", slug="same"), topic(7, "b", slug="same")

    def judge(end: Ended) -> str:
        won = [name for name in ("one", "other") if not end.refused(name)]
        assert len(won) == 1
        assert end[won[0]][0].new
        assert sorted([*slugs(make, "a"), *slugs(make, "b")]) == ["a-1", "b-1", "same"]
        return won[0]

    return Staged([plans(mine, name="one"), plans(theirs, name="other")], judge, allows=RESENDS[level])


@long
@of_callers
def m12_same_slug_at_repeatable_read_and_in_a_file(make: Factory, level: str) -> Staged:
    """M12: a caller at REPEATABLE READ and a run that plans its file: one topic, one pass."""
    make.plan()
    rows = [make.row("lane", 1), make.row("lane", 7, title="Number 7", path="lane-7/", brief={"n": 7})]

    def judge(end: Ended) -> str:
        assert slugs(make) == ["lane-1", "lane-7"]
        (planned,) = end["caller"]
        assert planned.new is (end["file"].new == 0)
        return str(planned.new)

    parts = [plans(topic(7), name="caller", level=LEVELS[1]), plans_file(make, rows, name="file")]
    return Staged(parts, judge, allows=RESENDS[LEVELS[1]])


@long
@of_callers
def m13_positions_and_a_reader(make: Factory, level: str) -> Staged:
    """M13: positions equal the order of commits: whatever a worker sees, nothing before it comes later."""
    make.site()
    make.plan()

    def judge(end: Ended) -> str:
        seen = sorted(c.topic.position for c in end["claim"] if c.topic)
        assert seen == list(range(1, len(seen) + 1))
        assert sorted((end["one"][0].position, end["other"][0].position)) == [2, 3]
        return f"{len(seen)} {end['one'][0].position}"

    stops = (append.add(CLOCK), COMMIT)
    one, other = plans(topic(7), name="one", stops=stops), plans(topic(8), name="other", stops=(COMMIT,))
    parts = [one, other, claims(make, "generate", count=9)]
    return Staged(parts, judge, allows=RESENDS[level])


@long
@scenario
def m14_claim_in_an_old_transaction(make: Factory, level: str) -> Staged:
    """M14: a claim whose transaction began before the job was due again sees it, and its lease is not born old."""
    (first,) = make.advance_to("publish")
    make.services.operate.cancel([first], actor=ACTOR)
    claim = claims(make)

    def judge(end: Ended) -> str:
        got = ids(end["claim"])
        if got:
            job = make.job(first)
            assert job.reserved_at >= job.run_at
            assert job.lease_expires_at - job.reserved_at >= timedelta(seconds=29.9)
        return "had" if got else "missed"

    parts = [
        Part("claim", claim.verb, (claim_sql.claim(CLOCK, claim_sql.Which.ALL), COMMIT)),
        operates("requeue", first),
    ]
    return Staged(parts, judge, waits=False)
