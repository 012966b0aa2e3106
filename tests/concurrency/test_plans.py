"""Planning against planning, and against work: each topic once, positions without gaps, one pass each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from pipeline.build import Services
from pipeline.project.site import Site
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.sql import append, places
from pipeline.sql.tables import jobs, lanes, sites, stages, topics
from pipeline.views import Planned, TopicRow
from tests.concurrency.stage import Play
from tests.factories import LEASE, STAGES, Factory, draft_of


def plans(make: Factory, rows: Sequence[TopicRow]) -> Callable[[Services], Planned]:
    return lambda s: s.planning.plan(make.site_id, rows)


def shape(engine: Engine) -> dict[str, list[tuple[int, str, int]]]:
    """By lane: ``(position, slug, passes)`` of its topics."""
    with engine.begin() as connection:
        found = connection.execute(
            select(lanes.c.name, topics.c.position, topics.c.slug, func.count(jobs.c.id))
            .select_from(topics.join(lanes, lanes.c.id == topics.c.lane_id).join(jobs, jobs.c.topic_id == topics.c.id))
            .group_by(lanes.c.name, topics.c.position, topics.c.slug)
            .order_by(lanes.c.name, topics.c.position)
        )
        by_lane: dict[str, list[tuple[int, str, int]]] = {}
        for lane, position, slug, passes in found:
            by_lane.setdefault(lane, []).append((position, slug, passes))
        return by_lane


@pytest.mark.parametrize("at", ["lanes", "topics", "commit"])
def test_two_plans_of_a_new_site_make_each_topic_once(play: Play, make: Factory, engine: Engine, at: str) -> None:
    """The second plan waits for the first one's lanes, then finds everything there."""
    make.site()
    rows = [make.row(lane, n) for lane in ("a", "b") for n in (1, 2, 3)]
    one, other = play.actor("one"), play.actor("other")
    match at:
        case "lanes":
            stop = one.after(places.lock_lanes())
        case "topics":
            stop = one.before(append.count())
        case _:
            stop = one.before_commit()
    first = one.does(plans(make, rows))
    stop.reached()
    second = other.does(plans(make, rows[::-1]))
    play.wait_until_blocked(other, one)

    stop.go()

    assert (first.result().new, second.result().new) == (6, 0)
    assert shape(engine) == {lane: [(n, f"{lane}-{n}", 1) for n in (1, 2, 3)] for lane in ("a", "b")}
    assert one.sqlstates == other.sqlstates == []


def test_two_plans_that_overlap_append_in_the_order_of_their_commits(play: Play, make: Factory, engine: Engine) -> None:
    """Positions come from the lane's counter, held to the commit: no gap, no topic twice."""
    make.site()
    make.plan(count=2)
    mine = [make.row("lane", n) for n in (1, 2, 3, 4)]
    theirs = [make.row("lane", n) for n in (1, 2, 4, 5)]
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(plans(make, mine))
    stop.reached()
    second = other.does(plans(make, theirs))
    play.wait_until_blocked(other, one)

    stop.go()

    assert (first.result().new, second.result().new) == (2, 1)
    assert shape(engine) == {"lane": [(n, f"lane-{n}", 1) for n in (1, 2, 3, 4, 5)]}


def test_a_change_that_two_plans_see_becomes_one_pass(play: Play, make: Factory, engine: Engine) -> None:
    """Two plans of the same new row make one new pass."""
    make.advance_to("publish")
    make.say(make.claim("publish")[0])
    changed = [replace(make.row("lane", 1), input_hash="another")]
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(plans(make, changed))
    stop.reached()
    second = other.does(plans(make, changed))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result().changed == 1
    assert second.result().changed == 0
    assert shape(engine) == {"lane": [(1, "lane-1", 2)]}


@pytest.mark.parametrize("plan_first", [True, False], ids=["plan-first", "work-first"])
def test_a_row_that_changes_while_its_pass_ends_gets_its_new_pass(
    play: Play, make: Factory, engine: Engine, plan_first: bool
) -> None:
    """Whether a plan sees the pass as busy or as done, the next one leaves exactly one new pass behind."""
    make.advance_to("publish")
    (last,) = make.claim("publish")
    changed = [replace(make.row("lane", 1), input_hash="another")]
    planner, worker = play.actor("planner"), play.actor("worker")
    ends: Callable[[Services], object] = lambda s: s.work.acknowledge([Ack(last, Verb.ADVANCE)], wait=True)  # noqa: E731
    if plan_first:
        stop = planner.before_commit()
        first = planner.does(plans(make, changed))
        stop.reached()
        second = worker.does(ends)
        play.wait_until_blocked(worker, planner)  # for the topic's row
        stop.go()
        first.result()
        second.result()
    else:
        stop = worker.before_commit()
        ending = worker.does(ends)
        stop.reached()
        planning = planner.does(plans(make, changed))
        play.wait_until_blocked(planner, worker)
        stop.go()
        ending.result()
        planning.result()

    make.services.planning.plan(make.site_id, changed)

    assert make.services.planning.plan(make.site_id, changed).changed == 0
    assert shape(engine) == {"lane": [(1, "lane-1", 2)]}


def test_a_worker_does_not_wait_for_an_open_plan(play: Play, make: Factory) -> None:
    """Claims and arrivals at later stages never touch a lane's row, which an open plan holds."""
    make.plan(count=1)
    planner, worker = play.actor("planner"), play.actor("worker")
    stop = planner.before_commit()
    planning = planner.does(plans(make, [make.row("lane", n) for n in (1, 2, 3)]))
    stop.reached()

    def works(s: Services) -> dict[int, Fate]:
        (claim,) = s.work.claim([Prefix(make.site_id, "generate", 2, 5, LEASE)], "worker")
        return s.work.acknowledge([Ack(claim, Verb.ADVANCE, draft=draft_of(claim))]).fates

    assert list(worker.does(works).result().values()) == [Fate.WRITTEN]
    stop.go()
    assert planning.result().new == 2


def test_two_registrations_make_one_site(play: Play, make: Factory, engine: Engine) -> None:
    """The site's row decides the turn; the stages are there once, in their order."""
    site = Site(slug="acme", folder=Path(), output=Path(), name="Acme", base_url="https://example.com")
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(lambda s: s.planning.register(site, STAGES))
    stop.reached()
    second = other.does(lambda s: s.planning.register(site, STAGES))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result() == second.result()
    with engine.begin() as connection:
        assert connection.execute(select(func.count()).select_from(sites)).scalar_one() == 1
        found = list(connection.execute(select(stages.c.name).order_by(stages.c.ordinal)).scalars())
    assert found == [s.name for s in STAGES]
    assert one.sqlstates == other.sqlstates == []


def test_a_stage_that_two_registrations_add_is_there_once(play: Play, make: Factory, engine: Engine) -> None:
    """A new stage between two old ones gets one place, whoever registers it first."""
    make.site()
    site = Site(slug="acme", folder=Path(), output=Path(), name="Acme", base_url="https://example.com")
    specs = [STAGES[0], StageSpec("illustrate", None, 3), *STAGES[1:]]
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(lambda s: s.planning.register(site, specs))
    stop.reached()
    second = other.does(lambda s: s.planning.register(site, specs))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result() == second.result() == make.site_id
    with engine.begin() as connection:
        found = list(connection.execute(select(stages.c.name).order_by(stages.c.ordinal)).scalars())
    assert found == [s.name for s in specs]
