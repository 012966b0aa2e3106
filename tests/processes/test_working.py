"""How workers work: stages that misbehave, leases that must hold, a server that ends sessions, lanes in order."""

import itertools

import pytest
from sqlalchemy import Engine, text

from pipeline.service.planning import StageSpec
from tests.factories import STAGES, Factory
from tests.processes.conftest import Facts, process_of
from tests.processes.project import Project, until

ONE = (StageSpec("generate", None, 5),)


def test_a_stage_may_do_whatever_it_likes(project: Project, make: Factory, facts: Facts) -> None:
    """Exceptions are tried again and then fail; answers that are none go to repair; the others never notice."""
    project.site()
    project.stages("""
        class Generate(Stage):
            retry = Backoff(attempts=2, first=timedelta(0), cap=timedelta(0))

            def run(self, topic, ctx):
                match topic.position:
                    case 1: raise RuntimeError("no luck")
                    case 2: return 42
                    case 3: raise RuntimeError("\\x00 \\ud800 " + "\\N{SNOWMAN}" * 1_000_000)
                    case 4: return None
                    case 5: raise SystemExit("enough")
                    case 6: return Retry("soon", after=5)
                    case 7: return Reject([1])
                    case 8: return Done(draft="no draft")
                    case 9: return Done(metrics={"what": object()})
                    case 10: return Done(draft=Draft("NUL", "", "\\x00"))
                    case 11: raise Unreadable()
                    case 12: return Done(findings=["no finding"])
                    case 13: return Done(draft=Draft("not a number", "", "body", {"n": float("nan")}))
                    case 14: return Retry(None)
                    case 15: return Fail(ValueError("not a text"))
                    case _: return Done(draft=draft(topic))

        class Unreadable(Exception):
            def __str__(self):
                raise ValueError("not even this")

        PIPELINE = (Generate,)
    """)
    make.site(stages=(StageSpec("generate", None, 2),))
    ids = make.plan(count=16)
    worker = project.worker()

    until(lambda: facts.count("failed", "repair", "done") == 16, "all have ended")

    states = {n: str(make.state(i)) for n, i in enumerate(ids, start=1)}
    assert {n for n, state in states.items() if state == "failed"} == {1, 3, 5, 11, 14}
    assert {n for n, state in states.items() if state == "done"} == {16}
    by_job = {n: facts.attempts(i) for n, i in enumerate(ids, start=1)}
    assert [a.outcome for a in by_job[1]] == ["retry", "failed"]
    assert by_job[1][0].error == "no luck"
    assert "returned int" in by_job[2][0].error
    assert len(by_job[3][0].error.encode()) <= 4000
    assert by_job[5][0].error_class == "SystemExit"
    assert by_job[11][0].error_class == "Unreadable"
    assert all(a[-1].error for n, a in by_job.items() if n not in (14, 16))
    assert worker.stop() == 0
    assert not worker.said("the database is away")


def test_done_without_publishing_is_no_release(project: Project, make: Factory, facts: Facts) -> None:
    """A stage with a target that says done, but wrote nothing through the ledger, goes to repair and halts its lane."""
    project.site()
    project.stages("""
        class Publish(Stage):
            width = 1
            target = "files"

            def run(self, topic, ctx):
                return Done()

        PIPELINE = (Publish,)
    """)
    make.site(stages=(StageSpec("publish", 1, 5),))
    first, second = make.plan(count=2)
    worker = project.worker()

    facts.until("repair", 1)

    assert [make.state(first), make.state(second)] == ["repair", "waiting"]
    assert "published nothing" in facts.attempts(first)[0].error
    assert worker.stop() == 0


def test_a_job_may_take_longer_than_its_lease(project: Project, make: Factory, facts: Facts, engine: Engine) -> None:
    """The heartbeat keeps it, beside a job whose lease is long and a worker that reaps whatever it can."""
    project.site()
    project.stages("""
        class Patient(Stage):
            def run(self, topic, ctx):
                sign("patient")
                signed("go")
                return Done()

        class Hasty(Stage):
            lease = timedelta(seconds=1)

            def run(self, topic, ctx):
                sign("hasty")
                signed("go")
                return Done()

        PIPELINE = (Patient, Hasty)
    """)
    make.site(stages=(StageSpec("patient", None, 5), StageSpec("hasty", None, 5)))
    (hasty,) = make.advance_to("hasty", lane="hasty")
    make.services.operate.cancel([hasty], actor="test")
    (patient,) = make.plan(lane="patient")
    worker = project.worker()
    project.until_signs("patient", 1)
    until(lambda: facts.holders() == {worker.pid}, "the worker holds the patient one")
    # The heartbeat now knows of a long lease only.
    with engine.begin() as connection:
        seconds = "SELECT extract(epoch FROM clock_timestamp() - reserved_at) FROM pipeline.jobs WHERE id = :id"
        until(lambda: connection.execute(text(seconds), {"id": patient}).scalar_one() > 1, "it has held it for a while")
    make.services.operate.requeue([hasty], actor="test")
    project.until_signs("hasty", 1)
    project.worker()
    with engine.connect() as connection:
        until(lambda: connection.execute(text(seconds), {"id": hasty}).scalar_one() > 3, "three leases are over")

    assert facts.holders() == {worker.pid}
    project.sign("go")
    facts.until("done", 2)

    assert [a.outcome for a in facts.attempts(hasty)] == ["done", "done"]
    assert process_of(facts.attempts(hasty)[-1].worker) == worker.pid
    assert not worker.said("lost job")


@pytest.mark.slow
def test_work_survives_a_server_that_ends_its_sessions(
    project: Project, make: Factory, facts: Facts, engine: Engine
) -> None:
    """However often all sessions are ended, everything finishes, in order, and nothing is done twice at once."""
    project.site()
    project.stages("""
        class Generate(Stage):
            retry = Backoff(attempts=50, first=timedelta(0), cap=timedelta(0))
            lease = timedelta(seconds=2)

            def run(self, topic, ctx):
                time.sleep(0.02)
                return Done(draft=draft(topic))

        class Validate(Generate):
            name = "validate"

            def run(self, topic, ctx):
                ctx.corpus.unknown({"a/", "b/"})
                return Done()

        class Publish(Generate):
            name = "publish"
            width = 1

            def run(self, topic, ctx):
                sign(f"published-{topic.position:03}")
                time.sleep(0.02)
                return Done()

        PIPELINE = (Generate, Validate, Publish)
    """)
    make.site(stages=tuple(StageSpec(s.name, s.width, 50) for s in STAGES))
    make.plan(count=24)
    workers = [project.worker(), project.worker()]
    end_all = text(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'pipeline%'"
    )
    ended = 0
    for turn in range(1, 7):
        seen = len(facts.attempts())
        until(lambda seen=seen: len(facts.attempts()) > seen or facts.count("done") == 24, f"work before turn {turn}")
        with engine.begin() as connection:
            ended += connection.execute(end_all).scalar_one()

    facts.until("done", 24)

    assert ended >= 6
    assert any(w.said("the database is away") or w.said("do not reach the database") for w in workers)
    assert [w.stop() for w in workers] == [0, 0]
    published = [a for a in facts.attempts() if a.stage == "publish" and a.outcome == "done"]
    assert len(published) == 24
    assert facts.count("done") == 24


def test_two_workers_share_a_site_in_strict_order(project: Project, make: Factory, facts: Facts) -> None:
    """Each page of a lane is released after the one before it, whoever does it; lanes do not wait for each other."""
    project.site()
    project.stages("""
        class Generate(Stage):
            def run(self, topic, ctx):
                signed("both")
                time.sleep(0.002 * (20 - topic.position))
                return Done(draft=draft(topic))

        class Validate(Stage):
            def run(self, topic, ctx):
                return Done()

        class Publish(Stage):
            width = 1

            def run(self, topic, ctx):
                time.sleep(0.005)
                return Done()

        PIPELINE = (Generate, Validate, Publish)
    """)
    make.site()
    ids = {lane: make.plan(lane=lane, count=10) for lane in ("a", "b", "c")}
    workers = [project.worker(CONCURRENCY="3"), project.worker(CONCURRENCY="3")]
    until(lambda: facts.holders() == {w.pid for w in workers}, "both hold something")
    project.sign("both")
    facts.until("done", 30)

    by_job = {a.job_id: a for a in facts.attempts() if a.stage == "publish"}
    assert len(by_job) == 30
    for lane in ids.values():
        turns = [by_job[i] for i in lane]
        assert all(before.ended_at <= after.reserved_at for before, after in itertools.pairwise(turns))
    assert {process_of(a.worker) for a in facts.attempts()} == {w.pid for w in workers}
    assert [a.outcome for a in facts.attempts()] == ["done"] * 90
    assert [w.stop() for w in workers] == [0, 0]


def test_a_site_that_has_no_assembly_comes_to_rest(
    project: Project, make: Factory, facts: Facts, engine: Engine
) -> None:
    """What a page's end or a reap owes the site is settled, though the project has nothing to build for it."""
    project.site()
    project.stages("""
        class Publish(Stage):
            target = "files"

            def run(self, topic, ctx):
                ctx.ledger.publish("files", "page.html", "hash", lambda: None, lambda: "remote", topic_id=topic.id)
                return Done()

        PIPELINE = (Publish,)
    """)
    site_id = make.site(stages=(StageSpec("publish", None, 5),))
    make.plan()
    worker = project.worker()
    facts.until("done", 1)

    make.services.operate.hasten(site_id)

    until(lambda: not make.services.reading.standing(site_id), "nothing is left to do")
    row = make.services.reading.site("acme")
    assert row is not None
    assert (row.changed, row.built) == (1, 1)
    assert worker.stop() == 0
