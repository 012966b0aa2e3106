"""An older and a newer release of one project work on one site side by side."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.service.planning import StageSpec
from tests.factories import STAGES, Factory
from tests.processes.conftest import Facts, process_of
from tests.processes.project import Project, until

BOTH = """
    class Generate(Stage):
        def run(self, topic, ctx):
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
"""
NEW = """
    class Translate(Stage):
        retry = NOW

        def run(self, topic, ctx):
            if topic.position % 5 == 0 and ctx.attempt == 1:
                return Retry("another try", timedelta(seconds=0.2))
            time.sleep(0.01)
            return Done()
"""
NEWER = (*STAGES[:2], StageSpec("translate", None, 5), STAGES[2])
LANES = ("a", "b", "c")
EACH = 20


@pytest.fixture
def releases(tmp_path: Path, database_url: str) -> Iterator[tuple[Project, Project]]:
    """The older release, and the newer one, which has a stage more."""
    projects = []
    for name in ("older", "newer"):
        (tmp_path / name).mkdir()
        projects.append(Project(tmp_path / name, database_url))
        projects[-1].site()
    older, newer = projects
    older.stages(BOTH + "\n    PIPELINE = (Generate, Validate, Publish)\n")
    newer.stages(BOTH + NEW + "\n    PIPELINE = (Generate, Validate, Translate, Publish)\n")
    try:
        yield older, newer
    finally:
        older.end()
        newer.end()


def in_order(facts: Facts, ids: list[int]) -> bool:
    """Whether each page of a lane was released after the one before it."""
    turns = {a.job_id: a for a in facts.attempts() if a.stage == "publish" and a.outcome == "done"}
    return all(turns[one].ended_at <= turns[next_].reserved_at for one, next_ in itertools.pairwise(ids))


def test_a_stage_is_added_and_retired_under_load(
    releases: tuple[Project, Project], make: Factory, facts: Facts
) -> None:
    """Whoever registers last: nothing is stranded, the older release does not touch what it does not know, and every
    lane is published in its order."""
    older, newer = releases
    make.site()
    ids = {lane: make.plan(lane=lane, count=EACH) for lane in LANES}
    workers = [older.worker(CONCURRENCY="3"), older.worker(CONCURRENCY="3"), newer.worker(CONCURRENCY="3")]

    def work_goes_on(more: int) -> None:
        seen = len(facts.attempts())
        until(lambda: len(facts.attempts()) >= seen + more, "work goes on")

    work_goes_on(5)
    for turn in range(6):  # a roll-out: runs of both releases, one after the other
        make.site(stages=STAGES if turn % 2 else NEWER)
        work_goes_on(5)
    until(
        lambda: any(a.stage == "translate" and a.outcome == "retry" for a in facts.attempts()), "one is to be retried"
    )
    make.services.planning.retire(make.site_id, "translate", actor="test")
    facts.until("done", len(LANES) * EACH)

    done = [a for a in facts.attempts() if a.outcome == "done"]
    by_stage = {name: [a for a in done if a.stage == name] for name in ("generate", "validate", "translate", "publish")}
    assert [len(by_stage[name]) for name in ("generate", "validate", "publish")] == [len(LANES) * EACH] * 3
    assert 0 < len(by_stage["translate"]) < len(LANES) * EACH
    assert {process_of(a.worker) for a in facts.attempts() if a.stage == "translate"} == {workers[2].pid}
    assert all(in_order(facts, lane) for lane in ids.values())
    assert [w.stop() for w in workers] == [0, 0, 0]


def test_the_newer_release_takes_up_what_the_older_leaves(
    releases: tuple[Project, Project], make: Factory, facts: Facts
) -> None:
    """Workers of the older one refuse nothing: jobs wait at the stage that only the newer one knows."""
    older, newer = releases
    make.site(stages=NEWER)
    ids = make.plan(count=3)
    old = older.worker()
    until(lambda: {make.job(i).stage for i in ids} == {"translate"}, "all stand at the new stage")
    until(lambda: facts.holders() == set(), "nobody holds any")

    newer.worker()
    facts.until("done", 3)

    assert in_order(facts, ids)
    assert old.stop() == 0
