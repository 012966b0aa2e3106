"""Public bug reports of comparable systems, tried on ours: unique keys, commits without an answer (O-23 to O-26).

A topic's key is (site, slug), and it has at most one unfinished pass: other keys for de-duplication there are none.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from pipeline.build import Services, services as build_services
from pipeline.db import is_away, make_engine, sqlstate
from pipeline.errors import Refused
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.states import JobState
from pipeline.upkeep import reap
from pipeline.views import Found
from tests.bugs.proxy import Proxy
from tests.bugs.spoilt import SCHEMA
from tests.concurrency.stage import Play
from tests.db.conftest import Sql
from tests.factories import ACTOR, LEASE, Factory, draft_of

ONE = (StageSpec("generate", None, 5),)
AGAIN = (
    "INSERT INTO jobs (site_id, lane_id, topic_id, position, pass, stage, state, max_attempts, run_at)"
    " SELECT site_id, lane_id, topic_id, position, pass + 1, stage, 'pending', 5, now() FROM jobs WHERE id = :id"
)


def test_o23_two_unfinished_passes_of_a_topic_cannot_come_to_be(make: Factory, sql: Sql) -> None:
    """A pass in trouble and a newer one never meet: planning leaves the topic alone while one is unfinished, a finished
    one cannot be brought back, the law itself refuses the pair; and a hundred other jobs run."""
    make.site(stages=ONE)
    rows = [make.row("lane", n) for n in range(1, 103)]
    make.services.planning.plan(make.site_id, rows)
    old, skipped, *others = make.job_ids()
    make.services.operate.cancel([old], actor=ACTOR)
    make.services.operate.skip([skipped], actor=ACTOR)
    changed = [replace(row, input_hash="another") for row in rows[:2]]

    planned = make.services.planning.plan(make.site_id, [*changed, *rows[2:]])

    assert (planned.busy, planned.changed) == (1, 1)  # the skipped one has a new pass; the cancelled one waits for it
    with pytest.raises(Refused, match=f"job {skipped} is skipped"):
        make.services.operate.requeue([skipped], actor=ACTOR)
    with pytest.raises(IntegrityError) as refused:
        sql(AGAIN, id=old)
    assert sqlstate(refused.value) == "23505"
    assert "uq_jobs_topic_open" in str(refused.value)
    make.services.operate.requeue([old], actor=ACTOR)
    claims = make.claim("generate", 200)
    assert {c.job_id for c in claims} >= {old, *others}
    assert len(claims) == 102


def test_o24_a_winner_that_rolls_back_leaves_the_topic_to_another(play: Play, make: Factory, sql: Sql) -> None:
    """Five plan the same topic at once; the first holds it and is then ended before its commit: exactly one topic is
    there, with one pass, and each of the four who were told so finds it."""
    make.site()
    row = make.row("lane", 1)
    winner, *losers = (play.actor(f"planner-{n}") for n in range(5))
    plans: Callable[[Services], int] = lambda s: s.planning.plan(make.site_id, [row]).new  # noqa: E731
    stop = winner.before_commit()
    first = winner.does(plans)
    stop.reached()
    others = [loser.does(plans) for loser in losers]
    play.wait_until_blocked(losers[0], winner)

    sql("SELECT pg_terminate_backend(:pid)", pid=winner.pid)
    stop.go()

    assert is_away(first.error())
    assert sorted(other.result() for other in others) == [0, 0, 0, 1]
    ((topic,),) = sql("SELECT id FROM topics WHERE slug = :slug", slug=row.slug)
    assert sql("SELECT topic_id, count(*) FROM jobs GROUP BY 1") == [(topic, 1)]


UNRULY = (
    "CREATE FUNCTION pipeline.unruly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " RAISE EXCEPTION 'duplicate key value' USING ERRCODE = '23505'; END $$",
    "CREATE TRIGGER unruly BEFORE UPDATE ON pipeline.jobs FOR EACH ROW"
    " WHEN (OLD.position = 1 AND OLD.state = 'reserved' AND NEW.state <> 'reserved')"
    " EXECUTE FUNCTION pipeline.unruly()",
)


@pytest.fixture
def unruly(engine: Engine) -> Iterator[None]:
    """Whoever takes the job at the first position back is refused, as by a unique index."""
    with engine.begin() as connection:
        for statement in UNRULY:
            connection.execute(text(statement))
    yield
    with engine.begin() as connection:
        connection.execute(text("DROP TRIGGER unruly ON pipeline.jobs"))
        connection.execute(text("DROP FUNCTION pipeline.unruly()"))


@pytest.mark.usefixtures("unruly")
def test_o25_a_job_that_cannot_be_taken_back_stops_no_other(
    make: Factory, caplog: pytest.LogCaptureFixture, sql: Sql
) -> None:
    """The taking back of one job breaks a unique index (23505): fifty others are taken back all the same, the one stays
    as it is and is told of, and upkeep goes on."""
    make.site(stages=ONE)
    first, *others = make.plan(count=51)
    claims = make.claim("generate", 51)
    make.expire(*(c.job_id for c in claims))
    with pytest.raises(DBAPIError) as refused:
        make.services.work.reap([e for e in make.services.work.expired() if e.job_id == first])
    assert sqlstate(refused.value) == "23505"

    reap(make.services)

    assert {make.state(i) for i in others} == {JobState.PENDING}
    assert make.state(first) is JobState.RESERVED
    assert f"job {first}" in caplog.text
    sql("DROP TRIGGER unruly ON jobs")
    reap(make.services)
    assert make.state(first) is JobState.PENDING
    sql(UNRULY[1])


@pytest.fixture
def far(proxy: Proxy, make: Factory) -> Iterator[Services]:
    """The services as a client has them whose answers may be lost."""
    engine = make_engine(proxy.url, schema=SCHEMA, connections=1, name="far")
    engine.connect().close()  # the driver commits something of its own on the first one
    yield build_services(engine)
    engine.dispose()


def lose_the_answer(proxy: Proxy, act: Callable[[], object]) -> None:
    """Do something whose COMMIT is carried out and never answered."""
    proxy.swallow()
    with pytest.raises(DBAPIError) as lost:
        act()
    proxy.swallowed()
    assert is_away(lost.value)


def test_o26_a_plan_whose_answer_is_lost_may_be_repeated(proxy: Proxy, far: Services, make: Factory, sql: Sql) -> None:
    """Planned again, every topic is found as it is: nothing twice, nothing is called a conflict."""
    make.site()
    rows = [make.row("lane", n) for n in (1, 2, 3)]
    lose_the_answer(proxy, lambda: far.planning.plan(make.site_id, rows))
    before = sql("SELECT id, topic_id, position FROM jobs ORDER BY id")

    again = far.planning.plan(make.site_id, rows)

    assert len(before) == 3
    assert (again.new, again.unchanged) == (0, 3)
    assert sql("SELECT id, topic_id, position FROM jobs ORDER BY id") == before


def test_o26_a_claim_whose_answer_is_lost_ends_with_its_lease(
    proxy: Proxy, far: Services, make: Factory, sql: Sql
) -> None:
    """Nobody knows of it, so nobody renews it: it is nobody else's until its lease is over, and then it is tried
    again."""
    (job_id,) = make.plan()
    wanted = [Prefix(make.site_id, "generate", 2, 1, LEASE)]
    lose_the_answer(proxy, lambda: far.work.claim(wanted, "far/1/1"))

    assert make.state(job_id) is JobState.RESERVED
    assert far.work.claim(wanted, "far/1/1") == []
    make.expire(job_id)
    reap(make.services)
    (again,) = far.work.claim(wanted, "far/1/1")

    assert (again.job_id, again.attempt) == (job_id, 2)
    assert sql("SELECT outcome, charged FROM attempts") == [("expired", True)]


@pytest.mark.parametrize("verb", [Verb.ADVANCE, Verb.RETRY, Verb.FAIL, Verb.RELEASE])
def test_o26_an_end_whose_answer_is_lost_is_said_again(
    proxy: Proxy, far: Services, make: Factory, sql: Sql, verb: Verb
) -> None:
    """The same said once more is found to be written: one attempt, one revision, no second step."""
    (job_id,) = make.plan()
    (claim,) = make.claim("generate")
    ack = Ack(claim, verb, draft=draft_of(claim) if verb is Verb.ADVANCE else None)
    lose_the_answer(proxy, lambda: far.work.acknowledge([ack], wait=True))
    before = make.job(job_id)

    settled = far.work.acknowledge([ack], wait=True)

    assert settled.fates == {claim.fence: Fate.WRITTEN}
    assert make.job(job_id) == before
    assert sql("SELECT count(*) FROM attempts")[0][0] == 1
    assert sql("SELECT count(*) FROM revisions")[0][0] == (verb is Verb.ADVANCE)


def test_o26_a_confirmation_whose_answer_is_lost_is_not_acted_upon_again(
    proxy: Proxy, far: Services, make: Factory, sql: Sql
) -> None:
    """What was published and confirmed is found there by looking, by the same holder and by the next."""
    make.advance_to("publish")
    (claim,) = make.claim("publish")
    acts: list[str] = []

    def publish() -> bool:
        def act() -> str:
            acts.append("x")
            proxy.swallow()  # that of the confirmation, which comes next
            return "1"

        return far.ledger.publish(
            claim, target="files", key="a/", hash="h", act=act, still_ours=lambda: True, revision=None, inputs="",
            look=lambda: Found("h", "1") if acts else None, topic_id=make.job(claim.job_id).topic_id,
        )  # fmt: skip

    with pytest.raises(DBAPIError) as lost:
        publish()
    proxy.swallowed()
    assert is_away(lost.value)

    assert publish() is False
    assert acts == ["x"]
    assert sql("SELECT live_path, intent_token FROM publications") == [("a/", None)]
