"""The claim takes what is due, permitted and its turn, and nothing else."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from pipeline.service.acknowledging import Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from tests.conftest import SCHEMA
from tests.db.conftest import Sql
from tests.factories import ACTOR, LEASE, Factory, draft_of, finding


def test_claim_reserves_with_token_fence_and_lease(make: Factory, sql: Sql) -> None:
    """One batch shares a token; each job has a fence of its own and a lease by the server's clock."""
    ids = make.plan(count=3)

    claims = make.claim("generate", 3, worker="w1", lease=timedelta(seconds=90))

    assert [c.job_id for c in claims] == ids
    assert len({c.token for c in claims}) == 1
    assert len({c.fence for c in claims}) == 3
    assert [c.attempt for c in claims] == [1, 1, 1]
    rows = sql(
        "SELECT reserved_by, lease_expires_at - reserved_at, reserved_at <= clock_timestamp()"
        " FROM jobs WHERE state = 'reserved'"
    )
    assert {row[0] for row in rows} == {"w1"}
    assert all(abs(row[1] - timedelta(seconds=90)) < timedelta(seconds=1) and row[2] for row in rows)


def test_claim_shows_topic_draft_and_findings(make: Factory) -> None:
    """A claim brings all that a stage needs, the findings of the last rejection among it."""
    make.advance_to("validate")
    claim = make.claim("validate")[0]
    assert claim.topic is not None
    assert (claim.topic.slug, claim.topic.brief, claim.begins) == ("lane-1", {"n": 1}, False)
    assert claim.draft is not None
    assert claim.draft.hash == draft_of(claim).hash

    make.say(claim, Verb.REJECT, findings=[finding("too-short")])
    again = make.claim("generate")[0]

    assert [f.rule for f in again.findings] == ["too-short"]
    assert again.topic is not None
    assert (again.topic.round, again.begins) == (1, True)


def test_claim_takes_a_sites_own_job(make: Factory) -> None:
    """An assembly is claimed like any other job, without topic."""
    make.site()
    make.services.work.touch(make.site_id)

    claim = make.claim("assemble")[0]

    assert (claim.topic, claim.draft, claim.gated, claim.begins) == (None, None, False, False)


def test_claim_excludes_what_is_claimed(make: Factory) -> None:
    """No job is given twice."""
    make.plan(count=3)

    batches = [make.claim("generate", 2), make.claim("generate", 2), make.claim("generate", 2)]

    assert [len(b) for b in batches] == [2, 1, 0]
    assert len({c.job_id for b in batches for c in b}) == 3


def test_claim_waits_for_run_at(make: Factory, sql: Sql) -> None:
    """What is due later is not claimed, and its prefix is not shown."""
    make.plan()
    sql("UPDATE jobs SET run_at = clock_timestamp() + interval '1 hour'")

    assert make.claim("generate") == []
    assert make.services.work.prefixes(make.site_id) == []

    sql("UPDATE jobs SET run_at = clock_timestamp() - interval '1 second'")

    assert make.services.work.prefixes(make.site_id) == [(make.site_id, "generate", 2)]
    assert len(make.claim("generate")) == 1


def test_claim_ends_with_the_window(make: Factory, sql: Sql) -> None:
    """A job whose window is over is not started."""
    make.plan()
    sql("UPDATE jobs SET run_until = clock_timestamp() - interval '1 second'")
    assert make.claim("generate") == []

    sql("UPDATE jobs SET run_until = clock_timestamp() + interval '1 hour'")
    assert len(make.claim("generate")) == 1


@pytest.mark.parametrize(
    ("stop", "resume"),
    [
        ("UPDATE lanes SET state = 'paused'", "UPDATE lanes SET state = 'active'"),
        ("UPDATE lanes SET state = 'closed'", "UPDATE lanes SET state = 'active'"),
        ("UPDATE sites SET state = 'paused'", "UPDATE sites SET state = 'active'"),
        ("UPDATE stages SET state = 'paused'", "UPDATE stages SET state = 'active'"),
    ],
    ids=["lane-paused", "lane-closed", "site-paused", "stage-paused"],
)
def test_claim_heeds_a_pause(stop: str, resume: str, make: Factory, sql: Sql) -> None:
    """Nothing starts in a lane, site or stage that stands still; afterwards it does."""
    make.plan()
    sql(stop)
    assert make.claim("generate") == []

    sql(resume)
    assert len(make.claim("generate")) == 1


@pytest.mark.plants_faults
def test_claim_needs_an_attempt_left(make: Factory, sql: Sql) -> None:
    """A job without an attempt left is never started, even if something made it pending."""
    make.plan()
    sql("UPDATE jobs SET attempts = max_attempts")

    assert make.claim("generate") == []


def test_claim_keeps_to_its_shares(make: Factory) -> None:
    """Each prefix gets at most its own share in the one statement; all share its token."""
    make.advance_to("validate", lane="old", count=3)
    make.plan(lane="new", count=3)
    at = [Prefix(make.site_id, "validate", 2, 1, LEASE), Prefix(make.site_id, "generate", 2, 2, timedelta(minutes=5))]

    claims = make.services.work.claim(at, "w")

    assert [c.stage for c in claims] == ["validate", "generate", "generate"]
    assert [c.lease for c in claims] == [LEASE, timedelta(minutes=5), timedelta(minutes=5)]
    assert len({c.token for c in claims}) == 1


def test_claim_goes_by_run_at_then_id(make: Factory, sql: Sql) -> None:
    """The longest due comes first; of those due together, the oldest row."""
    first, second, third = make.plan(count=3)
    sql("UPDATE jobs SET run_at = date_trunc('day', now()) - interval '1 day'")
    sql("UPDATE jobs SET run_at = run_at - interval '1 hour' WHERE id = :id", id=third)

    assert [c.job_id for c in make.claim("generate", 3)] == [third, first, second]


def test_claim_keeps_to_its_priority(make: Factory, sql: Sql) -> None:
    """A prefix is one priority; each is shown, most urgent first."""
    first, second = make.plan(count=2)
    sql("UPDATE jobs SET priority = 0 WHERE id = :id", id=second)

    assert make.services.work.prefixes(make.site_id) == [
        (make.site_id, "generate", 0),
        (make.site_id, "generate", 2),
    ]
    assert [c.job_id for c in make.claim("generate", 9)] == [first]
    urgent = make.services.work.claim([Prefix(make.site_id, "generate", 0, 9, LEASE)], "w")
    assert [c.job_id for c in urgent] == [second]


def test_claim_starts_behind_its_floor(make: Factory, sql: Sql) -> None:
    """What lies at or before the floor is left to the next look from the beginning."""
    first, second, third = make.plan(count=3)
    at = sql("UPDATE jobs SET run_at = date_trunc('day', now()) RETURNING run_at")[0].run_at

    behind = Prefix(make.site_id, "generate", 2, 9, LEASE, floor=(at, second))
    assert [c.job_id for c in make.services.work.claim([behind], "w")] == [third]
    assert [c.job_id for c in make.claim("generate", 9)] == [first, second]


def test_claim_does_not_wait_for_a_locked_row(make: Factory, engine: Engine) -> None:
    """A row that another transaction holds is passed over, not waited for."""
    first, second = make.plan(count=2)
    with engine.connect() as other, other.begin():
        other.execute(text(f"SELECT 1 FROM {SCHEMA}.jobs WHERE id = {first} FOR UPDATE"))

        assert [c.job_id for c in make.claim("generate", 2)] == [second]

    assert [c.job_id for c in make.claim("generate", 2)] == [first]


def test_claim_never_takes_what_waits(make: Factory) -> None:
    """At a limited stage only the one whose turn it is can be claimed, however much is asked for."""
    make.advance_to("publish", count=3)
    make.advance_to("publish", lane="other", count=2)

    assert sorted((c.topic.lane, c.topic.position) for c in make.claim("publish", 99) if c.topic) == [
        ("lane", 1),
        ("other", 1),
    ]


def test_claims_of_sites_are_apart(make: Factory) -> None:
    """A prefix of one site takes nothing of another; without a site all are shown."""
    make.site("acme")
    make.plan(lane="one")
    acme = make.site_id
    make.site("globex", stages=(StageSpec("generate", None, 3),))
    make.plan(lane="two")

    assert make.services.work.prefixes() == [(acme, "generate", 2), (make.site_id, "generate", 2)]
    assert [c.site for c in make.claim("generate", 9)] == ["globex"]


def test_renewal_tells_locked_from_gone(make: Factory, engine: Engine) -> None:
    """A row that is being written just now is to be asked again; a lost one is missing from the answer."""
    make.plan(count=3)
    gone, locked, well = make.claim("generate", 3)
    make.say(gone)
    with engine.connect() as other, other.begin():
        other.execute(text(f"SELECT 1 FROM {SCHEMA}.jobs WHERE id = {locked.job_id} FOR UPDATE"))

        answers = make.services.work.renew([gone, locked, well])

    assert answers == {locked.fence: ("locked", False), well.fence: ("renewed", False)}


def test_renewal_brings_a_cancel(make: Factory) -> None:
    """The holder of a job that is to stop learns so by its next heartbeat, and keeps it until then."""
    job_id = make.plan()[0]
    claim = make.claim("generate")[0]
    make.services.operate.cancel([job_id], actor=ACTOR)

    assert make.services.work.renew([claim]) == {claim.fence: ("renewed", True)}
