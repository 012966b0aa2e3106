"""Public bug reports of comparable systems, tried on ours: jobs done twice, stale writes (O-09 to O-15; O-08 is proved
elsewhere).
"""

import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine, event, text

from pipeline.db import sqlstate
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.planning import StageSpec
from pipeline.states import JobState
from pipeline.upkeep import reap
from pipeline.views import Claim
from tests.bugs.proxy import Proxy
from tests.db.conftest import Sql
from tests.factories import Factory, draft_of
from tests.processes.conftest import Facts, process_of
from tests.processes.project import Project, until

ONE = (StageSpec("generate", None, 5),)
STRICT = (StageSpec("publish", 1, 50),)
ELSEWHERE = "another-machine/17/1"


@pytest.mark.slow
def test_o09_heartbeats_keep_up_on_a_busy_database(project: Project, make: Factory, facts: Facts, sql: Sql) -> None:
    """Fifty jobs that take several leases, and a database kept busy by strangers: each is run once, and no lease was
    ever less than half full."""
    project.site()
    project.stages("""
        class Generate(Stage):
            lease = timedelta(seconds=4)

            def run(self, topic, ctx):
                sign(f"began-{topic.slug}")
                signed("go")
                return Done(draft=draft(topic))

        PIPELINE = (Generate,)
    """)
    make.site(stages=ONE)
    ids = make.plan(count=50)
    workers = [project.worker(CONCURRENCY="25"), project.worker(CONCURRENCY="25")]
    project.until_signs("began-", 50)
    over = threading.Event()

    def disturb(_: int) -> int:
        rounds = 0
        while not over.is_set():
            sql("SELECT count(*), pg_sleep(0.05) FROM jobs a, jobs b")
            rounds += 1
        return rounds

    left: list[float] = []
    with ThreadPoolExecutor(3) as pool:
        strangers = [pool.submit(disturb, n) for n in range(3)]
        end = time.monotonic() + 14  # more than three leases
        try:
            while time.monotonic() < end:
                found = sql(
                    "SELECT min(extract(epoch FROM lease_expires_at - clock_timestamp())) FROM jobs"
                    " WHERE state = 'reserved'"
                )
                left.append(float(found[0][0]))
        finally:
            over.set()
        rounds = sum(s.result() for s in strangers)

    assert rounds > 100
    assert facts.holders() == {w.pid for w in workers}
    assert min(left) > 2, min(left)
    project.sign("go")
    facts.until("done", 50)
    assert all(facts.outcomes(i) == ["done"] for i in ids)
    assert [w.stop() for w in workers] == [0, 0]


def test_o10_a_place_is_given_back_once(make: Factory, sql: Sql) -> None:
    """Twenty times a worker sleeps past its lease and another takes its lane's head over: whatever the sleeper says, at
    whatever moment, the lane has one place, and what is on record is what a recount gives."""
    make.site(stages=STRICT)
    ids = make.plan(count=21)
    sleepers: list[Claim] = []
    for n in range(20):
        sleeper = make.claim("publish", 5, worker=ELSEWHERE)
        assert [c.job_id for c in sleeper] == [ids[n]]
        make.expire(ids[n])
        reap(make.services)
        sleepers += sleeper
        if n % 2:  # before the other one has it
            assert make.say(sleeper[0]).fates == {sleeper[0].fence: Fate.LOST}
        (owner,) = make.claim("publish", 5)
        for verb in (Verb.ADVANCE, Verb.RELEASE):
            told = make.services.work.acknowledge([Ack(s, verb) for s in sleepers], wait=True)
            assert set(told.fates.values()) == {Fate.LOST}
        assert make.services.work.renew(sleepers) == {}
        held = sql("SELECT id, slot FROM jobs WHERE slot IS NOT NULL")
        assert [tuple(row) for row in held] == [(ids[n], 1)]
        assert make.say(owner).fates == {owner.fence: Fate.WRITTEN}

    assert sql("SELECT passed FROM gates")[0][0] == 20
    assert [make.state(i) for i in ids] == [JobState.DONE] * 20 + [JobState.PENDING]
    assert sql("SELECT outcome, count(*) FROM attempts GROUP BY 1 ORDER BY 1") == [("done", 20), ("expired", 20)]


@pytest.mark.slow
def test_o10_a_worker_that_is_stopped_again_and_again(project: Project, make: Factory, facts: Facts) -> None:
    """The holder of a lane's head is stopped for longer than its lease, six times, and resumes when another has it:
    no two stages of the lane ever overlap with both believing that they hold it, and each page is done once."""
    project.site()
    project.stages("""
        class Publish(Stage):
            width = 1
            target = "files"
            lease = timedelta(seconds=1)
            retry = Backoff(attempts=50, first=timedelta(0), cap=timedelta(0))

            def run(self, topic, ctx):
                sign(f"began-{topic.position}-{ctx.attempt}-{PID}")
                if not signed(f"go-{topic.position}-{PID}", ctx):
                    return Done()

                def act():
                    sign(f"wrote-{topic.position}-{PID}")
                    return "remote"

                key = f"{topic.slug}.html"
                ctx.ledger.publish("files", key, "hash", lambda: None, act, topic_id=topic.id)
                return Done()

        PIPELINE = (Publish,)
    """)
    make.site(stages=STRICT)
    ids = make.plan(count=6)
    workers = {w.pid: w for w in (project.worker(CONCURRENCY="1"), project.worker(CONCURRENCY="1"))}
    for position, job_id in enumerate(ids, start=1):
        (sign,) = project.until_signs(f"began-{position}-1-", 1)
        sleeper = workers[int(sign)]
        sleeper.send(signal.SIGSTOP)
        (sign,) = project.until_signs(f"began-{position}-2-", 1)
        owner = workers[int(sign)]
        assert owner is not sleeper
        assert facts.outcomes(job_id) == ["expired"]  # the fault has bitten
        project.sign(f"go-{position}-{sleeper.pid}")
        sleeper.send(signal.SIGCONT)
        until(lambda s=sleeper, i=job_id: s.said(f"lost job {i} "), "the sleeper knows")  # type: ignore[misc]
        assert make.services.lanes.list(make.site_id)[0].head.state == "reserved"  # type: ignore[union-attr]
        project.sign(f"go-{position}-{owner.pid}")

    facts.until("done", 6)

    assert all(facts.outcomes(i) == ["expired", "done"] for i in ids)
    assert len(project.signs("wrote-")) == 6
    for position, job_id in enumerate(ids, start=1):
        done = facts.attempts(job_id)[-1]
        assert project.signs(f"wrote-{position}-") == [str(process_of(done.worker))]
    assert [w.stop() for w in workers.values()] == [0, 0]


def test_o11_a_late_failure_leaves_the_new_owner_untouched(make: Factory, sql: Sql) -> None:
    """A stage raises after its lease ran out and its job was given on: every column stays as the new owner's claim
    wrote it."""
    (job_id,) = make.plan()
    late = make.claim("generate")[0]
    make.expire(job_id)
    reap(make.services)
    owner = make.claim("generate")[0]
    before = sql("SELECT * FROM jobs"), sql("SELECT * FROM attempts"), sql("SELECT * FROM events")

    settled = make.say(late, Verb.RETRY, delay=timedelta(seconds=1), error_class="RuntimeError", error="too late")

    assert settled.fates == {late.fence: Fate.LOST}
    assert (sql("SELECT * FROM jobs"), sql("SELECT * FROM attempts"), sql("SELECT * FROM events")) == before
    assert (make.job(job_id).token, make.job(job_id).fence) == (owner.token, owner.fence)


@pytest.mark.slow
def test_o12_a_run_that_nobody_renews_is_told_to_stop(project: Project, make: Factory, facts: Facts) -> None:
    """Nothing of a worker reaches the database any more: by its own clock it tells the stage before the lease is over,
    and so before anybody else can have begun; what the stage then returns is dropped."""
    project.site()
    project.stages("""
        class Generate(Stage):
            lease = timedelta(seconds=2)

            def run(self, topic, ctx):
                sign(f"began-{PID}")
                told = not signed(f"go-{PID}", ctx)
                (SIGNS / f"told-{PID}").write_text(repr(time.time()) if told else "")
                return Done(draft=draft(topic, str(PID)))

        PIPELINE = (Generate,)
    """)
    make.site(stages=ONE)
    with Proxy(project._url) as proxy:
        direct, project._url = project._url, proxy.url
        cut_off = project.worker(CONCURRENCY="1")
        (job_id,) = make.plan()
        project.until_signs("began-", 1)
        project._url = direct
        proxy.hold()
        other = project.worker(CONCURRENCY="1")
        project.until_signs("began-", 2)
        told_at = float(until((project.root / f"signs/told-{cut_off.pid}").read_text, "the stage was told"))
        project.sign(f"go-{other.pid}")
        facts.until("done", 1)

        assert proxy.stuck.is_set()
        first, second = facts.attempts(job_id)
        assert (first.outcome, second.outcome) == ("expired", "done")
        assert (process_of(first.worker), process_of(second.worker)) == (cut_off.pid, other.pid)
        overlap = told_at - second.reserved_at.timestamp()
        print(f"told {-overlap:.2f} s before the next one began")
        assert overlap < 0
        proxy.go_on()
        until(lambda: cut_off.said(f"lost job {job_id} "), "it says so")
        assert len(facts.attempts(job_id)) == 2
        assert cut_off.stop() == 0
    assert other.stop() == 0


def test_o14_a_heartbeat_that_arrives_last_changes_nothing(make: Factory, engine: Engine, sql: Sql) -> None:
    """Five hundred jobs are acknowledged while heartbeats for all of them go on and on: all are done, at one attempt,
    without an error; and a beat that comes after the end finds nothing to renew."""
    make.site(stages=ONE)
    ids = make.plan(count=500)
    claims = make.claim("generate", 500)
    refused: list[str | None] = []
    event.listen(engine, "handle_error", lambda context: refused.append(sqlstate(context.sqlalchemy_exception)))
    over = threading.Event()

    def beat() -> tuple[int, set[str]]:
        beats, kinds = 0, set()
        while not over.is_set():
            kinds |= {kind for kind, _ in make.services.work.renew(claims).values()}
            beats += 1
        return beats, kinds

    with ThreadPoolExecutor(1) as pool:
        beating = pool.submit(beat)
        try:
            for start in range(0, 500, 25):
                acks = [Ack(c, Verb.ADVANCE, draft=draft_of(c)) for c in claims[start : start + 25]]
                assert set(make.services.work.acknowledge(acks).fates.values()) == {Fate.WRITTEN}
        finally:
            over.set()
        beats, kinds = beating.result()
    late = make.services.work.renew(claims)

    assert (late, refused) == ({}, [])
    assert beats >= 2
    assert kinds <= {"renewed", "locked"}
    assert sql("SELECT state, count(*) FROM jobs WHERE topic_id IS NOT NULL GROUP BY 1") == [("done", 500)]
    assert sql("SELECT outcome, error, count(*) FROM attempts GROUP BY 1, 2") == [("done", None, 500)]
    assert len(ids) == 500


@pytest.mark.slow
def test_o15_a_page_that_two_publish_is_published_once(
    project: Project, make: Factory, facts: Facts, engine: Engine, sql: Sql
) -> None:
    """Two processes share two hundred pages, and each page is told again when it is out: one row, one change at the
    target; who comes second finds it published and is done."""
    project.site()
    project.stages("""
        class Publish(Stage):
            target = "files"

            def run(self, topic, ctx):
                file = SIGNS / f"page-{topic.slug}"

                def look():
                    return Found(file.read_text(), "1") if file.exists() else None

                def act():
                    sign(f"act-{topic.slug}-{PID}-{topic.number}")
                    file.write_text("hash")
                    return "1"

                changed = ctx.ledger.publish("files", topic.path, "hash", look, act, topic_id=topic.id)
                return Done(metrics={"changed": changed})

        PIPELINE = (Publish,)
    """)
    make.site(stages=(StageSpec("publish", None, 5),))
    rows = [make.row("lane", n) for n in range(1, 201)]
    make.services.planning.plan(make.site_id, rows)
    workers = [project.worker(), project.worker()]
    facts.until("done", 200)
    with engine.begin() as connection:
        connection.execute(text("UPDATE pipeline.topics SET input_hash = 'as if it had changed'"))

    again = make.services.planning.plan(make.site_id, rows)
    facts.until("done", 400)

    assert again.changed == 200
    acts = project.signs("act-")
    assert sorted(re.sub(r"-\d+-1$", "", name) for name in acts) == sorted(row.slug for row in rows)
    assert sql("SELECT count(*), count(DISTINCT topic_id) FROM publications WHERE live_path IS NOT NULL") == [
        (200, 200)
    ]
    told = sql("SELECT metrics ->> 'changed', count(*) FROM attempts WHERE stage = 'publish' GROUP BY 1 ORDER BY 1")
    assert told == [("false", 200), ("true", 200)]
    assert {process_of(a.worker) for a in facts.attempts()} == {w.pid for w in workers}
    assert [w.stop() for w in workers] == [0, 0]
