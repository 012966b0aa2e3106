"""Planning in callers' own transactions, against each other and against work: nothing lost, nothing overtaken."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError

import pipeline
from pipeline import Conflict, PlannedTopic, Topic
from pipeline.build import Services
from pipeline.db import sqlstate
from pipeline.errors import NotFound, Refused
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.append import CLOCK
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.sql import append
from pipeline.sql.tables import jobs, lanes, topics
from pipeline.states import JobState as S
from tests.concurrency.stage import Actor, Play, Stop
from tests.factories import ACTOR, LEASE, STAGES, Factory, draft_of

LIMITED = (StageSpec("generate", 1, 5), StageSpec("publish", 1, 5))
LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
STRONG = LEVELS[1:]


class Regret(Exception):
    """What a caller rolls back for."""


def topic(number: int, lane: str = "lane") -> Topic:
    return Topic(lane, f"{lane}-{number}", f"Number {number}", "page", {"n": number})


@contextmanager
def transaction(actor: Actor, level: str = LEVELS[0]) -> Iterator[Connection]:
    """A transaction of a caller, on the actor's connection."""
    with actor.engine.connect().execution_options(isolation_level=level) as connection, connection.begin():
        yield connection


def plans(
    actor: Actor, given: Sequence[Topic], level: str = LEVELS[0], *, regret: Stop | None = None
) -> Callable[[Services], list[PlannedTopic]]:
    """Plan in a transaction of the actor's own; with ``regret``, stop there and roll back."""

    def body(_: Services) -> list[PlannedTopic]:
        with transaction(actor, level) as connection:
            planned = pipeline.plan(connection, "acme", given)
            if regret is not None:
                regret._meet()
                raise Regret
            return planned

    return body


def shape(engine: Engine) -> list[tuple[str, int, str, int]]:
    """``(lane, position, slug, passes)`` of every topic."""
    with engine.begin() as connection:
        found = connection.execute(
            select(lanes.c.name, topics.c.position, topics.c.slug, func.count(jobs.c.id))
            .select_from(topics.join(lanes, lanes.c.id == topics.c.lane_id).join(jobs, jobs.c.topic_id == topics.c.id))
            .group_by(lanes.c.name, topics.c.position, topics.c.slug)
            .order_by(lanes.c.name, topics.c.position)
        )
        return [tuple(row) for row in found]


@pytest.mark.guarantee("R2")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("known_lane", [True, False], ids=["known-lane", "new-lane"])
def test_m11_a_winner_that_rolls_back_leaves_the_topic_to_the_other(
    play: Play, make: Factory, engine: Engine, level: str, known_lane: bool
) -> None:
    """The same key at once: whoever waits plans it when the first takes it back."""
    make.site()
    if known_lane:
        make.plan()
    one, other = play.actor("one"), play.actor("other")
    stop = Stop("regret", 1)
    first = one.does(plans(one, [topic(7)], regret=stop))
    stop.reached()
    second = other.does(plans(other, [topic(7)], level))
    play.wait_until_blocked(other, one)

    stop.go()

    assert isinstance(first.error(), Regret)
    (planned,) = second.result()
    assert planned.new
    assert shape(engine)[-1] == ("lane", 2 if known_lane else 1, "lane-7", 1)
    assert other.sqlstates == []


@pytest.mark.guarantee("R2")
@pytest.mark.parametrize("known_lane", [True, False], ids=["known-lane", "new-lane"])
def test_m12_whoever_waited_is_given_the_winners_topic(
    play: Play, make: Factory, engine: Engine, known_lane: bool
) -> None:
    """The same key at once, and the first commits: one topic, one job, and both have its ids."""
    make.site()
    if known_lane:
        make.plan()
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(plans(one, [topic(7)]))
    stop.reached()
    second = other.does(plans(other, [topic(7)]))
    play.wait_until_blocked(other, one)

    stop.go()

    (mine,), (theirs,) = first.result(), second.result()
    assert (mine.new, theirs.new) == (True, False)
    assert (mine.topic_id, mine.job_id, mine.position) == (theirs.topic_id, theirs.job_id, theirs.position)
    assert len(shape(engine)) == (2 if known_lane else 1)


@pytest.mark.guarantee("R2")
@pytest.mark.parametrize("level", STRONG)
@pytest.mark.parametrize("known_lane", [True, False], ids=["known-lane", "new-lane"])
def test_m12_a_caller_in_one_snapshot_repeats_its_transaction(
    play: Play, make: Factory, engine: Engine, level: str, known_lane: bool
) -> None:
    """There the server says 40001 of what committed meanwhile; the whole transaction again finds the winner's topic."""
    make.site()
    if known_lane:
        make.plan()
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(plans(one, [topic(7)]))
    stop.reached()
    second = other.does(plans(other, [topic(7)], level))
    play.wait_until_blocked(other, one)

    stop.go()

    (mine,) = first.result()
    lost = second.error()
    assert isinstance(lost, DBAPIError)
    assert sqlstate(lost) == "40001"
    (again,) = other.does(plans(other, [topic(7)], level)).result()
    assert (again.topic_id, again.job_id, again.new) == (mine.topic_id, mine.job_id, False)
    assert len(shape(engine)) == (2 if known_lane else 1)


@pytest.mark.parametrize("level", LEVELS)
def test_one_snapshot_plans_what_it_does_not_see_change(make: Factory, engine: Engine, play: Play, level: str) -> None:
    """Alone, every level of isolation plans, plans again, and commits."""
    make.site()
    one = play.actor("one")

    with transaction(one, level) as connection:
        first = pipeline.plan(connection, "acme", [topic(1), topic(1, "other")])
        again = pipeline.plan(connection, "acme", [topic(1), topic(2)])

    assert (again[0].topic_id, again[0].new, again[1].new) == (first[0].topic_id, False, True)
    assert shape(engine) == [("lane", 1, "lane-1", 1), ("lane", 2, "lane-2", 1), ("other", 1, "other-1", 1)]


@pytest.mark.guarantee("R2")
def test_o24_five_callers_of_one_key_and_the_first_rolls_back(play: Play, make: Factory, engine: Engine) -> None:
    """Exactly one job exists, and every caller that succeeded holds its id."""
    make.site()
    actors = [play.actor(f"caller {n}") for n in range(5)]
    stop = Stop("regret", 1)
    first = actors[0].does(plans(actors[0], [topic(1)], regret=stop))
    stop.reached()
    others = [actor.does(plans(actor, [topic(1)])) for actor in actors[1:]]
    play.wait_until_blocked(actors[1], actors[0])

    stop.go()

    assert isinstance(first.error(), Regret)
    answers = [act.result()[0] for act in others]
    assert len({a.job_id for a in answers}) == 1
    assert sorted(a.new for a in answers) == [False, False, False, True]
    assert shape(engine) == [("lane", 1, "lane-1", 1)]


@pytest.mark.guarantee("R1")
@pytest.mark.parametrize("commit", [True, False], ids=["commits", "rolls-back"])
def test_o26_a_caller_that_does_not_know_whether_it_committed_plans_again(
    play: Play, make: Factory, engine: Engine, commit: bool
) -> None:
    """Its session ended at the commit: the same call gives the same topic, or a new one where nothing had arrived."""
    make.site()
    one, other = play.actor("one"), play.actor("other")
    connection = one.engine.connect()
    (before,) = pipeline.plan(connection, "acme", [topic(1)])
    if commit:
        connection.connection.driver_connection.execute("COMMIT")  # type: ignore[union-attr]
    with other.engine.begin() as killer:
        killer.exec_driver_sql(f"SELECT pg_terminate_backend({one.pid}, 5000)")
    with pytest.raises(DBAPIError):
        connection.exec_driver_sql("SELECT 1")
    connection.close()

    (after,) = other.does(plans(other, [topic(1)])).result()

    assert after.new is not commit
    assert (after.topic_id == before.topic_id) is commit
    assert shape(engine) == [("lane", 1, "lane-1", 1)]


@pytest.mark.parametrize("commit", [True, False], ids=["commits", "rolls-back"])
def test_one_name_in_two_lanes_is_a_conflict_once_the_other_commits(
    play: Play, make: Factory, engine: Engine, commit: bool
) -> None:
    """No lane's row is shared, so the name decides; whoever is refused keeps its transaction, and no lane locked."""
    make.site()
    make.plan(lane="a")
    make.plan(lane="b")
    mine, theirs = Topic("a", "same", "Same", "page"), Topic("b", "same", "Same", "page")
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit() if commit else Stop("regret", 1)
    first = one.does(plans(one, [mine], regret=None if commit else stop))
    stop.reached()

    def tries(_: Services) -> list[PlannedTopic]:
        with transaction(other) as connection:
            try:
                return pipeline.plan(connection, "acme", [topic(8, "b"), theirs])
            except Conflict:
                return pipeline.plan(connection, "acme", [topic(9, "b")])

    second = other.does(tries)
    play.wait_until_blocked(other, one)
    stop.go()

    planned = second.result()
    assert isinstance(first.error(), Regret) if not commit else first.result()
    assert [p.slug for p in planned] == (["b-9"] if commit else ["b-8", "same"])
    assert [p.position for p in planned] == ([2] if commit else [2, 3])


def test_one_path_of_two_names_is_a_conflict_once_the_other_commits(play: Play, make: Factory, engine: Engine) -> None:
    """Where patterns send two names to one path, the server's refusal is told as ours."""
    make.site()
    with engine.begin() as connection:
        connection.exec_driver_sql("""UPDATE pipeline.sites SET settings = '{"paths": {"country": "{lane}/"}}'""")
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(plans(one, [Topic("japan", "guide", "Japan", "country")]))
    stop.reached()
    second = other.does(plans(other, [Topic("words", "japan", "Japan", "page")]))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result()[0].new
    assert isinstance(second.error(), Conflict)
    assert shape(engine) == [("japan", 1, "guide", 1)]


def test_o22_a_lower_position_never_appears_after_a_higher_one_has_run(
    play: Play, make: Factory, engine: Engine
) -> None:
    """Positions equal commit order: the second waits for the first's lane, and a worker between them sees neither."""
    make.site()
    make.plan()
    one, other, worker = play.actor("one"), play.actor("other"), play.actor("worker")
    stop = one.before_commit()
    first = one.does(plans(one, [topic(7)]))
    stop.reached()
    second = other.does(plans(other, [topic(8)]))
    play.wait_until_blocked(other, one)

    claimed = worker.does(lambda s: s.work.claim([Prefix(make.site_id, "generate", 2, 9, LEASE)], "worker")).result()
    stop.go()

    assert [c.topic.position for c in claimed if c.topic] == [1]
    assert (first.result()[0].position, second.result()[0].position) == (2, 3)
    assert [c.topic.position for c in make.claim("generate", 9) if c.topic] == [2, 3]


@pytest.mark.parametrize("level", LEVELS)
def test_several_lanes_are_taken_in_one_order(play: Play, make: Factory, engine: Engine, level: str) -> None:
    """However they are given, two plans over the same lanes wait for each other, and never both."""
    make.site()
    make.plan(lane="a")
    make.plan(lane="b")
    one, other = play.actor("one"), play.actor("other")
    stop = one.before(append.add(CLOCK))
    first = one.does(plans(one, [topic(8, "b"), topic(8, "a"), topic(8, "c")], level))
    stop.reached()
    second = other.does(plans(other, [topic(9, "c"), topic(9, "a"), topic(9, "b")]))
    play.wait_until_blocked(other, one)

    stop.go()

    assert all(p.new for p in first.result() + second.result())
    assert one.sqlstates == other.sqlstates == []
    assert [(lane, slug) for lane, _, slug, _ in shape(engine)] == [
        ("a", "a-1"), ("a", "a-8"), ("a", "a-9"), ("b", "b-1"), ("b", "b-8"), ("b", "b-9"), ("c", "c-8"), ("c", "c-9"),
    ]  # fmt: skip


@pytest.mark.parametrize("lanes_made", [("a", "z"), ("z", "a")], ids=["a-first", "z-first"])
def test_lanes_are_locked_in_the_order_of_their_ids(play: Play, make: Factory, lanes_made: tuple[str, str]) -> None:
    """As everywhere: whoever waits for a lane holds none that was made later."""
    make.site()
    for name in lanes_made:
        make.plan(lane=name)
    holder, waiter, third = (play.actor(name) for name in ("holder", "waiter", "third"))
    early, late = lanes_made
    stop = holder.before_commit()
    holding = holder.does(plans(holder, [topic(7, early)]))
    stop.reached()
    waiting = waiter.does(plans(waiter, [topic(8, "z"), topic(8, "a")]))
    play.wait_until_blocked(waiter, holder)

    (planned,) = third.does(plans(third, [topic(9, late)])).result()
    stop.go()

    assert planned.position == 2
    assert all(p.new for p in holding.result() + waiting.result())


def test_whoever_makes_a_lane_holds_none_while_it_waits_for_the_stages(play: Play, make: Factory) -> None:
    """Stages come before lanes, so a plan that found one of its lanes missing lets go of those that it had found."""
    make.site()
    make.plan(lane="old")
    holder, waiter, third = (play.actor(name) for name in ("holder", "waiter", "third"))
    stop = holder.before_commit()

    def holds(_: Services) -> None:
        with transaction(holder) as connection:
            connection.exec_driver_sql("SELECT name FROM pipeline.stages FOR UPDATE")

    holding = holder.does(holds)
    stop.reached()
    waiting = waiter.does(plans(waiter, [topic(7, "new"), topic(7, "old")]))
    play.wait_until_blocked(waiter, holder)

    (planned,) = third.does(plans(third, [topic(8, "old")])).result()
    stop.go()

    holding.result()
    assert planned.position == 2
    assert [p.position for p in waiting.result()] == [1, 3]


def test_a_plan_of_the_file_and_one_of_a_caller_take_turns(play: Play, make: Factory, engine: Engine) -> None:
    """The run's own plan waits for the lane, then finds the caller's topic there and leaves it alone."""
    make.site()
    make.plan()
    caller, run = play.actor("caller"), play.actor("run")
    stop = caller.before_commit()
    first = caller.does(plans(caller, [topic(7)]))
    stop.reached()
    second = run.does(lambda s: s.planning.plan(make.site_id, [make.row("lane", n) for n in (1, 2)]))
    play.wait_until_blocked(run, caller)

    stop.go()

    assert first.result()[0].position == 2
    assert (second.result().new, second.result().absent) == (1, ("lane-7",))
    assert shape(engine) == [("lane", 1, "lane-1", 1), ("lane", 2, "lane-7", 1), ("lane", 3, "lane-2", 1)]


@pytest.mark.parametrize("stages", [STAGES, LIMITED], ids=["free", "limited"])
@pytest.mark.parametrize("level", LEVELS[:2])
@pytest.mark.parametrize("plan_first", [True, False], ids=["plan-first", "pause-first"])
def test_a_pause_misses_no_topic(play: Play, make: Factory, stages: Any, level: str, plan_first: bool) -> None:
    """Whoever comes second to the lane's row sees the other: all of the lane waits, and goes on when it is resumed."""
    make.site(stages=stages)
    make.plan()
    caller, operator = play.actor("caller"), play.actor("operator")
    pauses: Callable[[Services], object] = lambda s: s.lanes.pause(make.site_id, "lane", actor=ACTOR)  # noqa: E731
    if plan_first:
        stop = caller.before_commit()
        planning = caller.does(plans(caller, [topic(7)], level))
        stop.reached()
        pausing = operator.does(pauses)
        play.wait_until_blocked(operator, caller)
    else:
        stop = operator.before_commit()
        pausing = operator.does(pauses)
        stop.reached()
        planning = caller.does(plans(caller, [topic(7)], level))
        play.wait_until_blocked(caller, operator)

    stop.go()

    pausing.result()
    if level in STRONG and not plan_first:
        assert sqlstate(planning.error()) == "40001"
        planning = caller.does(plans(caller, [topic(7)], level))
    planning.result()
    assert {make.state(job_id) for job_id in make.job_ids()} == {S.WAITING}
    make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
    assert make.state(make.job_ids()[0]) is S.PENDING
    assert make.state(make.job_ids()[1]) is (S.WAITING if stages is LIMITED else S.PENDING)


@pytest.mark.parametrize("close_first", [True, False], ids=["close-first", "plan-first"])
def test_a_lane_that_closes_takes_what_came_before(play: Play, make: Factory, close_first: bool) -> None:
    """A plan that waited for the lane finds it closed; one that had it stays, and waits there."""
    make.site()
    make.plan()
    caller, operator = play.actor("caller"), play.actor("operator")
    closes: Callable[[Services], object] = lambda s: s.lanes.close(make.site_id, "lane", actor=ACTOR)  # noqa: E731
    actors: list[tuple[Actor, Callable[[Services], object]]] = [(operator, closes), (caller, plans(caller, [topic(7)]))]
    (one, begins), (other, follows) = actors if close_first else actors[::-1]
    stop = one.before_commit()
    first = one.does(begins)
    stop.reached()
    second = other.does(follows)
    play.wait_until_blocked(other, one)

    stop.go()

    first.result()
    if close_first:
        assert isinstance(second.error(), Refused)
    else:
        second.result()
    assert [make.state(job_id) for job_id in make.job_ids()] == [S.WAITING] * (1 if close_first else 2)


def test_a_site_that_is_removed_takes_nothing_and_the_caller_goes_on(play: Play, make: Factory) -> None:
    """A plan that waited for the lane of such a site is told so."""
    make.services.operate.skip(make.plan(), actor=ACTOR)
    caller, operator = play.actor("caller"), play.actor("operator")
    stop = operator.before_commit()
    removing = operator.does(lambda s: s.sites.remove(make.site_id, "acme", actor=ACTOR))
    stop.reached()

    def tries(_: Services) -> object:
        with transaction(caller) as connection:
            with pytest.raises(NotFound, match="site 'acme' was removed meanwhile"):
                pipeline.plan(connection, "acme", [topic(7)])
            return connection.exec_driver_sql("SELECT 1").scalar_one()

    planning = caller.does(tries)
    play.wait_until_blocked(caller, operator)
    stop.go()

    removing.result()
    assert planning.result() == 1


@pytest.mark.parametrize("level", LEVELS)
def test_work_goes_on_beside_an_open_plan_and_upkeep_gives_the_turn(play: Play, make: Factory, level: str) -> None:
    """A worker at a limited first stage waits for no plan; what it could not see is promoted by upkeep, in order."""
    make.site(stages=LIMITED)
    make.plan()
    (claim,) = make.claim("generate")
    caller, worker = play.actor("caller"), play.actor("worker")
    stop = caller.before_commit()
    planning = caller.does(plans(caller, [topic(7), topic(8)], level))
    stop.reached()

    ends = worker.does(lambda s: s.work.acknowledge([Ack(claim, Verb.ADVANCE, draft=draft_of(claim))], wait=True))
    fates = list(ends.result().fates.values())
    early = worker.does(lambda s: s.work.heal(make.site_id)).result()
    stop.go()
    seven, eight = planning.result()

    assert fates == [Fate.WRITTEN]
    assert early == 0
    assert make.state(seven.job_id) is S.WAITING
    assert make.services.work.heal(make.site_id) == 1
    assert (make.state(seven.job_id), make.state(eight.job_id)) == (S.PENDING, S.WAITING)


def test_a_plan_waits_for_no_gate(play: Play, make: Factory) -> None:
    """A worker that has the gates locked holds up nobody's transaction."""
    make.site(stages=LIMITED)
    make.plan()
    (claim,) = make.claim("generate")
    caller, worker = play.actor("caller"), play.actor("worker")
    stop = worker.before_commit()
    ends = worker.does(lambda s: s.work.acknowledge([Ack(claim, Verb.ADVANCE, draft=draft_of(claim))], wait=True))
    stop.reached()

    (planned,) = caller.does(plans(caller, [topic(7)])).result()
    stop.go()
    ends.result()

    assert make.state(planned.job_id) is S.WAITING
    assert make.services.work.heal(make.site_id) == 1
    assert make.state(planned.job_id) is S.PENDING


@pytest.mark.guarantee("R1")
def test_a_worker_never_meets_half_a_plan(play: Play, make: Factory) -> None:
    """Topics, jobs and the counter come with one commit: between the statements of a plan nothing can be claimed."""
    make.site()
    caller, worker = play.actor("caller"), play.actor("worker")
    stop = caller.after(append.add(CLOCK))
    planning = caller.does(plans(caller, [topic(n) for n in range(1, 4)]))
    stop.reached()

    claimed = worker.does(lambda s: s.work.claim([Prefix(make.site_id, "generate", 2, 9, LEASE)], "worker")).result()
    stop.go()
    planning.result()

    assert claimed == []
    assert len(make.claim("generate", 9)) == 3
