"""A process is killed at one exact place; whoever comes next makes the site whole, in order, each page once."""

import hashlib
import itertools
import signal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from pipeline.build import Services
from pipeline.content.files import FILES
from pipeline.sql.tables import attempts, jobs, topics
from pipeline.testing import drain
from tests.factories import Factory
from tests.failpoints.child import WITNESS
from tests.failpoints.conftest import Maker
from tests.failpoints.points import AFTER, PLAN, POINTS, RENAME, SKIP, UNHEARD, Point
from tests.failpoints.work import COUNT, EFFECTS, SITE, SPECS, STAGES, rows, write_project

CHOSEN = [pytest.param(p, id=p.id, marks=[] if p.quick else pytest.mark.slow) for p in POINTS]


class Left:
    """What a killed process and its successor left behind."""

    def __init__(self, engine: Engine, services: Services, root: Path, site_id: int) -> None:
        self._engine = engine
        self._services = services
        self._root = root
        self._site_id = site_id

    def states(self) -> dict[str, str]:
        """The state of each topic's only pass."""
        with self._engine.begin() as connection:
            found = connection.execute(
                select(topics.c.slug, jobs.c.state).select_from(topics.join(jobs, jobs.c.topic_id == topics.c.id))
            ).all()
        assert len(found) == COUNT
        return {slug: state for slug, state in found}

    def done(self, stage: str) -> list[Any]:
        with self._engine.begin() as connection:
            found = connection.execute(
                select(attempts)
                .join(jobs, jobs.c.id == attempts.c.job_id)
                .where(attempts.c.outcome == "done", attempts.c.stage == stage)
                .order_by(jobs.c.position, attempts.c.fence)
            )
            return list(found)

    def twice_accepted(self) -> list[Any]:
        """Stages of one round of one pass that were accepted more than once."""
        ended = [(a.job_id, a.stage, a.round) for stage in STAGES.pipeline for a in self.done(stage)]
        return [key for key in set(ended) if ended.count(key) > 1]

    def ledger(self) -> dict[str, str]:
        pages = self._services.reading.live(self._site_id, FILES)
        return {page.path: page.hash for page in pages}

    def files(self) -> dict[str, str]:
        root = self._root / "public" / SITE
        found = [p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".pipeline-")]
        return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}

    def written(self) -> list[str]:
        """The pages that stages wrote, each time that they did and lived to tell."""
        trace = self._root / EFFECTS
        return trace.read_text().split() if trace.exists() else []


def comes_to(point: Point) -> dict[str, str]:
    """The states of both topics in the end."""
    if point.trouble == "fail":
        return {"topic-1": "failed", "topic-2": "waiting"}
    skipped = point.action == SKIP and point.place == UNHEARD
    return {"topic-1": "skipped" if skipped else "done", "topic-2": "done"}


@pytest.mark.guarantee("R10")
@pytest.mark.guarantee("R18")
@pytest.mark.parametrize("point", CHOSEN)
def test_a_process_killed_here_leaves_nothing_undone(
    point: Point, make: Factory, services: Services, engine: Engine, tmp_path: Path, database_url: str, maker: Maker
) -> None:
    """Killed at this place, and another takes over: every page is live once, in order, and every promise kept."""
    write_project(tmp_path)
    site_id = make.site(SITE, SPECS)
    if point.action != PLAN:
        services.planning.plan(site_id, rows(point.trouble))
    if point.what == "reap":
        (claim,) = make.claim("generate")
        make.expire(claim.job_id)
    left = Left(engine, services, tmp_path, site_id)

    status = maker.run(tmp_path, database_url, point)

    assert (status, (tmp_path / WITNESS).read_text()) == (-signal.SIGKILL, point.id)
    if point.action == PLAN:
        assert services.planning.plan(site_id, rows(point.trouble)).new == (0 if point.place == UNHEARD else COUNT)
    drain(services, tmp_path, SITE, stages=STAGES)
    assert left.states() == comes_to(point)
    assert left.twice_accepted() == []
    released = left.done("publish")
    assert len(released) == list(comes_to(point).values()).count("done")
    assert all(one.ended_at <= other.reserved_at for one, other in itertools.pairwise(released))
    assert left.files() == left.ledger()
    assert len(left.ledger()) == len(released)
    # Who died between the rename and its trace wrote a page that was then found by looking.
    assert len(left.written()) == len(released) - (point == Point(RENAME, AFTER, point.quick))
