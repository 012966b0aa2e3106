"""Every reason for which something stands still is told by its own code, with the command that helps."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pipeline.build import Services
from pipeline.errors import NotFound
from pipeline.service.acknowledging import Verb
from pipeline.service.explaining import Patience, TopicAnswer
from pipeline.service.planning import StageSpec
from pipeline.service.reasons import ago
from pipeline.states import JobState
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory, finding

PATIENCE = Patience(seen=timedelta(seconds=30), overdue=timedelta(seconds=60))
LEASES = {name: timedelta(seconds=30) for name in ("generate", "validate", "publish")}
WIDE = (StageSpec("generate", None, 5), StageSpec("publish", 2, 5))

Ask = Callable[..., TopicAnswer]


@pytest.fixture
def ask(make: Factory, services: Services) -> Ask:
    """The answer for one topic of the current site."""
    return lambda slug="lane-1": services.explaining.topic(make.site_id, slug, PATIENCE)


@pytest.fixture
def at_work(services: Services) -> None:
    services.roster.see("test-worker", 7, None, LEASES)


def codes(answer: TopicAnswer) -> list[str]:
    return [reason.code for reason in answer.reasons]


def test_the_head_and_its_reason_are_named(make: Factory, ask: Ask) -> None:
    """Who waits hears who is ahead, since when and why that one stands, and what would help."""
    first, second = make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], Verb.FAIL, error_class="fail", error="no such block")

    answer = ask("lane-2")

    assert (answer.job, answer.stage, answer.state) == (second, "publish", "waiting")
    (behind,) = answer.reasons
    assert (behind.code, behind.job, behind.topic) == ("behind", first, "lane-1")
    (why,) = behind.because
    assert (why.code, why.job) == ("failed", first)
    assert why.since is not None
    assert "no such block" in why.text
    assert behind.commands == (f"pipeline jobs requeue {first}", f"pipeline jobs skip {first}")


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.REPAIR, JobState.CANCELLED])
def test_a_halted_topic_names_its_state(make: Factory, ask: Ask, state: JobState) -> None:
    make.in_state(state)

    assert codes(ask()) == [state]


def test_who_cancelled_is_told(make: Factory, ask: Ask, services: Services) -> None:
    job = make.advance_to("publish")[0]
    services.operate.cancel([job], actor="ann", reason="not now")

    assert "cancelled by ann: not now" in ask().reasons[0].text


def test_a_rejected_topic_begins_again_at_the_first_stage(make: Factory, ask: Ask, sql: Sql) -> None:
    job = make.advance_to("validate")[0]
    sql("UPDATE jobs SET max_rounds = 0")
    make.say(make.claim("validate")[0], Verb.REJECT, findings=(finding(),))

    (reason,) = ask().reasons

    assert reason.code == "repair"
    assert f"pipeline jobs requeue {job} --stage generate" in reason.commands


def test_a_skipped_topic_names_who_gave_it_up(make: Factory, ask: Ask, services: Services) -> None:
    services.operate.skip([make.plan()[0]], actor="ann", reason="no such city")

    (reason,) = ask().reasons

    assert reason.code == "skipped"
    assert "by ann: no such city" in reason.text


def test_held_for_a_person(make: Factory, ask: Ask) -> None:
    job = make.advance_to("publish")[0]
    make.say(make.claim("publish")[0], Verb.HOLD, hold="legal looks at it")

    (reason,) = ask().reasons

    assert reason.code == "held"
    assert "legal looks at it" in reason.text
    assert reason.commands == (f"pipeline jobs approve {job}",)


def test_a_retry_names_its_time_and_its_attempts(make: Factory, ask: Ask) -> None:
    """Also to those behind it."""
    make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], Verb.RETRY, delay=timedelta(hours=1), error="busy")

    (reason,) = ask().reasons

    assert reason.code == "retry"
    assert (reason.details["attempts"], reason.details["max_attempts"]) == (1, 5)
    assert 3500 < reason.details["seconds"] <= 3600
    assert "busy" in reason.text
    assert [r.code for r in ask("lane-2").reasons[0].because] == ["retry"]


def test_a_snooze_is_no_retry(make: Factory, ask: Ask) -> None:
    make.advance_to("publish")
    make.say(make.claim("publish")[0], Verb.SNOOZE, delay=timedelta(hours=1))

    assert codes(ask()) == ["snoozed"]


def test_a_schedule_and_a_window(make: Factory, ask: Ask, sql: Sql, at_work: None) -> None:
    make.plan()
    sql("UPDATE jobs SET release_at = now() + interval '1 day', run_at = now() + interval '1 day'")
    assert codes(ask()) == ["release"]
    sql("UPDATE jobs SET release_at = NULL, run_at = now() + interval '1 hour'")
    assert codes(ask()) == ["later"]
    sql("UPDATE jobs SET run_at = now() - interval '1 hour', run_until = now() - interval '1 minute'")

    assert codes(ask()) == ["window-over"]


def test_paused_things_name_who_paused_them(make: Factory, ask: Ask, services: Services, sql: Sql) -> None:
    """The lane, the site and the stage, each with its command."""
    make.plan()
    services.lanes.pause(make.site_id, "lane", actor="ann", reason="prices")
    services.sites.pause(make.site_id, actor="bob", reason="holidays")
    sql("UPDATE stages SET state = 'paused' WHERE name = 'generate'")

    site, lane, stage = ask().reasons

    assert (site.code, lane.code, stage.code) == ("site-paused", "lane-paused", "stage-paused")
    assert (site.details["by"], lane.details["by"]) == ("bob", "ann")
    assert lane.text.endswith("by ann: prices")
    assert lane.commands == ("pipeline lanes resume acme/lane",)
    assert site.commands == ("pipeline sites resume acme",)


def test_a_closed_lane_is_opened(make: Factory, ask: Ask, sql: Sql) -> None:
    make.plan()
    sql("UPDATE lanes SET state = 'closed'")
    sql("UPDATE jobs SET state = 'waiting'")

    (reason,) = ask().reasons

    assert (reason.code, reason.commands) == ("lane-closed", ("pipeline lanes open acme/lane",))
    sql("UPDATE lanes SET state = 'active'")
    sql("UPDATE jobs SET state = 'pending'")


def test_a_retired_stage_moves_it_on(make: Factory, ask: Ask, sql: Sql) -> None:
    make.plan()
    sql("UPDATE stages SET state = 'retired' WHERE name = 'generate'")

    assert codes(ask()) == ["stage-retired"]


def test_who_could_take_it(make: Factory, ask: Ask, services: Services, sql: Sql) -> None:
    """Nobody at all, nobody who knows the stage, the next free one; and one that is due for long is overdue."""
    make.plan()
    assert codes(ask()) == ["no-worker"]
    services.roster.see("w", 7, "other", LEASES)
    assert codes(ask()) == ["no-worker"]
    services.roster.see("w", 7, None, {"polish": timedelta(seconds=30)})
    assert codes(ask()) == ["no-worker-for-stage"]
    services.roster.see("w", 7, "acme", LEASES)
    assert codes(ask()) == ["ready"]
    sql("UPDATE jobs SET run_at = now() - interval '61 seconds'")
    assert codes(ask()) == ["overdue"]
    sql("UPDATE workers SET seen_at = now() - interval '31 seconds'")

    assert codes(ask()) == ["no-worker"]


def test_a_running_job_tells_what_is_left_of_its_lease(make: Factory, ask: Ask, sql: Sql, at_work: None) -> None:
    """More than half over: its heartbeat is late. Over: anybody takes it back."""
    job = make.in_state(JobState.RESERVED)
    (running,) = ask().reasons
    assert running.code == "running"
    assert running.details["worker"] == "test-worker"
    assert 25 < running.details["lease_left_seconds"] <= 30
    sql("UPDATE jobs SET lease_expires_at = now() + interval '14 seconds' WHERE id = :id", id=job)
    assert codes(ask()) == ["heartbeat-late"]
    sql("""UPDATE lanes SET overrides = '{"publish": {"lease_seconds": 20}}'""")
    assert codes(ask()) == ["running"]
    make.expire(job)

    assert codes(ask()) == ["lease-over"]


def test_a_cancel_that_nobody_heeded_yet(make: Factory, ask: Ask, services: Services, at_work: None) -> None:
    job = make.in_state(JobState.RESERVED)
    services.operate.cancel([job], actor="ann")

    assert codes(ask()) == ["running", "cancel-asked"]
    assert "by ann" in ask().reasons[1].text


def test_a_full_gate_names_who_is_in_it(make: Factory, ask: Ask) -> None:
    make.site(stages=WIDE)
    first, second, _ = make.advance_to("publish", count=3)

    (reason,) = ask("lane-3").reasons

    assert reason.code == "gate-full"
    assert reason.details == {"width": 2, "jobs": [first, second]}


def test_a_turn_that_was_not_given_yet(make: Factory, ask: Ask, services: Services, sql: Sql, at_work: None) -> None:
    """As after a plan in a caller's own transaction."""
    job = make.advance_to("publish")[0]
    sql("UPDATE jobs SET state = 'waiting', slot = NULL WHERE id = :id", id=job)

    assert codes(ask()) == ["promotable"]
    assert services.work.heal(make.site_id) == 1


def test_a_head_elsewhere_is_followed_to_its_own_stage(make: Factory, ask: Ask) -> None:
    """The first of a lane may be far from the gate; those behind wait for it all the same."""
    make.plan(count=2)
    for stage in ("generate", "validate"):
        for claim in make.claim(stage, 2):
            keep = claim.topic is not None and claim.topic.slug == "lane-1"
            make.say(claim, Verb.RETRY if keep else Verb.ADVANCE, **({"delay": timedelta(hours=1)} if keep else {}))

    (reason,) = ask("lane-2").reasons

    assert (reason.code, reason.topic) == ("behind", "lane-1")
    assert "pending at generate" in reason.text
    assert [r.code for r in reason.because] == ["retry"]


def test_what_is_over_says_so(make: Factory, ask: Ask, services: Services) -> None:
    """Live since when; the site's own job is told as long as it is to come."""
    make.advance_to("publish", count=2)
    claim = make.claim("publish")[0]
    assert claim.topic is not None
    services.ledger.publish(
        claim, target="files", key="x/", hash="h", look=lambda: None, act=lambda: "", still_ours=lambda: True,
        topic_id=claim.topic.id, revision=claim.revision_id, inputs="",
    )  # fmt: skip
    make.say(claim)
    make.say(make.claim("publish")[0])
    assert codes(ask("lane-2")) == ["done"]

    services.work.touch(make.site_id)

    answer = ask("lane-1")

    assert codes(answer) == ["live", "assembly"]
    assert answer.live[0].path == "x/"
    assert answer.reasons[1].because != ()


def test_unknown_names_are_refused(make: Factory, services: Services) -> None:
    make.plan()

    with pytest.raises(NotFound, match="no topic 'nowhere'"):
        services.explaining.topic(make.site_id, "nowhere", PATIENCE)
    with pytest.raises(NotFound, match="no lane 'nowhere'"):
        services.explaining.lane(make.site_id, "nowhere", PATIENCE)


def test_a_lane_tells_its_gates_and_its_head(make: Factory, services: Services) -> None:
    job = make.advance_to("publish", count=3)[0]
    make.say(make.claim("publish")[0], Verb.FAIL, error="no such block")

    answer = services.explaining.lane(make.site_id, "lane", PATIENCE)

    (gate,) = answer.gates
    assert (gate.stage, gate.width, gate.passed, gate.used, gate.waiting) == ("publish", 1, 0, 0, 2)
    assert sorted(answer.standing) == [("publish", "failed", 1), ("publish", "waiting", 2)]
    (head,) = answer.reasons
    assert (head.code, head.job) == ("head", job)
    assert [r.code for r in head.because] == ["failed"]


def test_an_idle_lane_is_idle(make: Factory, services: Services, sql: Sql) -> None:
    make.in_state(JobState.DONE)

    assert [r.code for r in services.explaining.lane(make.site_id, "lane", PATIENCE).reasons] == ["idle"]


def test_a_site_groups_the_lanes_that_stand(make: Factory, services: Services, at_work: None) -> None:
    """Each by why; a lane that moves is not among them."""
    for lane in ("halted", "paused", "moving"):
        make.plan(lane=lane)
    make.say(next(c for c in make.claim("generate", 3) if c.topic and c.topic.lane == "halted"), Verb.FAIL)
    services.lanes.pause(make.site_id, "paused", actor=ACTOR, reason="x")

    answer = services.explaining.site(make.site_id, PATIENCE)

    assert answer.still == {"failed": 1, "paused": 1}
    assert [(s.lane, s.reasons[0].code) for s in answer.lanes] == [("halted", "head"), ("paused", "lane-paused")]
    assert [hand.name for hand in answer.hands] == ["test-worker"]
    assert answer.counts == {"failed": 1, "reserved": 2}


def test_at_most_twenty_lanes_are_told(make: Factory, services: Services, sql: Sql) -> None:
    """All are counted."""
    for n in range(23):
        make.plan(lane=f"l{n}")
    sql("UPDATE lanes SET state = 'paused'")
    sql("UPDATE jobs SET state = 'waiting'")

    answer = services.explaining.site(make.site_id, PATIENCE)

    assert answer.still == {"paused": 23}
    assert len(answer.lanes) == 20


def symptoms(make: Factory, services: Services) -> dict[str, Any]:
    return {s.name: s for s in services.explaining.symptoms(make.site_id, PATIENCE)}


def test_reserved_without_heartbeat(make: Factory, services: Services, sql: Sql, at_work: None) -> None:
    """Lease over, or more than half over; not one that was renewed in time."""
    over, late, _fine = make.plan(count=3)
    make.claim("generate", 3)
    make.expire(over)
    sql("UPDATE jobs SET lease_expires_at = now() + interval '10 seconds' WHERE id = :id", id=late)

    found = symptoms(make, services)["reserved without heartbeat"]

    assert [(r.job, r.code) for r in found.reasons] == [(over, "lease-over"), (late, "heartbeat-late")]


def test_failing_fast_again_and_again(make: Factory, services: Services, sql: Sql) -> None:
    """Three errors within seconds each; neither two, nor three that took their time."""
    fast, slow, twice = make.plan(count=3)
    for turn in range(3):
        for claim in make.claim("generate", 3):
            verb = Verb.SNOOZE if turn == 2 and claim.job_id == twice else Verb.RETRY
            make.say(claim, verb, error="boom", delay=timedelta(seconds=1 if verb is Verb.SNOOZE else 0))
    sql("UPDATE attempts SET reserved_at = ended_at - interval '6 seconds' WHERE job_id = :id", id=slow)

    found = symptoms(make, services)["failing fast again and again"]

    assert [(r.job, r.details["times"]) for r in found.reasons] == [(fast, 3)]
    assert f"pipeline jobs cancel {fast}" in found.reasons[0].commands


def test_never_leaves_pending(make: Factory, services: Services, sql: Sql) -> None:
    """Due for long and never claimed, by stage, with the reason."""
    make.plan(count=3)
    sql("UPDATE jobs SET run_at = now() - interval '2 minutes' WHERE position < 3")

    found = symptoms(make, services)["never leaves pending"]

    assert found.count == 2
    (reason,) = found.reasons
    assert reason.details == {"stage": "generate", "count": 2}
    assert [r.code for r in reason.because] == ["no-worker"]
    assert reason.commands == ("pipeline run --site acme",)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172800, "2 d")]
)
def test_lengths_of_time_are_short(seconds: float, shown: str) -> None:
    assert ago(seconds) == shown
