"""Where a worker looks for work: what its floors leave out comes back, and what is over is not walked again."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from pipeline import rota as module
from pipeline.project.loading import Stages
from pipeline.rota import Rota
from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import BEGINNING
from pipeline.stages import Done, Outcome, Stage, StageContext
from pipeline.testing.database import SCHEMA
from pipeline.views import TopicView
from tests.bugs.blocks import Cost, ask
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory

ONE = (StageSpec("generate", None, 5),)
STRICT = (*ONE, StageSpec("publish", 1, 5))
FLOOR = (BEGINNING, 0)


class Nothing(Stage):
    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        return Done()


@pytest.fixture
def rota() -> Rota:
    return Rota(Stages({spec.name: Nothing() for spec in STRICT}, None))


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first look, none is at the whole."""
    monkeypatch.setattr(module, "PART", float("inf"))
    monkeypatch.setattr(module, "SELDOM", float("inf"))


def claim(make: Factory, rota: Rota, room: int = 9) -> list[int]:
    prefixes = rota.shares(room, [make.site_id])
    claims = make.services.work.claim(prefixes, "w") if prefixes else []
    rota.took(prefixes, claims)
    return [c.job_id for c in claims]


@contextmanager
def pinned(engine: Engine) -> Iterator[None]:
    """Another transaction keeps whatever is over from here on."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as other:
        other.execute(text(f"SELECT count(*) FROM {SCHEMA}.sites"))
        yield


def test_a_claim_goes_on_where_the_last_one_ended(make: Factory, rota: Rota, sql: Sql) -> None:
    """As long as claims are full, nothing before is looked at; after a short one, what became due just before is."""
    late, first, second, third = make.plan(count=4)
    sql("UPDATE jobs SET run_at = clock_timestamp() + interval '1 hour' WHERE id = :id", id=late)
    rota.look(make.services.work, make.site_id)

    assert claim(make, rota, 1) == [first]
    sql("UPDATE jobs SET run_at = (SELECT run_at FROM jobs WHERE id = :than) WHERE id = :id", id=late, than=first)
    assert claim(make, rota, 1) == [second]
    assert claim(make, rota, 2) == [third]
    rota.ready.add((make.site_id, "generate", 2))
    assert claim(make, rota, 2) == [late]


@pytest.mark.usefixtures("near")
def test_the_next_look_finds_what_was_committed_late(make: Factory, engine: Engine, rota: Rota, sql: Sql) -> None:
    """Due long before what was claimed already, when the transaction that made it so has taken its time."""
    early, late = make.plan(count=2)
    sql("UPDATE jobs SET run_at = clock_timestamp() + interval '1 hour' WHERE id = :id", id=early)
    with engine.connect() as other:
        due = f"UPDATE {SCHEMA}.jobs SET run_at = clock_timestamp() - interval '20 seconds' WHERE id = {early}"
        other.execute(text(due))
        for _ in range(3):
            rota.look(make.services.work, make.site_id)
        assert claim(make, rota) == [late]
        other.commit()

    rota.ready.add((make.site_id, "generate", 2))
    assert claim(make, rota) == []
    rota.look(make.services.work, make.site_id)
    assert claim(make, rota) == [early]


def test_a_look_at_the_whole_finds_whatever_there_is(make: Factory, rota: Rota, sql: Sql) -> None:
    """However long ago it became due; and such a look comes soon while it takes next to no time."""
    early, late = make.plan(count=2)
    sql("UPDATE jobs SET run_at = clock_timestamp() + interval '1 hour' WHERE id = :id", id=early)
    rota.look(make.services.work, make.site_id)
    assert claim(make, rota) == [late]

    sql("UPDATE jobs SET run_at = clock_timestamp() - interval '1 year' WHERE id = :id", id=early)

    while not claim(make, rota):
        rota.look(make.services.work, make.site_id)
    assert make.claim("generate", 9) == []


@pytest.mark.usefixtures("near")
def test_what_could_not_be_claimed_is_not_forgotten(make: Factory, rota: Rota, sql: Sql) -> None:
    """What stands pending at a paused stage is found when that opens, however many looks went by."""
    (job_id,) = make.plan()
    sql("UPDATE jobs SET run_at = run_at - interval '1 year'")
    make.services.planning.pause(make.site_id, "generate", actor=ACTOR)
    for _ in range(3):
        rota.look(make.services.work, make.site_id)
        assert claim(make, rota) == []

    make.services.planning.resume(make.site_id, "generate", actor=ACTOR)

    rota.look(make.services.work, make.site_id)
    assert claim(make, rota) == [job_id]


def test_a_near_look_finds_what_nobody_knew(make: Factory, sql: Sql) -> None:
    """Between two known prefixes, before the first and behind the last; only of the site that is asked for; in any
    order, and also when nothing is known or pending at all."""
    make.site("other")
    make.plan(count=1)
    make.site(stages=(StageSpec("a", None, 5), StageSpec("b", None, 5), StageSpec("c", None, 5)))
    site, look = make.site_id, make.services.work.look
    assert look(site, {}).ready == look(site).ready == set()
    assert look(site, {}).at <= look(site).at

    jobs = make.plan(count=4)
    for stage, priority, job_id in zip("abbc", (2, 1, 2, 2), jobs, strict=True):
        sql("UPDATE jobs SET stage = :stage, priority = :p WHERE id = :id", stage=stage, p=priority, id=job_id)
    a, b1, b2, c = (site, "a", 2), (site, "b", 1), (site, "b", 2), (site, "c", 2)

    assert look(site).ready == {a, b1, b2, c}
    assert look(site, {c: FLOOR, b2: FLOOR}).ready == {a, b2, c}  # the first of each gap
    assert look(site, {a: FLOOR, b1: FLOOR}).ready == {a, b1, b2}
    floor = (make.job(jobs[0]).run_at, jobs[0])
    assert look(site, {a: floor, b1: FLOOR}).ready == {b1, b2}
    assert set(look(site, {a: FLOOR}).first.items()) <= set(look(site).first.items())
    assert look(None, {}).ready != set()


def release(engine: Engine) -> int:
    with engine.begin() as connection:
        return int(connection.exec_driver_sql("SHOW server_version_num").scalar_one())


@pytest.mark.parametrize("stages", [ONE, STRICT], ids=["one stage", "strict"])
def test_what_is_over_is_not_walked_while_a_snapshot_is_pinned(
    scenery: Factory, rota: Rota, monkeypatch: pytest.MonkeyPatch, stages: tuple[StageSpec, ...]
) -> None:
    """Five times as much was done since: looks and claims touch as many blocks as before, but for larger indexes."""
    monkeypatch.setattr(module, "SHORT", timedelta(0))
    monkeypatch.setattr(module, "LONG", timedelta(0))
    make, engine = scenery, scenery.engine
    make.site(f"site-{len(stages)}", stages)
    work, lane = make.services.work, iter(range(999))

    def turn() -> list[int]:
        """Plan one each in ten lanes, and work them off; the blocks of looks and claims."""
        n = next(lane)
        make.services.planning.plan(make.site_id, [make.row(f"lane-{n}-{i}", 1) for i in range(10)])
        blocks = [0, 0]
        for _ in stages:
            with Cost(engine) as cost:
                rota.look(work, make.site_id)
            blocks[0] += cost.blocks
            prefixes = rota.shares(10, [make.site_id])
            with Cost(engine) as cost:
                claims = work.claim(prefixes, "w")
            blocks[1] += cost.blocks
            rota.took(prefixes, claims)
            rota.ready |= work.acknowledge([Ack(c, Verb.ADVANCE) for c in claims], wait=True).ready
        return blocks

    def grow(turns: int) -> list[int]:
        for _ in range(turns):
            turn()
        ask(engine, "ANALYZE")
        return turn()

    turn()
    monkeypatch.setattr(module, "PART", float("inf"))
    monkeypatch.setattr(module, "SELDOM", float("inf"))
    with pinned(engine):
        before, after = (grow(turns) for turns in (20, 80))

    # Before 18 the upper bound of a row comparison does not end a scan within a site: 47 and 89 blocks, not 35 and 35.
    more = 1.3 if release(engine) >= 180000 else 2
    assert [b <= more * a + 16 for a, b in zip(before, after, strict=True)] == [True] * 2, (before, after)
