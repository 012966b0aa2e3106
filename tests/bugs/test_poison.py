"""Public bug reports of comparable systems, tried on ours: poison, back-off, starvation (O-35 to O-38)."""

import random
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline import Stage
from pipeline.project.loading import Stages
from pipeline.retry import Backoff
from pipeline.rota import Rota
from pipeline.service.acknowledging import Verb
from pipeline.service.planning import StageSpec
from pipeline.stages import Done
from pipeline.states import JobState
from pipeline.upkeep import reap
from pipeline.verdict import raised
from pipeline.views import TopicView
from tests.db.conftest import Sql
from tests.factories import Factory
from tests.processes.conftest import Facts
from tests.processes.project import Project, WorkerProcess, until

ONE = (StageSpec("generate", None, 5),)
ELSEWHERE = "another-machine/17/1"


@pytest.mark.slow
def test_o35_a_job_that_kills_its_worker_is_tried_so_often_and_no_more(
    project: Project, make: Factory, facts: Facts
) -> None:
    """One job kills whoever runs it, and dead workers are replaced: it has its three attempts and then waits for a
    person; the hundred others are done, those too that were in the same hands each time."""
    project.site()
    project.stages("""
        class Generate(Stage):
            def run(self, topic, ctx):
                if topic.position == 50:
                    os.kill(PID, 9)
                return Done(draft=draft(topic))

        PIPELINE = (Generate,)
    """)
    make.site(stages=(StageSpec("generate", None, 3),))
    ids = make.plan(count=101)
    poison = ids.pop(49)
    deaths: list[int] = []
    worker: WorkerProcess = project.worker()

    def settled() -> bool:
        nonlocal worker
        if worker.process.poll() is not None:
            deaths.append(worker.ends())
            worker = project.worker()
        return facts.count("done", "repair", "failed") == 101

    until(settled, "all have ended", 60)

    assert deaths == [-signal.SIGKILL] * 3
    assert facts.outcomes(poison) == ["expired"] * 3
    assert make.state(poison) is JobState.REPAIR
    assert [make.state(i) for i in ids] == [JobState.DONE] * 100
    assert worker.stop() == 0


def test_o35_each_crash_is_an_attempt(make: Factory, sql: Sql) -> None:
    """A job whose holder dies is charged for it each time; after the last it is not tried again by itself."""
    make.site(stages=(StageSpec("generate", None, 3),))
    (job_id,) = make.plan()
    for attempt in (1, 2, 3):
        (claim,) = make.claim("generate", worker=ELSEWHERE)
        assert claim.attempt == attempt
        make.expire(job_id)
        sql("UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'pending'")
        reap(make.services)
        sql("UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'pending'")

    assert make.claim("generate") == []
    assert make.state(job_id) is JobState.REPAIR
    assert sql("SELECT outcome, charged, count(*) FROM attempts GROUP BY 1, 2") == [("expired", True, 3)]


class Generate(Stage):
    retry = Backoff(attempts=1000)

    def run(self, topic: TopicView, ctx: Any) -> Done:
        return Done()


@pytest.mark.parametrize("attempts", [30, 31, 62, 63, 64, 999])
def test_o36_no_number_of_attempts_makes_a_delay_too_long(make: Factory, sql: Sql, attempts: int) -> None:
    """A job that has failed so often is due again within the cap, and not before its half; nothing overflows."""
    make.site(stages=(StageSpec("generate", None, 1000),))
    (job_id,) = make.plan()
    sql("UPDATE jobs SET attempts = :n", n=attempts - 1)
    (claim,) = make.claim("generate")
    assert claim.attempt == attempts
    ack = raised(claim, Generate(), RuntimeError("again"))

    make.say(claim, Verb.RETRY, delay=ack.delay, error=ack.error)

    row = make.job(job_id)
    wait = row.run_at - datetime.now(UTC)
    assert row.state == "pending"
    assert timedelta(minutes=29) < wait <= timedelta(hours=1, seconds=1)
    # As if these had been made: the audit counts them.
    sql("UPDATE jobs SET attempts = 1")


def test_o36_the_delay_grows_to_its_cap_and_stays_there() -> None:
    """For any attempt up to a million: not negative, not above the cap, never less than before."""
    backoff = Backoff()

    delays = [backoff.delay(n, jitter=1.0) for n in (*range(-1, 70), 10**3, 10**6)]

    assert delays[:4] == [timedelta(seconds=10)] * 3 + [timedelta(seconds=20)]
    assert delays == sorted(delays)
    assert delays[-1] == timedelta(hours=1)
    assert all(backoff.delay(40) >= timedelta(minutes=30) for _ in range(100))


def test_o37_what_was_taken_back_queues_up_behind_the_others(make: Factory) -> None:
    """Eight jobs hang past their lease, two hundred short ones wait: those taken back are due anew, so the others come
    first."""
    make.site(stages=ONE)
    ids = make.plan(count=208)
    hanging = make.claim("generate", 8, worker=ELSEWHERE)
    assert [c.job_id for c in hanging] == ids[:8]
    make.expire(*ids[:8])

    reap(make.services)

    order: list[int] = []
    while batch := make.claim("generate", 16):
        order += [c.job_id for c in batch]
    assert sorted(order[:200]) == ids[8:]
    assert sorted(order[200:]) == ids[:8]


@pytest.mark.parametrize("seed", range(8))
def test_o38_what_is_urgent_stays_urgent_when_it_was_taken_back(make: Factory, sql: Sql, seed: int) -> None:
    """An urgent job whose holder died, and a stream of new jobs that are not urgent: it is the next to be claimed; and
    however the claims fall, among equals the earliest is first."""
    dice = random.Random(seed)
    make.site(stages=ONE)
    rota = Rota(Stages({"generate": Generate()}, None))
    rows = [make.row("lane", n) for n in range(1, 4)]
    make.services.planning.plan(make.site_id, rows)
    urgent = dice.choice(make.job_ids())
    sql("UPDATE jobs SET priority = :p WHERE id = :id", p=dice.choice([0, 1]), id=urgent)

    def claim(room: int) -> list[int]:
        rota.look(make.services.work, None)
        prefixes = rota.shares(room, [make.site_id])
        claims = make.services.work.claim(prefixes, ELSEWHERE)
        rota.took(prefixes, claims)
        return [c.job_id for c in claims]

    assert claim(1) == [urgent]
    make.expire(urgent)
    for n in range(4, 4 + dice.randrange(5, 15)):
        rows.append(make.row("lane", n))
    make.services.planning.plan(make.site_id, rows)
    for _ in range(dice.randrange(0, 3)):
        claim(1)

    reap(make.services)

    assert claim(1) == [urgent]
    rest: list[int] = []
    while found := claim(dice.randrange(1, 4)):
        rest += found
    assert rest == sorted(rest)
