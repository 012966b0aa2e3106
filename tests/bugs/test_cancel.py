"""Public bug reports of comparable systems, tried on ours: operators against what runs (O-43, O-44)."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

from pipeline.errors import Refused
from pipeline.service.acknowledging import Fate
from pipeline.service.planning import StageSpec
from pipeline.states import JobState
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory, draft_of
from tests.processes.conftest import Facts
from tests.processes.project import Project, until

T = TypeVar("T")

ONE = (StageSpec("generate", None, 5),)
TWO = (StageSpec("generate", None, 5), StageSpec("validate", None, 5))

ACTS = ("cancel", "take", "skip", "requeue")
ENDS = ("returns", "raises")


def test_o43_whatever_was_done_to_a_running_job_its_worker_lives(project: Project, make: Factory, facts: Facts) -> None:
    """Asked to stop, taken away, skipped, taken away and requeued, while its stage runs, which then returns or raises:
    the worker drops what is no longer its own, with one line, and takes the next job."""
    project.site()
    project.stages("""
        class Generate(Stage):
            def run(self, topic, ctx):
                sign(f"began-{topic.position}")
                signed(f"go-{topic.position}")
                if topic.brief["ends"] == "raises" and ctx.attempt == 1:
                    raise RuntimeError("not now")
                return Done(draft=draft(topic))

        PIPELINE = (Generate,)
    """)
    make.site(stages=ONE)
    scenes = [(act, ends) for act in ACTS for ends in ENDS] + [("nothing", "returns")]
    rows = [make.row("lane", n, brief={"ends": ends}) for n, (_, ends) in enumerate(scenes, start=1)]
    make.services.planning.plan(make.site_id, rows)
    ids = make.job_ids()
    worker = project.worker(CONCURRENCY="1")
    operate = make.services.operate
    for n, (job_id, (act, _)) in enumerate(zip(ids, scenes, strict=True), start=1):
        project.until_signs(f"began-{n}", 1)
        match act:
            case "cancel":
                assert operate.cancel([job_id], actor=ACTOR)[0].to_state is JobState.RESERVED
            case "take" | "requeue":
                assert operate.cancel([job_id], actor=ACTOR, force=True)[0].to_state is JobState.CANCELLED
            case "skip":
                assert operate.skip([job_id], actor=ACTOR, force=True)[0].to_state is JobState.SKIPPED
        if act == "requeue":
            operate.requeue([job_id], actor=ACTOR)
        project.sign(f"go-{n}")

    until(lambda: facts.count("done", "cancelled", "skipped") == len(ids), "all have ended")

    ended = {scene: str(make.state(job_id)) for scene, job_id in zip(scenes, ids, strict=True)}
    # It was done when it was asked to stop, at the last stage: what is done is done.
    assert ended == {
        ("cancel", "returns"): "done", ("cancel", "raises"): "cancelled",
        ("take", "returns"): "cancelled", ("take", "raises"): "cancelled",
        ("skip", "returns"): "skipped", ("skip", "raises"): "skipped",
        ("requeue", "returns"): "done", ("requeue", "raises"): "done",
        ("nothing", "returns"): "done",
    }  # fmt: skip
    for (act, _), job_id in zip(scenes, ids, strict=True):
        lines = [line for line in worker.log.splitlines() if f"lost job {job_id} " in line]
        assert len(lines) == (act in ("take", "skip", "requeue"))
    assert facts.holders() == set()
    assert worker.stop() == 0


def race(make: Factory, times: int, *, force: bool, dice: random.Random) -> dict[str, int]:
    """Cancel jobs around the moment when they end; how often each side was first."""
    ids = make.plan(count=times)
    claims = {c.job_id: c for c in make.claim("generate", times)}
    barrier = threading.Barrier(2)
    tally = {"cancelled": 0, "asked": 0, "too late": 0}

    def at_once(body: Callable[[], T], wait: int) -> T:
        barrier.wait(20)
        for _ in range(wait):
            pass
        return body()

    def cancel(job_id: int) -> str:
        try:
            (moved,) = make.services.operate.cancel([job_id], actor=ACTOR, force=force)
        except Refused as refusal:
            return "too late" if f"job {job_id} is done" in str(refusal) else str(refusal)
        return "asked" if moved.to_state is JobState.RESERVED else "cancelled"

    with ThreadPoolExecutor(2) as pool:
        for job_id in ids:
            claim = claims[job_id]
            first, second = dice.choice([(0, 1), (1, 0)])
            wait = dice.randrange(0, 60_000)
            ending = pool.submit(at_once, partial(make.say, claim, draft=draft_of(claim)), first * wait)
            answer = pool.submit(at_once, partial(cancel, job_id), second * wait).result()
            fate = ending.result().fates[claim.fence]
            state = make.state(job_id)
            tally[answer] += 1
            match answer:
                case "cancelled":
                    assert state is JobState.CANCELLED
                    # Written: it had come to the next stage, and was cancelled there.
                    assert (fate is Fate.WRITTEN) == (make.job(job_id).stage != "generate")
                case "asked":  # heeded unless it is done by then
                    assert (state, fate) == (JobState.DONE if last(make) else JobState.CANCELLED, Fate.WRITTEN)
                case "too late":
                    assert (state, fate) == (JobState.DONE, Fate.WRITTEN)
    return tally


def last(make: Factory) -> bool:
    return len(make.specs) == 1


@pytest.mark.parametrize("times", [40, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stages", [ONE, TWO], ids=["last stage", "earlier stage"])
@pytest.mark.parametrize("force", [True, False], ids=["force", "ask"])
def test_o44_a_cancel_that_was_accepted_is_never_forgotten(
    make: Factory, sql: Sql, force: bool, stages: tuple[StageSpec, ...], times: int
) -> None:
    """At any moment around the end of a stage: the operator is told that it is cancelled, and then it is; or asked to
    stop, and then it stops unless that was its last stage; or that it is too late, and then it is done. Nothing that
    was cancelled begins again."""
    make.site(stages=stages)
    seed = random.randrange(10**6)
    print(f"seed {seed}")

    tally = race(make, times, force=force, dice=random.Random(seed))

    assert sum(tally.values()) == times
    if len(stages) == 1:
        assert tally["too late"] >= 1  # both orders have been met
        assert tally["cancelled" if force else "asked"] >= 1
    else:
        assert tally["too late"] == 0
    rows = [make.row("lane", n) for n in range(1, times + 1)]
    assert make.services.planning.plan(make.site_id, rows).new == 0
    assert [make.claim(spec.name, times) for spec in stages] == [[]] * len(stages)
    assert sql("SELECT count(*) FROM jobs WHERE topic_id IS NOT NULL")[0][0] == times
