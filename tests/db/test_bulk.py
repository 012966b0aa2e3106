"""An operator's verbs by filter, with force, and as a dry run."""

import pytest

from pipeline.errors import NotFound, Refused
from pipeline.service import operate
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.operate import Filter
from pipeline.states import JobState
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory

S = JobState


def failures(make: Factory) -> dict[str, int]:
    """Heads of three lanes, failed: two at publish, of different classes, one at validate."""
    found = {}
    for lane, stage, why in (("a", "publish", "Timeout"), ("b", "publish", "Broken"), ("c", "validate", "Timeout")):
        (found[lane],) = make.advance_to(stage, lane=lane)
        make.say(make.claim(stage)[0], Verb.FAIL, error_class=why)
    return found


@pytest.mark.parametrize(
    ("wanted", "lanes"),
    [
        ({}, "abc"),
        ({"lane": "b"}, "b"),
        ({"stage": "publish"}, "ab"),
        ({"error_class": "Timeout"}, "ac"),
        ({"states": frozenset({S.FAILED}), "stage": "publish", "error_class": "Timeout"}, "a"),
        ({"states": frozenset({S.REPAIR})}, ""),
    ],
)
def test_a_filter_moves_what_it_names(make: Factory, wanted: dict[str, object], lanes: str) -> None:
    found = failures(make)

    moved = make.services.operate.requeue(Filter(make.site_id, **wanted), actor=ACTOR)  # type: ignore[arg-type]

    assert sorted(m.job_id for m in moved) == [found[lane] for lane in lanes]
    assert {lane for lane, job_id in found.items() if make.state(job_id) is S.PENDING} == set(lanes)


def test_a_filter_stays_in_its_site(make: Factory) -> None:
    here = failures(make)
    make.site("other")

    moved = make.services.operate.skip(Filter(make.site_id), actor=ACTOR)

    assert (moved, {make.state(job_id) for job_id in here.values()}) == ([], {S.FAILED})


def test_a_filter_for_a_lane_that_is_not_there_is_refused(make: Factory) -> None:
    failures(make)

    with pytest.raises(NotFound, match="no lane 'd' in this site"):
        make.services.operate.requeue(Filter(make.site_id, lane="d"), actor=ACTOR)


def test_many_are_moved_in_batches(make: Factory, monkeypatch: pytest.MonkeyPatch, sql: Sql) -> None:
    """Each is noted, and all of a long lane end up in their places."""
    monkeypatch.setattr(operate, "AT_ONCE", 3)
    ids = make.plan(count=10)
    make.services.operate.cancel(Filter(make.site_id), actor=ACTOR)

    moved = make.services.operate.requeue(Filter(make.site_id), actor=ACTOR, reason="all of them")

    assert [m.job_id for m in moved] == ids
    assert sql("SELECT verb, count(*) FROM events GROUP BY verb ORDER BY verb") == [("cancel", 10), ("requeue", 10)]


@pytest.mark.parametrize("verb", ["cancel", "requeue", "skip"])
def test_a_dry_run_judges_all_and_keeps_nothing(make: Factory, sql: Sql, verb: str) -> None:
    """It answers what the verb would, by its own statements."""
    found = failures(make)
    make.plan(lane="d")
    before = sql("SELECT * FROM jobs ORDER BY id"), sql("SELECT * FROM gates ORDER BY id")

    would = getattr(make.services.operate, verb)(Filter(make.site_id), actor=ACTOR, dry_run=True)

    assert (sql("SELECT * FROM jobs ORDER BY id"), sql("SELECT * FROM gates ORDER BY id")) == before
    assert sql("SELECT count(*) FROM events") == [(0,)]
    assert would == getattr(make.services.operate, verb)(Filter(make.site_id), actor=ACTOR)
    assert set(found.values()) <= {m.job_id for m in would} or verb == "cancel"


def test_a_forced_cancel_takes_the_reservation(make: Factory, sql: Sql) -> None:
    """Its holder writes nothing any more, whatever he says, and the attempt is on record."""
    (job_id,) = make.advance_to("publish")
    (claim,) = make.claim("publish")

    (moved,) = make.services.operate.cancel([job_id], actor=ACTOR, force=True)

    assert (moved.from_state, moved.to_state) == (S.RESERVED, S.CANCELLED)
    for verb in Verb:
        assert make.services.work.acknowledge([Ack(claim, verb)], wait=True).fates == {claim.fence: Fate.LOST}
    assert make.services.work.renew([claim]) == {}
    assert sql("SELECT outcome, error_class, fence FROM attempts WHERE stage = 'publish'") == [
        ("cancelled", "forced", claim.fence)
    ]
    assert make.state(job_id) is S.CANCELLED


def test_what_was_taken_by_force_may_be_live_and_is_looked_at(make: Factory, sql: Sql) -> None:
    """An assembly finds out what its holder had published."""
    make.advance_to("publish")
    make.claim("publish")

    make.services.operate.cancel(Filter(make.site_id), actor=ACTOR, force=True)

    assert sql("SELECT state FROM jobs WHERE stage = 'assemble'") == [("pending",)]


def test_a_forced_skip_removes_a_running_topic_and_its_lane_goes_on(make: Factory, sql: Sql) -> None:
    """Cancelled and skipped in one transaction: nobody ever sees the lane halted by it."""
    first, second = make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")
    with pytest.raises(Refused, match=r"is reserved; .* or take it from its holder: --force"):
        make.services.operate.skip([first], actor=ACTOR)

    (moved,) = make.services.operate.skip([first], actor=ACTOR, force=True)

    assert (moved.from_state, moved.to_state) == (S.RESERVED, S.SKIPPED)
    assert (make.state(first), make.state(second)) == (S.SKIPPED, S.PENDING)
    assert make.say(claim).fates == {claim.fence: Fate.LOST}
    assert sql("SELECT verb, from_state, to_state FROM events ORDER BY id") == [
        ("cancel", "reserved", "cancelled"),
        ("skip", "cancelled", "skipped"),
    ]


def test_a_forced_skip_answers_in_the_order_of_numbers(make: Factory) -> None:
    """Those that it takes from their holders first are told of at their place."""
    first, second = make.advance_to("validate", count=2)
    make.services.operate.cancel([first], actor=ACTOR)
    make.claim("validate")

    moved = make.services.operate.skip([second, first], actor=ACTOR, force=True)

    assert [(m.job_id, m.from_state) for m in moved] == [(first, S.CANCELLED), (second, S.RESERVED)]


def test_what_is_approved_runs_again_and_knows_it(make: Factory) -> None:
    """It has its place and its slot again; the yes is for the draft that was looked at, and for this stage."""
    (job_id,) = make.advance_to("publish")
    (claim,) = make.claim("publish")
    assert not claim.approved
    make.say(claim, Verb.HOLD, hold="please look")

    (moved,) = make.services.operate.approve([job_id], actor=ACTOR)

    assert (moved.from_state, moved.to_state) == (S.WAITING, S.PENDING)
    (claim,) = make.claim("publish")
    assert claim.approved
    make.say(claim, Verb.RETRY)
    assert make.claim("publish")[0].approved


def test_what_waits_for_its_turn_is_not_approved(make: Factory) -> None:
    job_id = make.in_state(S.WAITING)

    with pytest.raises(Refused, match=f"job {job_id} waits for its turn, not for a person"):
        make.services.operate.approve([job_id], actor=ACTOR)


def test_attempts_may_be_granted_while_it_runs(make: Factory) -> None:
    """What was its last attempt is not, and a retry goes on."""
    make.plan()
    (claim,) = make.claim("generate")
    for _ in range(4):
        make.say(claim, Verb.RETRY)
        (claim,) = make.claim("generate")
    assert (claim.attempt, claim.max_attempts) == (5, 5)

    make.services.operate.grant([claim.job_id], attempts=2, actor=ACTOR)

    make.say(claim, Verb.RETRY)
    assert make.state(claim.job_id) is S.PENDING
    assert make.job(claim.job_id).max_attempts == 7


def test_what_failed_is_not_granted_attempts_but_requeued(make: Factory) -> None:
    job_id = make.in_state(S.FAILED)

    with pytest.raises(Refused, match=f"put it back to work: pipeline jobs requeue {job_id}"):
        make.services.operate.grant([job_id], attempts=2, actor=ACTOR)
