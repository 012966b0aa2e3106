"""What an attempt costs, and that it is recorded once, whatever is said of it."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.base import MAX_ERROR_BYTES
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.sql.claim import Which
from pipeline.states import JobState as S
from pipeline.views import Draft, Finding
from tests.db.conftest import Sql
from tests.factories import ACTOR, LEASE, Factory, draft_of, finding

# verb: (outcome on record, charged, attempts of the job afterwards)
COSTS = {
    Verb.RETRY: ("retry", True, 1),
    Verb.SNOOZE: ("snoozed", False, 0),
    Verb.HOLD: ("held", False, 0),
    Verb.FAIL: ("failed", True, 1),
    Verb.REPAIR: ("repair", True, 1),
    Verb.RELEASE: ("released", False, 0),
    Verb.REJECT: ("rejected", True, 0),  # a new round begins
    Verb.ADVANCE: ("done", True, 0),  # a new stage begins
}


@pytest.mark.parametrize("verb", list(Verb))
def test_each_end_of_a_reservation_is_recorded_once(verb: Verb, make: Factory, sql: Sql) -> None:
    """One attempt row, with the fence, token and worker of the reservation; charged as the verb says."""
    make.plan()
    claim = make.claim("generate", worker="w1")[0]

    make.say(claim, verb, hold="h" if verb is Verb.HOLD else None, metrics={"tokens": 7})

    rows = sql(
        "SELECT fence, token, worker, stage, round, outcome, charged, metrics, ended_at >= reserved_at FROM attempts"
    )
    outcome, charged, left = COSTS[verb]
    assert rows == [(claim.fence, claim.token, "w1", "generate", 0, outcome, charged, {"tokens": 7}, True)]
    assert make.job(claim.job_id).attempts == left


def test_a_retry_without_an_attempt_left_is_failed(make: Factory, sql: Sql) -> None:
    """So many attempts and no more; each is on record, the last as failed."""
    make.site(stages=(StageSpec("publish", 1, 3),))
    job_id = make.plan()[0]

    for _ in range(3):
        assert make.state(job_id) is S.PENDING
        make.say(make.claim("publish")[0], Verb.RETRY, error_class="Flaky", error="again")

    assert (make.state(job_id), make.job(job_id).error_class) == (S.FAILED, "Flaky")
    assert [row.outcome for row in sql("SELECT outcome FROM attempts ORDER BY fence")] == ["retry", "retry", "failed"]


def test_a_retry_is_due_after_its_delay(make: Factory, sql: Sql) -> None:
    """The delay runs on the server's clock; a release time that lies later wins."""
    job_id = make.plan()[0]
    make.say(make.claim("generate")[0], Verb.RETRY, delay=timedelta(minutes=10))
    assert make.claim("generate") == []
    assert sql("SELECT retry_at - clock_timestamp() BETWEEN interval '9 min' AND interval '10 min' FROM jobs")[0][0]

    sql("UPDATE jobs SET run_at = now(), release_at = date_trunc('day', now()) + interval '9 days'")
    make.say(make.claim("generate")[0], Verb.RETRY, delay=timedelta(minutes=10))
    assert make.job(job_id).run_at == make.job(job_id).release_at


def test_a_retry_for_ever_away_is_stored(make: Factory) -> None:
    """No delay, however large, overflows the server's clock."""
    job_id = make.plan()[0]

    make.say(make.claim("generate")[0], Verb.RETRY, delay=timedelta.max)

    assert make.state(job_id) is S.PENDING


def test_snoozing_costs_nothing_however_often(make: Factory) -> None:
    """Snoozes are counted by themselves, and never use up attempts."""
    make.site(stages=(StageSpec("publish", 1, 2),))
    job_id = make.plan()[0]

    for _ in range(5):
        make.say(make.claim("publish")[0], Verb.SNOOZE)

    job = make.job(job_id)
    assert (job.state, job.attempts, job.snoozed) == ("pending", 0, 5)


def test_a_release_gives_back_so_many_attempts_and_no_more(make: Factory, sql: Sql) -> None:
    """A worker that always stops gives its attempt back ``max_attempts`` times; then they count, and end in repair."""
    make.site(stages=(StageSpec("publish", 1, 2),))
    job_id = make.plan()[0]

    seen = []
    while make.state(job_id) is S.PENDING:
        make.say(make.claim("publish")[0], Verb.RELEASE)
        seen.append((make.job(job_id).attempts, make.job(job_id).given_back))

    assert seen == [(0, 1), (0, 2), (1, 2), (2, 2)]
    assert make.state(job_id) is S.REPAIR
    assert [r.charged for r in sql("SELECT charged FROM attempts ORDER BY fence")] == [False, False, True, True]


def test_a_worker_that_dies_on_the_last_attempt_leaves_repair(make: Factory, sql: Sql) -> None:
    """A job that kills its workers is tried so often, then waits for a person, with the reason."""
    make.site(stages=(StageSpec("publish", 1, 2),))
    job_id = make.plan()[0]

    for _ in range(2):
        assert make.state(job_id) is S.PENDING
        make.claim("publish", worker="mayfly")
        make.expire(job_id)
        make.services.work.reap(make.services.work.expired())

    assert (make.state(job_id), make.job(job_id).error_class) == (S.REPAIR, "expired")
    rows = sql("SELECT outcome, charged, error FROM attempts")
    assert [(r.outcome, r.charged) for r in rows] == [("expired", True)] * 2
    assert all("mayfly" in r.error for r in rows)


def test_attempts_begin_anew_at_each_stage_and_round(make: Factory) -> None:
    """What one stage used up is not held against the next."""
    make.site(stages=(StageSpec("generate", None, 4), StageSpec("publish", 1, 2)))
    job_id = make.plan()[0]
    make.say(make.claim("generate")[0], Verb.RETRY)

    make.say(make.claim("generate")[0])
    assert (make.job(job_id).attempts, make.job(job_id).max_attempts) == (0, 2)
    make.say(make.claim("publish")[0], Verb.REJECT, findings=[finding()])
    assert (make.job(job_id).attempts, make.job(job_id).max_attempts, make.job(job_id).round) == (0, 4, 1)


def test_a_grant_is_counted_from_what_was_used(make: Factory) -> None:
    """Requeue gives ``grant`` attempts more, and the ones before stay on record."""
    make.site(stages=(StageSpec("publish", 1, 1),))
    job_id = make.plan()[0]
    make.say(make.claim("publish")[0], Verb.RETRY)
    assert make.state(job_id) is S.FAILED

    make.services.operate.requeue([job_id], actor=ACTOR, grant=2)

    assert (make.job(job_id).attempts, make.job(job_id).max_attempts) == (1, 3)
    for _ in range(2):
        make.say(make.claim("publish")[0], Verb.RETRY)
    assert make.state(job_id) is S.FAILED


def test_rejections_end_in_repair_and_then_need_a_stage(make: Factory, sql: Sql) -> None:
    """After the last round the draft waits for a person, who must say where it begins again."""
    job_id = make.plan()[0]
    sql("UPDATE jobs SET max_rounds = 1")
    for n in (1, 2):
        claim = make.claim("generate")[0]
        make.say(claim, draft=draft_of(claim))
        make.say(make.claim("validate")[0], Verb.REJECT, findings=[finding()])
        assert make.state(job_id) is (S.PENDING if n == 1 else S.REPAIR)

    with pytest.raises(Exception, match="rejected in its last round"):
        make.services.operate.requeue([job_id], actor=ACTOR)
    make.services.operate.requeue([job_id], actor=ACTOR, stage="generate")

    assert (make.job(job_id).state, make.job(job_id).stage, make.job(job_id).round) == ("pending", "generate", 2)


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def draft(body: str = "b", **fields: Any) -> Mapping[str, Any]:
    return {"draft": Draft("t", "d", body, fields)}


BAD: dict[str, Callable[[], Mapping[str, Any]]] = {
    "nul": lambda: draft("a\x00b"),
    "lone-surrogate": lambda: draft("a\ud800b"),
    "nan": lambda: draft(score=float("nan")),
    "no-json": lambda: draft(made=datetime(2026, 1, 1)),
    "too-large": lambda: draft("x" * (16 * 1024 * 1024 + 1)),
    "too-deep": lambda: draft(tree=deep(100_000)),
    "metrics-no-json": lambda: {"draft": Draft("t", "d", "b"), "metrics": {"n": object()}},
    "metrics-nul": lambda: {"draft": Draft("t", "d", "b"), "metrics": {"n": "\x00"}},
    "metrics-nan": lambda: {"draft": Draft("t", "d", "b"), "metrics": {"n": float("inf")}},
    "finding-line": lambda: {"draft": Draft("t", "d", "b"), "findings": [Finding("r", "m", line=2**40)]},
}


@pytest.mark.parametrize("what", BAD)
def test_one_bad_row_does_not_fail_its_batch(what: str, make: Factory, sql: Sql) -> None:
    """The rest of the batch is written; what cannot be stored goes to repair alone, with its reason."""
    ids = make.plan(count=5)
    claims = make.claim("generate", 5)
    acks = [Ack(c, Verb.ADVANCE, **(BAD[what]() if c.job_id == ids[2] else {"draft": draft_of(c)})) for c in claims]

    settled = make.services.work.acknowledge(acks)

    assert set(settled.fates.values()) == {Fate.WRITTEN}
    assert [make.state(i) for i in ids] == [S.PENDING, S.PENDING, S.REPAIR, S.PENDING, S.PENDING]
    assert sql("SELECT count(*) FROM revisions")[0][0] == 4
    assert make.job(ids[2]).error_class
    row = sql("SELECT outcome, error FROM attempts WHERE job_id = :id", id=ids[2])[0]
    assert row.outcome == "repair"
    assert row.error


def test_a_failure_with_metrics_that_cannot_be_stored_is_recorded(make: Factory) -> None:
    """Recording a failure never fails: what cannot be kept of it is left out."""
    job_id = make.plan()[0]

    make.say(make.claim("generate")[0], Verb.REPAIR, error="why", metrics={"n": object()})

    assert make.state(job_id) is S.REPAIR


@pytest.mark.parametrize("verb", list(Verb))
def test_an_acknowledgement_may_be_resent(verb: Verb, make: Factory, sql: Sql) -> None:
    """Its answer was lost on the way: said again, it is found to be written, and nothing is written twice."""
    make.plan()
    claim = make.claim("generate")[0]
    make.say(claim, verb)
    before = sql("SELECT * FROM jobs")

    again = make.say(claim, verb)

    assert again.fates == {claim.fence: Fate.WRITTEN}
    assert again.outcomes == {}
    assert sql("SELECT * FROM jobs") == before
    assert sql("SELECT count(*) FROM attempts")[0][0] == 1


@pytest.mark.parametrize(
    ("said", "resent"),
    # Of a retry it is on record whether an attempt was left: it may read like a failure.
    [(a, b) for a in Verb for b in Verb if a is not b and {a, b} != {Verb.RETRY, Verb.FAIL}],
)
def test_another_outcome_under_the_same_token_is_refused(said: Verb, resent: Verb, make: Factory, sql: Sql) -> None:
    """A reservation ends once: who then says something else is told that it lost."""
    make.plan()
    claim = make.claim("generate")[0]
    make.say(claim, said)
    before = sql("SELECT * FROM jobs")

    assert make.say(claim, resent).fates == {claim.fence: Fate.LOST}
    assert sql("SELECT * FROM jobs") == before


def test_a_resent_outcome_after_the_job_went_on_is_still_written(make: Factory) -> None:
    """The answer is found by the fence, wherever the job stands by then."""
    make.plan()
    claim = make.claim("generate")[0]
    make.say(claim)
    make.claim("validate")

    assert make.say(claim).fates == {claim.fence: Fate.WRITTEN}


def test_a_resent_outcome_that_a_cancel_overruled_is_written(make: Factory) -> None:
    """A cancel that was asked for wins over the outcome; said again, it is found to be settled."""
    job_id = make.plan()[0]
    claim = make.claim("generate")[0]
    make.services.operate.cancel([job_id], actor=ACTOR)
    assert make.say(claim).outcomes == {claim.fence: "cancelled"}

    assert make.say(claim).fates == {claim.fence: Fate.WRITTEN}


def test_a_job_that_was_reaped_into_cancelled_is_lost(make: Factory) -> None:
    """A late outcome of a job that was to be cancelled was not written, though the job ended as cancelled."""
    job_id = make.plan()[0]
    claim = make.claim("generate")[0]
    make.services.operate.cancel([job_id], actor=ACTOR)
    make.expire(job_id)
    make.services.work.reap(make.services.work.expired())
    assert make.state(job_id) is S.CANCELLED

    assert make.say(claim).fates == {claim.fence: Fate.LOST}


@pytest.mark.parametrize(
    "error",
    ["x" * 10 * 1024 * 1024, "é" * 5 * 1024 * 1024, "a\x00b", "a\ud800b", "\x00" * 100_000],
    ids=["10-mib", "10-mib-of-two-bytes", "nul", "surrogate", "many-nuls"],
)
def test_an_error_is_stored_clean_and_cut(error: str, make: Factory, sql: Sql) -> None:
    """Recording a failure never fails: no NUL, no lone surrogate, no more than so many bytes."""
    make.plan()

    make.say(make.claim("generate")[0], Verb.FAIL, error=error, error_class=error)

    row = sql("SELECT error, error_class, octet_length(error) AS bytes FROM attempts")[0]
    assert row.bytes <= MAX_ERROR_BYTES
    assert len(row.error) > 1
    assert "\x00" not in row.error
    assert row.error_class


def test_what_an_attempt_brought_is_kept_with_it(make: Factory, sql: Sql) -> None:
    """Revision, findings and the step to the next stage are one write."""
    job_id = make.plan()[0]
    claim = make.claim("generate")[0]

    make.say(claim, draft=draft_of(claim), findings=[Finding("r", "m", line=3, column=4)])

    assert sql("SELECT fence, number, origin FROM revisions") == [(claim.fence, 1, "generated")]
    assert sql("SELECT fence, rule, line, column_number FROM findings") == [(claim.fence, "r", 3, 4)]
    assert make.job(job_id).stage == "validate"


def test_what_a_lost_attempt_brought_is_dropped(make: Factory, sql: Sql) -> None:
    """A draft that came too late leaves no trace."""
    job_id = make.plan()[0]
    claim = make.claim("generate")[0]
    make.expire(job_id)
    make.services.work.reap(make.services.work.expired())

    make.say(claim, draft=draft_of(claim), findings=[finding()])

    assert sql("SELECT 1 FROM revisions UNION ALL SELECT 1 FROM findings") == []


@pytest.mark.parametrize(("permitted", "losses"), [(5, 2), (3, 2), (2, 1)])
def test_what_was_lost_again_and_again_runs_alone(make: Factory, permitted: int, losses: int) -> None:
    """Before its last attempt in any case; an end that its worker survives makes it one of many again."""
    make.site(stages=(StageSpec("generate", None, permitted),))
    (job_id,) = make.plan()
    for n in range(losses):
        assert make.services.work.loners() == []
        make.claim("generate")
        make.expire(job_id)
        make.services.work.reap(make.services.work.expired())
        assert make.job(job_id).alone == (n + 1 == losses)
    prefix = Prefix(make.site_id, "generate", 2, 8, LEASE)

    together = make.services.work.claim([prefix], "full hands", Which.TOGETHER)

    assert (together, make.services.work.loners()) == ([], [(make.site_id, "generate", 2)])
    (claim,) = make.services.work.claim([prefix], "empty hands", Which.ALONE)
    make.say(claim, Verb.SNOOZE)
    assert not make.job(job_id).alone
