"""How workers end: asked to, asked twice, killed, stopped, orphaned. Nothing is lost, and a rerun starts at once."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from pipeline.service.planning import StageSpec
from tests.factories import Factory
from tests.processes.conftest import Facts, process_of
from tests.processes.project import Project, WorkerProcess, until

ONE = (StageSpec("generate", None, 5),)

WAITS = """
    class Generate(Stage):
        def run(self, topic, ctx):
            sign(f"began-{topic.slug}")
            signed("go")
            return Done(draft=draft(topic))

    PIPELINE = (Generate,)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_stop_gives_back_what_it_holds(
    project: Project, make: Factory, facts: Facts, number: signal.Signals
) -> None:
    """What does not end within the grace period is pending again, and its attempt is not charged."""
    project.site()
    project.stages(WAITS)
    make.site(stages=ONE)
    ids = make.plan(count=3)
    worker = project.worker(CONCURRENCY="2", GRACE="PT0.3S")
    project.until_signs("began-", 2)

    worker.send(number)

    assert worker.ends() == 0
    assert facts.count("pending") == 3
    assert [(a.outcome, a.charged) for a in facts.attempts()] == [("released", False)] * 2
    assert [make.job(i).attempts for i in ids] == [0, 0, 0]
    assert worker.said("gave back 2 job(s)")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_ends_within_the_grace_period_is_kept(
    project: Project, make: Factory, facts: Facts, number: signal.Signals
) -> None:
    """A worker that is asked to stop lets running stages finish, and claims nothing more."""
    project.site()
    project.stages(WAITS)
    make.site(stages=ONE)
    make.plan(count=3)
    worker = project.worker(CONCURRENCY="2")
    project.until_signs("began-", 2)

    worker.send(number)
    project.sign("go")

    assert worker.ends() == 0
    assert (facts.count("done"), facts.count("pending")) == (2, 1)
    assert [a.outcome for a in facts.attempts()] == ["done", "done"]


TURNS_SLOW = """
    class Generate(Stage):
        def run(self, topic, ctx):
            if topic.position > 40:
                sign(f"began-{topic.slug}")
                signed("go")
            return Done(draft=draft(topic))

    PIPELINE = (Generate,)
"""


def holds_more_than_it_runs(project: Project, make: Factory) -> WorkerProcess:
    """A worker with two hands, both of which have become slow, and a store of what has not begun."""
    project.site()
    project.stages(TURNS_SLOW)
    make.site(stages=ONE)
    make.plan(count=200)
    worker = project.worker(CONCURRENCY="2", GRACE="PT15S")
    project.until_signs("began-", 2)
    return worker


def test_what_has_not_begun_is_given_back_at_once(project: Project, make: Factory, facts: Facts) -> None:
    """Others can take it up while what runs has its grace."""
    worker = holds_more_than_it_runs(project, make)

    worker.send(signal.SIGTERM)

    until(lambda: facts.count("reserved") == 2, "only what runs is held")
    assert worker.process.poll() is None
    project.sign("go")
    assert worker.ends() == 0
    assert {a.error for a in facts.attempts() if a.outcome == "released"} <= {"the worker stopped"}


def test_what_no_hand_comes_to_is_given_back(project: Project, make: Factory, facts: Facts) -> None:
    """A stage that was quick and hangs keeps what it runs, not what the worker had in store."""
    holds_more_than_it_runs(project, make)

    until(lambda: facts.count("reserved") == 2, "only what runs is held")

    assert {a.error for a in facts.attempts() if a.outcome == "released"} <= {"no hand was free for it"}
    project.sign("go")
    until(lambda: facts.count("done") == 200, "all is done")


def test_an_interrupt_that_a_term_follows_is_one_wish(project: Project, make: Factory, facts: Facts) -> None:
    """Both come to a worker whose parent is interrupted at a terminal: it winds down, and is not cut off."""
    project.site()
    project.stages(WAITS)
    make.site(stages=ONE)
    make.plan()
    worker = project.worker(CONCURRENCY="1")
    project.until_signs("began-", 1)

    worker.send(signal.SIGINT)
    worker.send(signal.SIGTERM)
    project.sign("go")

    assert worker.ends() == 0
    assert facts.count("done") == 1


def test_a_second_signal_ends_a_worker_at_once(project: Project, make: Factory, facts: Facts) -> None:
    """However long the grace period; what it held is taken back by the next worker without waiting for the lease."""
    project.site()
    project.stages(WAITS)
    make.site(stages=ONE)
    (job_id,) = make.plan()
    worker = project.worker(GRACE="PT10M")
    project.until_signs("began-", 1)

    def ended() -> bool:
        worker.send(signal.SIGTERM)  # two that come at once are one
        return worker.process.poll() is not None

    until(ended, "the worker has ended")

    assert worker.ends() == 130
    assert facts.count("reserved") == 1
    project.sign("go")
    project.worker()
    facts.until("done", 1)
    assert facts.outcomes(job_id) == ["expired", "done"]


def test_a_rerun_after_a_kill_starts_at_once(project: Project, make: Factory, facts: Facts) -> None:
    """The jobs of a killed process of this machine are taken back long before their leases end."""
    project.site()
    project.stages(WAITS)
    make.site(stages=ONE)
    ids = make.plan(count=3)
    worker = project.worker(CONCURRENCY="3")
    project.until_signs("began-", 3)
    until(lambda: facts.holders() == {worker.pid}, "the worker holds them")

    worker.send(signal.SIGKILL)
    assert worker.ends() == -signal.SIGKILL
    project.sign("go")
    project.worker()
    facts.until("done", 3)

    assert [facts.outcomes(i) for i in ids] == [["expired", "done"]] * 3
    taken = [a for a in facts.attempts() if a.outcome == "expired"]
    assert all(a.ended_at - a.reserved_at < timedelta(seconds=30) for a in taken)
    assert all("is gone" in a.error for a in taken)


def test_a_worker_that_slept_past_its_lease_writes_nothing(project: Project, make: Factory, facts: Facts) -> None:
    """It says so and drops its result, in the database and outside; the other worker's result stands."""
    project.site()
    project.stages("""
        class Publish(Stage):
            target = "files"
            lease = timedelta(seconds=1.5)
            retry = NOW

            def run(self, topic, ctx):
                sign(f"began-{PID}")
                signed(f"go-{PID}")

                def act():
                    sign(f"wrote-{PID}")
                    return "remote"

                ctx.ledger.publish("files", "page.html", f"hash of {PID}", lambda: None, act, topic_id=topic.id)
                return Done(metrics={"by": PID})

        PIPELINE = (Publish,)
    """)
    make.site(stages=(StageSpec("publish", None, 5),))
    (job_id,) = make.plan()
    sleeper = project.worker(CONCURRENCY="1")
    project.until_signs("began-", 1)
    sleeper.send(signal.SIGSTOP)

    other = project.worker(CONCURRENCY="1")
    project.until_signs("began-", 2)
    project.sign(f"go-{sleeper.pid}")
    sleeper.send(signal.SIGCONT)
    until(lambda: sleeper.said(f"lost job {job_id}"), "the sleeper sees that it lost its job")
    assert make.state(job_id) == "reserved"
    project.sign(f"go-{other.pid}")
    facts.until("done", 1)

    first, second = facts.attempts(job_id)
    assert (first.outcome, process_of(first.worker)) == ("expired", sleeper.pid)
    assert (second.outcome, process_of(second.worker)) == ("done", other.pid)
    assert first.ended_at - first.reserved_at >= timedelta(seconds=1.5)
    assert second.metrics == {"by": other.pid}
    assert project.signs("wrote-") == [str(other.pid)]
    assert sleeper.stop() == 0


PARENT = """
import sys
from datetime import timedelta
from pathlib import Path
from pipeline.crew import Crew

crew = Crew(Path(sys.argv[1]), 2, site="acme", grace=timedelta(seconds=20))
print(*(m.process.pid for m in crew._members), flush=True)
sys.stdin.read()
"""


def runs(pid: int) -> bool:
    """Whether the process still runs; a corpse that nobody has collected does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are looked for in /proc")
def test_workers_whose_parent_is_killed_wind_down(project: Project, make: Factory, facts: Facts) -> None:
    """An orphan gives back what it holds and ends by itself."""
    project.site()
    project.stages(WAITS)
    make.site(stages=ONE)
    make.plan(count=2)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(project.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=project.root,
        env=project.env(CONCURRENCY="1", GRACE="PT0.2S"),
    )  # fmt: skip
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        children = [int(pid) for pid in parent.stdout.readline().split()]
        project.until_signs("began-", 2)
        until(lambda: facts.holders() == set(children), "both children hold a job")

        parent.kill()
        parent.wait()

        until(lambda: not any(runs(pid) for pid in children), "both children have ended")
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()
    assert facts.count("pending") == 2
    assert [(a.outcome, a.charged) for a in facts.attempts()] == [("released", False)] * 2
