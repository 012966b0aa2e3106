"""Public bug reports of comparable systems, tried on ours: rows, memory and sessions that pile up (O-56 to O-58)."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine

from pipeline.service.audit import Audit
from pipeline.service.planning import StageSpec
from pipeline.states import JobState
from tests.bugs.blocks import Cost, ask
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory, draft_of
from tests.processes.conftest import Facts
from tests.processes.project import Project, until

T = TypeVar("T")

ONE = (StageSpec("generate", None, 5),)
NARROW = (StageSpec("generate", None, 5), StageSpec("publish", 1, 5))

# What was done long ago with the same topics.
HISTORY = (
    "INSERT INTO jobs (site_id, lane_id, topic_id, position, pass, stage, state, cleared, max_attempts, finished_at)"
    " SELECT t.site_id, t.lane_id, t.id, t.position, -n, 'publish', 'done', 3000, 5, clock_timestamp()"
    " FROM topics t, generate_series(1, :count / 100) n WHERE t.site_id = :site"
)


def costs(make: Factory, ids: list[int]) -> dict[str, int]:
    """How many blocks are touched by a claim, a step, lists, status, upkeep; each at its best, for what falls on a full
    page touches more.
    """
    found: dict[str, int] = {}

    def measure(what: str, act: Callable[[], T]) -> T:
        with Cost(make.engine) as cost:
            answer = act()
        found[what] = min(cost.blocks, found.get(what, cost.blocks))
        return answer

    reading, work = make.services.reading, make.services.work
    for job_id in ids:
        (claim,) = measure("claim", lambda: make.claim("generate"))
        assert claim.job_id == job_id
        for _ in range(2):
            measure("renew", lambda claim=claim: work.renew([claim]))  # type: ignore[misc]
        measure("step", lambda claim=claim: make.say(claim, draft=draft_of(claim)))  # type: ignore[misc]
    for _ in ids:
        (head,) = measure("claim of a head", lambda: make.claim("publish", 8))
        measure("release of a head", lambda head=head: make.say(head))  # type: ignore[misc]
    measure("prefixes", lambda: work.prefixes(make.site_id))
    measure("reap", lambda: work.expired(make.site_id))
    measure("heal", lambda: work.heal(make.site_id))
    measure("jobs list", lambda: reading.jobs(make.site_id, [], 50))
    measure("troubles", lambda: reading.troubles(make.site_id))
    measure("standing", lambda: reading.standing(make.site_id))
    measure("status", lambda: reading.status(make.site_id, "acme"))
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_o56_what_is_finished_costs_those_at_work_nothing(scenery: Factory, count: int) -> None:
    """With ten times as many finished jobs, a hundred thousand or a million, a claim, a step and every list touch as
    many blocks as before, within a fifth and one level more of each index."""
    make, engine = scenery, scenery.engine
    make.site(f"site-{count}", NARROW)
    make.services.planning.plan(make.site_id, [make.row("lane", n) for n in range(1, 101)])
    ids = make.job_ids()
    ask(engine, HISTORY, site=make.site_id, count=count // 10)
    ask(engine, "ANALYZE jobs")
    before = costs(make, ids[:8])

    ask(engine, HISTORY, site=make.site_id, count=count - count // 10)
    ask(engine, "ANALYZE jobs")
    after = costs(make, ids[8:16])

    assert ask(engine, "SELECT count(*) FROM jobs WHERE pass < 0 AND site_id = :site", site=make.site_id) == [(count,)]
    print({what: (before[what], after[what]) for what in before})
    assert {w: (before[w], after[w]) for w in before if after[w] > 1.2 * before[w] + 16} == {}


LARGE = 5 << 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_o57_failures_keep_no_locals_alive(project: Project, make: Factory, facts: Facts) -> None:
    """Five thousand stages fail, each with five megabytes in a local variable: the worker is hardly larger afterwards
    than it was after five hundred."""
    project.site()
    project.stages(f"""
        class Generate(Stage):
            retry = Backoff(attempts=1, first=timedelta(0), cap=timedelta(0))

            def run(self, topic, ctx):
                large = bytearray({LARGE})
                large[:: 4096] = b"x" * len(large[:: 4096])
                self.deeper(large)

            def deeper(self, large):
                try:
                    raise KeyError(len(large))
                except KeyError as error:
                    raise RuntimeError("no luck") from error

        PIPELINE = (Generate,)
    """)
    make.site(stages=(StageSpec("generate", None, 1),))
    make.plan(count=5000)
    worker = project.worker(CONCURRENCY="4")

    def resident() -> int:
        lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) << 10

    until(lambda: facts.count("failed") >= 500, "500 failed", 60)
    early = resident()
    until(lambda: facts.count("failed") == 5000, "all failed", 240)
    late = resident()

    print(f"{early >> 20} MiB, then {late >> 20} MiB")
    assert late <= early + (20 << 20)
    assert [a.outcome for a in facts.attempts()] == ["failed"] * 5000
    assert worker.stop() == 0


SESSIONS = (
    "SELECT application_name, state, extract(epoch FROM clock_timestamp() - state_change) AS seconds"
    " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND application_name LIKE 'pipeline%'"
)


def test_o58_no_transaction_is_open_while_a_stage_runs(project: Project, make: Factory, sql: Sql) -> None:
    """Stages have asked the corpus, written an intent, or nothing, and then take their time: every session of the
    worker is idle, and none is in a transaction."""
    project.site()
    project.stages("""
        class Generate(Stage):
            lease = timedelta(seconds=1)

            def run(self, topic, ctx):
                ctx.corpus.unknown({"a/"})
                if topic.position == 2:
                    def act():
                        sign("runs-2")
                        signed("go")
                        return "1"
                    ctx.ledger.publish("files", "a/", "hash", lambda: None, act, topic_id=topic.id)
                    return Done()
                if topic.position == 3:
                    sign("runs-3")
                    signed("go")
                    raise RuntimeError("no luck")
                sign("runs-1")
                signed("go")
                return Done(draft=draft(topic))

        PIPELINE = (Generate,)
    """)
    make.site(stages=ONE)
    make.plan(count=3)
    worker = project.worker(CONCURRENCY="3")
    project.until_signs("runs-", 3)
    until(lambda: len(sql(SESSIONS)) == 3, "the heartbeat's session is there too")
    seen: set[str] = set()
    for _ in range(100):
        for row in sql(SESSIONS):
            seen.add(row.state)
            assert row.state == "idle" or row.seconds < 1, row

    assert "idle" in seen
    project.sign("go")
    until(lambda: sql("SELECT count(*) FROM attempts")[0][0] == 3, "all have ended")
    assert worker.stop() == 0
    assert sql(SESSIONS) == []


def test_o58_an_exception_leaves_no_transaction_open(make: Factory, engine: Engine, sql: Sql) -> None:
    """Whatever goes wrong inside a verb, the session is given back clean: refusals, errors of the server, of ours."""
    (job_id,) = make.plan()
    mistakes = (
        lambda: make.services.operate.skip([job_id, 10**9], actor=ACTOR),
        lambda: make.services.operate.requeue([job_id], actor=ACTOR),
        lambda: make.services.planning.plan(make.site_id, [make.row("x" * 300, 1)]),
        lambda: make.services.planning.plan(make.site_id, [None]),  # type: ignore[list-item]
        lambda: make.services.lanes.pause(make.site_id, "nowhere", actor=ACTOR),
        lambda: make.services.planning.plan(10**9, [make.row("lane", 9)]),
        lambda: Audit(engine, schema="nowhere").violations(),
    )
    failed = 0
    for mistake in mistakes:
        try:
            mistake()
        except Exception:
            failed += 1
        open_ones = sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                        " AND state LIKE 'idle in transaction%'")  # fmt: skip
        assert open_ones == []

    assert failed == len(mistakes)
    assert make.state(job_id) is JobState.PENDING


@pytest.fixture
def sampled(sql: Sql) -> Iterator[list[Any]]:
    """What was seen of transactions that stood open for longer than a second."""
    over = threading.Event()
    found: list[Any] = []
    samples = 0

    def look() -> None:
        nonlocal samples
        while not over.wait(0.1):
            samples += 1
            found.extend(r for r in sql(SESSIONS) if r.state.startswith("idle in transaction") and r.seconds > 1)

    thread = threading.Thread(target=look)
    thread.start()
    yield found
    over.set()
    thread.join()
    assert samples > 20


@pytest.mark.slow
def test_o58_none_stands_open_through_a_whole_run(
    project: Project, make: Factory, facts: Facts, sampled: list[Any]
) -> None:
    """Three lanes from end to end by two workers, with stages that sleep, raise and publish: sampled ten times a
    second, no session of ours is idle in a transaction for longer than a second."""
    project.site()
    project.stages("""
        class Generate(Stage):
            retry = NOW

            def run(self, topic, ctx):
                time.sleep(0.2)
                if topic.position % 5 == 0 and ctx.attempt == 1:
                    raise RuntimeError("no luck")
                return Done(draft=draft(topic))

        class Validate(Stage):
            def run(self, topic, ctx):
                ctx.corpus.twins(ctx.draft)
                time.sleep(5 if topic.position == 1 else 0.05)
                return Done()

        class Publish(Stage):
            width = 1
            target = "files"

            def run(self, topic, ctx):
                def act():
                    time.sleep(2 if topic.position == 2 else 0.01)
                    return "1"

                ctx.ledger.publish("files", topic.path, "hash", lambda: None, act, topic_id=topic.id)
                return Done()

        PIPELINE = (Generate, Validate, Publish)
    """)
    make.site()
    for lane in "abc":
        make.plan(lane=lane, count=10)
    workers = [project.worker(), project.worker()]

    until(lambda: facts.count("done") == 30, "all are done", 60)

    assert [w.stop() for w in workers] == [0, 0]
    assert sampled == []
