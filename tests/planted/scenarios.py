"""Scenarios: each sets a trap for one kind of fault, and ends well on the real product.

They raise ``Caught`` when a property or an invariant does not hold. What the server's own constraints refuse comes as
IntegrityError, which is a wall of the product too.
"""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from sqlalchemy.exc import DBAPIError, IntegrityError

from pipeline.access import Ledger
from pipeline.content.files import FilesTarget
from pipeline.errors import LeaseLost, Refused
from pipeline.holding import Holding, now
from pipeline.project.site import Site
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.sql import plan
from pipeline.states import JobState as S
from pipeline.views import Claim, Found
from tests.concurrency.stage import Missed
from tests.factories import ACTOR, LEASE, draft_of
from tests.planted.stand import Stand, must

Scenario = Callable[[Stand], None]

HASH = "ab" * 32


def a_late_answer(stand: Stand) -> None:
    """A worker whose job was given to another cannot end it."""
    (job_id,) = stand.make.plan()
    (late,) = stand.make.claim("generate")
    stand.take_back(job_id)
    (owner,) = stand.make.claim("generate", worker="another")

    settled = stand.make.say(late, draft=draft_of(late))

    must(settled.fates[late.fence] is Fate.LOST, f"the late answer was {settled.fates[late.fence]}")
    must(stand.make.job(job_id).token == owner.token, "the owner's reservation is gone")
    stand.whole()


def two_claims_at_once(stand: Stand) -> None:
    """Two workers that claim at the same moment never get the same job."""
    stand.make.plan(count=2)
    prefix = Prefix(stand.make.site_id, "generate", 2, 2, LEASE)
    one, other = stand.play.actor("first"), stand.play.actor("second")
    stop = one.before_commit()
    ahead = one.does(lambda s: s.work.claim([prefix], "one"))
    stop.reached()
    behind = other.does(lambda s: s.work.claim([prefix], "other"))
    stand.behind(behind, other, one)
    stop.go()

    claims = [*ahead.result(), *behind.result()]

    must(len({c.job_id for c in claims}) == len(claims) == 2, f"{len(claims)} claims on 2 jobs")
    stand.whole()


def a_renewal_before_the_reaper(stand: Stand) -> None:
    """A lease that is renewed after the reaper has read it is not taken."""
    (job_id,) = stand.make.plan()
    (claim,) = stand.make.claim("generate")
    stand.make.expire(job_id)
    found = stand.over()
    stand.services.work.renew([claim])

    settled = stand.services.work.reap(found)

    must(not settled.fates, "a renewed lease was taken")
    must(stand.make.job(job_id).token == claim.token, "the reservation is gone")
    stand.whole()


def a_reaper_that_waited(stand: Stand) -> None:
    """A job that is finished while the reaper is at it stays finished."""
    (job_id,) = stand.make.advance_to("publish")
    (claim,) = stand.make.claim("publish")
    stand.make.expire(job_id)
    found = stand.over()
    stand.make.say(claim)

    stand.services.work.reap(found)

    stand.is_in(job_id, S.DONE)
    stand.whole()


def a_head_is_requeued(stand: Stand) -> None:
    """A head that comes back to its gate has its turn at once."""
    first, second = stand.make.advance_to("publish", count=2)
    stand.make.say(stand.make.claim("publish")[0], Verb.FAIL)

    stand.services.operate.requeue([first], actor=ACTOR)

    stand.is_in(first, S.PENDING)
    stand.is_in(second, S.WAITING)
    stand.whole()


def both_sides_of_a_gate(stand: Stand) -> None:
    """One leaves a strict gate while the next comes to it: the lane goes on."""
    stand.make.advance_to("validate", count=2)
    near, far = stand.make.claim("validate", 2)
    stand.make.say(near)
    (leaver,) = stand.make.claim("publish")
    one, other = stand.play.actor("first"), stand.play.actor("second")
    stop = one.before_commit()
    ahead = one.does(lambda s: s.work.acknowledge([Ack(leaver, Verb.ADVANCE)], wait=True))
    stop.reached()
    behind = other.does(lambda s: s.work.acknowledge([Ack(far, Verb.ADVANCE)], wait=True))
    stand.behind(behind, other, one)
    stop.go()
    ahead.result()
    behind.result()

    stand.whole()
    stand.is_in(far.job_id, S.PENDING)


def a_lower_position_comes_late(stand: Stand) -> None:
    """Nobody passes a strict gate before one who is still at an earlier stage, whoever stands between them."""
    first, second, third = stand.make.plan(count=3)
    stand.services.operate.skip([second], actor=ACTOR)
    stand.whole()
    for stage in ("generate", "validate"):
        claims = {c.job_id: c for c in stand.make.claim(stage, 3)}
        stand.make.say(claims[third], draft=draft_of(claims[third]) if stage == "generate" else None)

    stand.is_in(third, S.WAITING)
    stand.is_in(first, S.RESERVED)
    stand.whole()


def a_job_that_kills_its_workers(stand: Stand) -> None:
    """A job whose worker dies each time uses up its attempts, and then waits for a person."""
    (job_id,) = stand.make.plan()
    tries = 0
    while tries < 10 and stand.make.claim("generate"):
        tries += 1
        stand.take_back(job_id)

    must(tries == 5, f"it was tried {tries} times; 5 are permitted")
    stand.is_in(job_id, S.REPAIR)
    stand.whole()


def a_lease_of_the_servers_clock(stand: Stand) -> None:
    """A lease runs from the server's clock, whatever the worker's says."""
    stand.make.plan()
    (claim,) = stand.make.claim("generate")

    over = stand.over()

    must(not over, "a lease of 30 s was over at once")
    left = stand.make.job(claim.job_id).lease_expires_at - stand.make.job(claim.job_id).reserved_at
    must(abs(left - LEASE) < timedelta(seconds=1), f"the lease lasts {left}")
    stand.whole()


def a_stale_heartbeat(stand: Stand) -> None:
    """A heartbeat for a reservation that is another's by now is told so, and lengthens nothing."""
    (job_id,) = stand.make.plan()
    (late,) = stand.make.claim("generate")
    stand.take_back(job_id)
    stand.make.claim("generate", worker="another", lease=timedelta(seconds=5))
    before = stand.make.job(job_id).lease_expires_at

    answer = stand.services.work.renew([late])

    must(late.fence not in answer, "the late worker was told that it still holds the job")
    must(stand.make.job(job_id).lease_expires_at == before, "another's lease was lengthened")
    stand.whole()


def a_session_that_ends_before_its_commit(stand: Stand) -> None:
    """Outcome, attempt and revision are stored together or not at all."""
    (job_id,) = stand.make.plan()
    (claim,) = stand.make.claim("generate")
    actor = stand.play.actor("first")
    stop = actor.before_commit()
    act = actor.does(lambda s: s.work.acknowledge([Ack(claim, Verb.ADVANCE, draft=draft_of(claim))], wait=True))
    stop.reached()
    stand.end_session(actor)
    stop.go()
    if not isinstance(act.error(), DBAPIError):
        raise Missed("the session did not end")

    stand.whole()
    stand.is_in(job_id, S.RESERVED)
    again = stand.make.say(claim, draft=draft_of(claim))
    must(again.fates[claim.fence] is Fate.WRITTEN, "what was not stored could not be said again")
    stand.whole()


def an_acknowledgement_without_answer(stand: Stand) -> None:
    """A worker that says again what was stored, for it got no answer, is told that it was."""
    (job_id,) = stand.make.plan()
    (claim,) = stand.make.claim("generate")
    ack = Ack(claim, Verb.ADVANCE, draft=draft_of(claim))
    with stand.losing(1, committed=True) as cut:
        try:
            cut.work.acknowledge([ack], wait=True)
        except DBAPIError:
            pass
        else:
            raise Missed("the answer was not lost")

    settled = stand.services.work.acknowledge([ack], wait=True)

    must(settled.fates[claim.fence] is Fate.WRITTEN, f"it was told {settled.fates[claim.fence]}")
    must(stand.make.job(job_id).stage == "validate", "the job did not move by one stage")
    stand.whole()


def an_operator_without_answer(stand: Stand) -> None:
    """Who gets no answer to a cancel is never told that it was refused, for it was done."""
    (job_id,) = stand.make.plan()
    refused = False
    with stand.losing(1, committed=True) as cut:
        try:
            cut.operate.cancel([job_id], actor=ACTOR)
        except Refused:
            refused = True
        except DBAPIError:
            pass

    stand.is_in(job_id, S.CANCELLED)
    must(not refused, "a cancel that was done was answered with a refusal")
    stand.whole()


def _publish(stand: Stand, claim: Claim, world: list[str], ledger: Ledger | None = None) -> bool:
    def look() -> Found | None:
        return Found(HASH, "tag") if world else None

    def act() -> str:
        world.append(HASH)
        return "tag"

    assert claim.topic is not None
    key = f"{claim.topic.path}index.html"
    if ledger is not None:
        return ledger.publish("files", key, HASH, look, act, topic_id=claim.topic.id, revision=claim.revision_id)
    return stand.services.ledger.publish(
        claim, target="files", key=key, hash=HASH, look=look, act=act, still_ours=lambda: True,
        topic_id=claim.topic.id, revision=claim.revision_id, inputs="",
    )  # fmt: skip


def a_confirmation_that_is_lost(stand: Stand) -> None:
    """What was published, and not confirmed, is not published a second time."""
    (job_id,) = stand.make.advance_to("publish")
    (claim,) = stand.make.claim("publish")
    world: list[str] = []
    with stand.losing(2, committed=False) as cut:
        try:
            _publish(Stand(stand.url, stand.engine, cut, stand.make, stand.play), claim, world)
        except DBAPIError:
            pass
        else:
            raise Missed("the confirmation was not lost")
    stand.take_back(job_id)
    (again,) = stand.make.claim("publish")

    _publish(stand, again, world)

    must(len(world) == 1, f"it was published {len(world)} times")
    stand.make.say(again)
    stand.whole()


def a_late_confirmation(stand: Stand) -> None:
    """A worker that lost its reservation while it acted confirms nothing."""
    (job_id,) = stand.make.advance_to("publish")
    (claim,) = stand.make.claim("publish")
    assert claim.topic is not None

    def act() -> str:
        stand.take_back(job_id)
        return "tag"

    lost = False
    try:
        stand.services.ledger.publish(
            claim, target="files", key="late/index.html", hash=HASH, look=lambda: None, act=act,
            still_ours=lambda: True, topic_id=claim.topic.id, revision=claim.revision_id, inputs="",
        )  # fmt: skip
    except LeaseLost:
        lost = True

    must(lost, "a late worker could confirm")
    live = list(stand.services.reading.live(stand.make.site_id, "files"))
    must(not live, "what a late worker did is called live")
    stand.whole()


def a_worker_stopped_past_its_lease(stand: Stand) -> None:
    """A process that slept past its lease touches nothing outside, even if nobody has taken its job yet."""
    stand.make.advance_to("publish")
    (claim,) = stand.make.claim("publish")
    site = Site(slug="acme", folder=Path("."), output=Path("."), name="acme", base_url="https://example.com")
    holding = Holding(claim, now() - 1, site)
    world: list[str] = []
    lost = False
    try:
        _publish(stand, claim, world, Ledger(stand.services, holding))
    except LeaseLost:
        lost = True

    must(not world, "it wrote to the target after its lease was over")
    must(lost and not holding.ours(), "it was not told")
    stand.whole()


def a_reader_has_the_page_open(stand: Stand) -> None:
    """A reader sees the old bytes or the new, never a part; a write that is called off leaves the old ones."""
    with tempfile.TemporaryDirectory() as folder:
        target = FilesTarget(Path(folder))
        target.write("page/index.html", b"old" * 1000)
        with (Path(folder) / "page/index.html").open("rb", buffering=0) as reader:
            start = reader.read(3)
            target.write("page/index.html", b"NEW!" * 100)
            seen = start + reader.read()

        must(seen == b"old" * 1000, "a reader saw a part of one page and a part of another")


def two_jobs_in_one_slot(stand: Stand) -> None:
    """The server itself keeps two jobs from one slot of a gate."""
    first, second = stand.make.advance_to("publish", count=2)
    refused = False
    try:
        stand.by_hand("UPDATE {jobs} SET state = 'pending', slot = 1, run_at = now() WHERE id = :id", id=second)
    except IntegrityError:
        refused = True

    stand.whole()
    must(refused, "the server let it pass")
    stand.is_in(first, S.PENDING)


def two_plans_of_one_file(stand: Stand) -> None:
    """Two runs that plan the same topics at once both succeed, and each topic is there once."""
    stand.make.plan(lane="lane", count=1)
    site_id = stand.make.site_id
    rows = [stand.make.row("lane", n) for n in (1, 2, 3)]
    one, other = stand.play.actor("first"), stand.play.actor("second")
    stop = one.after(plan.known_topics())
    ahead = one.does(lambda s: s.planning.plan(site_id, rows))
    stop.reached()
    behind = other.does(lambda s: s.planning.plan(site_id, rows))
    stand.behind(behind, other, one)
    stop.go()

    must(sorted((ahead.result().new, behind.result().new)) == [0, 2], "both made new topics")
    stand.whole()


def a_running_job_is_skipped(stand: Stand) -> None:
    """What somebody works on cannot be given up for good."""
    (job_id,) = stand.make.plan()
    (claim,) = stand.make.claim("generate")
    refused = False
    try:
        stand.services.operate.skip([job_id], actor=ACTOR)
    except Refused:
        refused = True

    must(refused, "it was skipped under its worker's hands")
    must(stand.make.job(job_id).token == claim.token, "the reservation is gone")
    stand.whole()


def a_running_topic_is_moved(stand: Stand) -> None:
    """A topic that somebody works on keeps its place."""
    first, _ = stand.make.plan(count=2)
    stand.make.claim("generate")
    refused = False
    try:
        stand.services.places.move(stand.make.site_id, "lane-1", after="lane-2", actor=ACTOR)
    except Refused:
        refused = True

    stand.whole()
    must(refused, "it was moved under its worker's hands")
    must(stand.make.job(first).position == 1, "it stands elsewhere")


def a_running_job_is_cancelled(stand: Stand) -> None:
    """A cancel that is asked for while a stage runs is carried out when it ends."""
    (job_id,) = stand.make.advance_to("validate")
    (claim,) = stand.make.claim("validate")
    stand.services.operate.cancel([job_id], actor=ACTOR)
    stand.make.say(claim)

    stand.is_in(job_id, S.CANCELLED)
    stand.whole()


def a_heartbeat_beside_a_locked_row(stand: Stand) -> None:
    """One row that somebody writes delays the renewal of no other."""
    stand.make.plan(count=2)
    near, far = stand.make.claim("generate", 2)
    one, other = stand.play.actor("first"), stand.play.actor("second")
    stop = one.before_commit()
    ahead = one.does(lambda s: s.work.acknowledge([Ack(near, Verb.ADVANCE, draft=draft_of(near))]))
    stop.reached()
    beat = other.does(lambda s: s.work.renew([near, far]))
    stand.behind(beat, other, one)
    in_time = beat.over
    stop.go()
    ahead.result()

    must(in_time, "the heartbeat waited")
    must(beat.result()[far.fence][0] == "renewed", "the free row was not renewed")
    stand.whole()


def a_retry_before_its_time(stand: Stand) -> None:
    """What is to be tried again in an hour is not claimed now."""
    stand.make.plan()
    (claim,) = stand.make.claim("generate")
    stand.make.say(claim, Verb.RETRY, delay=timedelta(hours=1))

    claims = stand.make.claim("generate")

    must(not claims, "it was claimed an hour early")
    stand.whole()


def a_retry_in_a_paused_lane(stand: Stand) -> None:
    """Nothing of a paused lane is claimed, not even what a worker wrote back after the pause."""
    stand.make.plan()
    (claim,) = stand.make.claim("generate")
    stand.services.lanes.pause(stand.make.site_id, "lane", actor=ACTOR)
    stand.make.say(claim, Verb.RETRY)

    claims = stand.make.claim("generate")

    must(not claims, "a job of a paused lane was claimed")
    stand.whole()


def a_live_topic_comes_again(stand: Stand) -> None:
    """A second pass over a live topic waits for no turn at a gate that it had passed."""
    (first,) = stand.make.advance_to("publish")
    stand.make.say(stand.make.claim("publish")[0])
    stand.services.planning.plan(stand.make.site_id, [stand.make.row("lane", 1, input_hash="another")])
    (second,) = stand.make.job_ids()
    for stage in ("generate", "validate"):
        (claim,) = stand.make.claim(stage)
        stand.make.say(claim, draft=draft_of(claim) if stage == "generate" else None)

    must(second != first, "no second pass was planned")
    stand.whole()
    stand.is_in(second, S.PENDING)


def the_last_attempt_is_retried(stand: Stand) -> None:
    """A job that fails again and again is failed when no attempt is left."""
    (job_id,) = stand.make.plan()
    tries = 0
    while tries < 10 and (claims := stand.make.claim("generate")):
        tries += 1
        stand.make.say(claims[0], Verb.RETRY)

    stand.is_in(job_id, S.FAILED)
    must(tries == 5, f"it was tried {tries} times; 5 are permitted")
    stand.whole()


def a_cancelled_head(stand: Stand) -> None:
    """A cancelled head halts its lane; it is not crossed."""
    first, second = stand.make.advance_to("publish", count=2)

    stand.services.operate.cancel([first], actor=ACTOR)

    stand.is_in(second, S.WAITING)
    stand.whole()


def a_held_head(stand: Stand) -> None:
    """A head that waits for a person is not promoted by what happens at its gate."""
    stand.make.site(stages=(StageSpec("publish", 1, 5), StageSpec("check", None, 5)))
    first, second = stand.make.plan(count=2)
    stand.make.say(stand.make.claim("publish")[0], Verb.HOLD, hold="look at it")
    stand.services.operate.skip([second], actor=ACTOR)

    stand.is_in(first, S.WAITING)
    stand.whole()


def a_swapped_token(stand: Stand) -> None:
    """The token of one job is useless for another."""
    stand.make.plan(count=2)
    (one,) = stand.make.claim("generate")
    (other,) = stand.make.claim("generate")
    swapped = Claim(**{name: getattr(one, name) for name in Claim.__slots__} | {"token": UUID(str(other.token))})

    settled = stand.make.say(swapped, draft=draft_of(one))

    must(settled.fates[one.fence] is Fate.LOST, "another job's token was taken")
    must(not stand.settled(one.job_id), "the job was ended")
    stand.whole()


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        a_late_answer,
        a_swapped_token,
        two_claims_at_once,
        a_renewal_before_the_reaper,
        a_reaper_that_waited,
        a_head_is_requeued,
        both_sides_of_a_gate,
        a_lower_position_comes_late,
        a_job_that_kills_its_workers,
        a_lease_of_the_servers_clock,
        a_stale_heartbeat,
        a_heartbeat_beside_a_locked_row,
        a_session_that_ends_before_its_commit,
        an_acknowledgement_without_answer,
        an_operator_without_answer,
        a_confirmation_that_is_lost,
        a_late_confirmation,
        a_worker_stopped_past_its_lease,
        a_reader_has_the_page_open,
        two_jobs_in_one_slot,
        two_plans_of_one_file,
        a_running_job_is_skipped,
        a_running_topic_is_moved,
        a_running_job_is_cancelled,
        a_retry_before_its_time,
        a_retry_in_a_paused_lane,
        a_live_topic_comes_again,
        the_last_attempt_is_retried,
        a_cancelled_head,
        a_held_head,
    )
}
