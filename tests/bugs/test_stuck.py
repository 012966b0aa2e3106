"""Public bug reports of comparable systems, tried on ours: jobs that stand still for ever (O-01 to O-07)."""

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError

from pipeline.build import services as build_services
from pipeline.db import is_away, make_engine, sqlstate
from pipeline.errors import PipelineError
from pipeline.heartbeat import Heartbeat
from pipeline.project.loading import Stages
from pipeline.service.acknowledging import Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.upkeep import reap
from pipeline.worker import Worker
from tests.bugs.proxy import Proxy
from tests.bugs.spoilt import SCHEMA, Spoilt, spoil
from tests.db.conftest import Sql
from tests.factories import LEASE, Factory
from tests.processes.conftest import Facts
from tests.processes.project import Project, until
from tests.servers.scratch import Scratch

ONE = (StageSpec("generate", None, 5),)
STRICT = (StageSpec("publish", 1, 5),)
ELSEWHERE = "another-machine/17/1"  # a holder whose end nobody here can see

QUICK = """
    class Generate(Stage):
        def run(self, topic, ctx):
            return Done(draft=draft(topic))

    PIPELINE = (Generate,)
"""


def test_o01_a_worker_of_the_same_name_keeps_nobodys_job(make: Factory, sql: Sql) -> None:
    """A worker is killed, and another takes its name: what the dead one held is reaped by its own lease, whatever the
    namesake renews and whoever is registered."""
    lost, other = make.plan(count=2)
    dead = make.claim("generate", worker=ELSEWHERE)[0]
    namesake = make.claim("generate", worker=ELSEWHERE)[0]
    assert (dead.job_id, namesake.job_id) == (lost, other)
    make.expire(lost, other)
    assert make.services.work.renew([namesake]) == {namesake.fence: ("renewed", False)}
    sql("DELETE FROM workers")

    reap(make.services)

    (again,) = make.claim("generate", 5, worker=ELSEWHERE)
    assert (again.job_id, again.attempt) == (lost, 2)
    assert again.token not in (dead.token, namesake.token)
    assert make.state(other) is JobState.RESERVED


@pytest.mark.parametrize("width", [1, 2])
def test_o02_a_full_gate_does_not_keep_out_its_own_recovery(make: Factory, width: int) -> None:
    """All places of a lane are held by a dead worker: its jobs are taken back into those very places and run again."""
    make.site(stages=(StageSpec("publish", width, 5),))
    ids = make.plan(count=width + 1)
    dead = make.claim("publish", width, worker=ELSEWHERE)
    slots = [make.job(c.job_id).slot for c in dead]
    assert make.claim("publish", 5) == []  # full
    make.expire(*(c.job_id for c in dead))

    reap(make.services)

    again = make.claim("publish", 5)
    assert [c.job_id for c in again] == ids[:width]
    assert [c.attempt for c in again] == [2] * width
    assert [make.job(c.job_id).slot for c in again] == slots


def test_o03_a_loss_at_the_last_attempt_is_shown_and_can_be_moved_on(
    project: Project, make: Factory, facts: Facts, engine: Engine, sql: Sql
) -> None:
    """The worker's sessions are ended and it is killed at the only attempt: the job waits for a person, its lane is
    halted with it as its head, nothing is held, and requeue or skip moves the lane on."""
    project.site()
    project.stages("""
        class Publish(Stage):
            width = 1

            def run(self, topic, ctx):
                sign("began")
                signed("go")
                return Done()

        PIPELINE = (Publish,)
    """)
    make.site(stages=(StageSpec("publish", 1, 1),))
    first, second = make.plan(count=2)
    worker = project.worker()
    project.until_signs("began", 1)
    ended = sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'pipeline%'"
    )
    worker.send(signal.SIGKILL)
    assert (worker.ends(), len(ended) >= 1) == (-signal.SIGKILL, True)

    reap(make.services)

    (attempt,) = facts.attempts(first)
    assert (make.state(first), attempt.outcome, attempt.charged) == (JobState.REPAIR, "expired", True)
    (lane,) = make.services.lanes.list(make.site_id)
    assert lane.head is not None
    assert (lane.head.job, lane.head.state, lane.waiting) == (first, "repair", 1)
    assert [j.error_class for j in make.services.reading.jobs(make.site_id, [JobState.REPAIR], 5)] == ["expired"]
    assert facts.holders() == set()
    make.services.operate.requeue([first], actor="test", grant=1)
    make.say(make.claim("publish")[0], Verb.FAIL)
    make.services.operate.skip([first], actor="test")
    assert [c.job_id for c in make.claim("publish", 5)] == [second]


@pytest.fixture
def restartable(scratch_folder: Path, tmp_path: Path) -> Iterator[Spoilt]:
    """A server of this test alone."""
    folder = scratch_folder / "restartable"
    folder.mkdir(mode=0o700)
    server = Scratch(folder)
    server.start()
    server.run("CREATE ROLE pipeline LOGIN", "CREATE DATABASE content OWNER pipeline")
    try:
        with spoil(server, "content", tmp_path) as spoilt:
            yield spoilt
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_o04_a_server_that_crashes_while_jobs_are_taken_back(restartable: Spoilt) -> None:
    """The server is stopped at once in the middle of a reap of 250 jobs, and started again: whatever the interrupted
    reaper did not come to, the next one takes back."""
    make, server = restartable.make, restartable.server
    make.site(stages=ONE)
    make.plan(count=250)
    claims = make.claim("generate", 250, worker=ELSEWHERE)
    make.expire(*(c.job_id for c in claims))
    candidates = make.services.work.expired()
    failures: list[Exception] = []

    def interrupted() -> None:
        try:
            make.services.work.reap(candidates)
        except Exception as error:
            failures.append(error)

    reaper = threading.Thread(target=interrupted)
    reaper.start()
    until(lambda: restartable.count("pending") >= 5, "it has begun")
    assert server.process is not None
    server.process.send_signal(signal.SIGQUIT)  # immediate
    server.process.wait()
    reaper.join()
    server.start()
    restartable.engine.dispose()

    done_before = restartable.count("pending")
    assert len(failures) == 1
    assert is_away(failures[0])
    assert 5 <= done_before < 250
    assert "not properly shut down" in server.log.read_text()
    restartable.project.stages(QUICK)
    worker = restartable.project.worker()
    until(lambda: restartable.count("done") == 250, "all are done", 60)
    assert worker.stop() == 0


def test_o05_a_claim_that_fails_leaves_nothing_behind(
    make: Factory, engine: Engine, sql: Sql, database_url: str
) -> None:
    """Ten lanes and a stranger's locks: on one lane's job, the claim takes the other nine; on the table, it fails whole
    (55P03). What is reserved afterwards is just what the claimers were told, and the rest is simply tried again."""
    make.site(stages=STRICT)
    for n in range(10):
        make.plan(lane=f"lane-{n}")
    (locked,) = make.job_ids("lane-7")
    hurried = make_engine(database_url, schema=SCHEMA, connections=1, name="hurried", patience=0.1)
    refused: set[str | None] = set()

    @event.listens_for(hurried, "handle_error")
    def _note(context: Any) -> None:
        refused.add(sqlstate(context.sqlalchemy_exception))

    hasty = build_services(hurried)

    def claim() -> set[int]:
        return {c.job_id for c in make.claim("publish", 4)}

    told: set[int] = set()
    with engine.connect() as stranger:
        stranger.execute(text("SELECT id FROM pipeline.jobs WHERE id = :id FOR UPDATE"), {"id": locked})
        for _ in range(4):
            told |= claim()
        assert len(told) == 9
        assert locked not in told
    with engine.connect() as stranger:
        stranger.execute(text("LOCK TABLE pipeline.jobs IN EXCLUSIVE MODE"))
        with pytest.raises(OperationalError):
            hasty.work.claim([Prefix(make.site_id, "publish", 2, 4, LEASE)], "hasty")
    assert refused == {"55P03"}

    hurried.dispose()
    assert {row.id for row in sql("SELECT id FROM jobs WHERE state = 'reserved'")} == told
    assert claim() == {locked}


@pytest.mark.slow
def test_o06_every_loop_survives_the_end_of_its_session(
    project: Project, make: Factory, facts: Facts, sql: Sql
) -> None:
    """Each session of a worker is ended five times, its heartbeat's too: what is planned next runs within 5 s."""
    project.site()
    project.stages("""
        class Generate(Stage):
            lease = timedelta(seconds=1)

            def run(self, topic, ctx):
                ctx.corpus.unknown({"a/"})
                return Done(draft=draft(topic))

        PIPELINE = (Generate,)
    """)
    make.site(stages=(StageSpec("generate", None, 50),))
    worker = project.worker()
    ended = dict.fromkeys(("pipeline worker", "pipeline heartbeat", "pipeline stages"), 0)
    number = 0
    while min(ended.values()) < 5:
        number += 1
        make.services.planning.plan(make.site_id, [make.row(f"lane-{number}", 1)])
        until(lambda number=number: facts.count("done") == number, f"{number} are done", 5)  # type: ignore[misc]
        least = min(ended, key=lambda name: ended[name])
        ended[least] += len(
            sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = :name",
                name=least,
            )
        )
        assert number < 100, ended

    assert worker.process.poll() is None
    assert worker.said("the database is away")
    assert worker.stop() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_o06_a_heartbeat_that_dies_ends_the_worker(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect in the thread that keeps the leases: the worker does not go on without it, but ends with an error."""
    beats: list[Heartbeat] = []

    def broken(heartbeat: Heartbeat) -> None:
        beats.append(heartbeat)
        raise RuntimeError("a defect")

    monkeypatch.setattr(Heartbeat, "_beat", broken)
    settings = Settings.model_construct(db_schema=SCHEMA, concurrency=1, poll=timedelta(seconds=0.1))
    worker = Worker(database_url, settings, tmp_path, Stages({}, None))

    with pytest.raises(PipelineError, match="the heartbeat thread has died"):
        worker.run()

    assert len(beats) == 1


@pytest.mark.slow
def test_o07_what_could_not_be_given_back_is_not_said_to_be(
    proxy: Proxy, project: Project, make: Factory, facts: Facts
) -> None:
    """The database is gone when a worker is asked to stop: it tries for a moment, tells how many jobs it could not give
    back, and ends with 3, in time; they are still leased, and another worker takes them over."""
    project.site()
    project.stages("""
        class Generate(Stage):
            def run(self, topic, ctx):
                sign(f"began-{topic.slug}")
                signed("go")
                return Done(draft=draft(topic))

        PIPELINE = (Generate,)
    """)
    make.site(stages=ONE)
    ids = make.plan(count=2)
    direct, project._url = project._url, proxy.url
    worker = project.worker(GRACE="PT0.2S")
    project.until_signs("began-", 2)
    proxy.close()

    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.ends() == 3, worker.log
    assert time.monotonic() - began < 0.2 + 5
    assert worker.said("2 job(s) could not be given back")
    assert not worker.said("gave back")
    assert [make.state(i) for i in ids] == [JobState.RESERVED] * 2
    project.sign("go")
    project._url = direct
    project.worker()
    facts.until("done", 2)
    assert [facts.outcomes(i) for i in ids] == [["expired", "done"]] * 2
