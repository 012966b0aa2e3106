"""Prune beside planning and people: what is about to be followed stays, what was is taken, and nobody waits."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from pipeline.build import Services
from pipeline.service.acknowledging import Verb
from pipeline.service.audit import Audit
from pipeline.service.prune import Pruned
from pipeline.sql import prune
from tests.concurrency.stage import CLOCK, SCHEMA, Play
from tests.factories import ACTOR, Factory

pytestmark = pytest.mark.guarantee("R28")

AT_ONCE = timedelta(0)
CHOOSE = prune.choose(CLOCK, assemblies=False)


def prunes(make: Factory) -> Callable[[Services], Pruned]:
    return lambda s: s.prune.prune(make.site_id, AT_ONCE, actor=ACTOR)


def plans(make: Factory, said: str) -> Callable[[Services], object]:
    return lambda s: s.planning.plan(make.site_id, [make.row("lane", 1, input_hash=said)])


def passes(engine: Engine) -> list[tuple[int, str]]:
    with engine.begin() as connection:
        found = connection.execute(text(f"SELECT pass, state FROM {SCHEMA}.jobs ORDER BY pass"))
        return [tuple(row) for row in found]


@pytest.fixture
def twice(make: Factory) -> int:
    """The number of a topic's second pass, which is skipped, as its first was."""
    make.services.operate.skip(make.plan(), actor=ACTOR)
    make.services.planning.plan(make.site_id, [make.row("lane", 1, input_hash="second")])
    (job_id,) = make.job_ids()
    make.services.operate.skip([job_id], actor=ACTOR)
    return job_id


def test_a_pass_that_is_followed_while_others_are_pruned_stays_for_now(
    play: Play, make: Factory, engine: Engine, twice: int
) -> None:
    """What was the newest when they were chosen is not taken; the planner waits for nothing, and neither does audit."""
    pruner, planner = play.actor("pruner"), play.actor("planner")
    stop = pruner.after(CHOOSE)
    pruning = pruner.does(prunes(make))
    stop.reached()
    planner.does(plans(make, "third")).result()
    seen = Audit(engine, SCHEMA).violations()

    stop.go()

    assert pruning.result().passes == 2  # the second one by the next batch, now that another has followed it
    assert seen == []
    assert passes(engine) == [(3, "pending")]


def test_a_pass_that_is_about_to_be_followed_stays(play: Play, make: Factory, engine: Engine, twice: int) -> None:
    """Until the planner commits, it is the newest."""
    pruner, planner = play.actor("pruner"), play.actor("planner")
    stop = planner.before_commit()
    planning = planner.does(plans(make, "third"))
    stop.reached()

    gone = pruner.does(prunes(make)).result()

    assert gone.passes == 1
    assert passes(engine) == [(2, "skipped")]
    assert Audit(engine, SCHEMA).violations() == []
    stop.go()
    planning.result()
    assert passes(engine) == [(2, "skipped"), (3, "pending")]


@pytest.mark.parametrize("first", ["prune", "requeue"])
def test_a_requeue_and_a_prune_of_the_same_topic_do_not_meet(
    play: Play, make: Factory, engine: Engine, twice: int, first: str
) -> None:
    """Whichever is open: the failed pass goes back to work, the one before it is gone."""
    make.services.planning.plan(make.site_id, [make.row("lane", 1, input_hash="third")])
    make.say(make.claim("generate")[0], Verb.FAIL, error="no")
    (failed,) = make.job_ids()
    pruner, operator = play.actor("pruner"), play.actor("operator")

    def requeues(s: Services) -> object:
        return s.operate.requeue([failed], actor=ACTOR)

    if first == "prune":
        stop = pruner.after(prune.forget_passes())
        open_one = pruner.does(prunes(make))
        stop.reached()
        operator.does(requeues).result()
    else:
        stop = operator.before_commit()
        open_one = operator.does(requeues)
        stop.reached()
        pruner.does(prunes(make)).result()
    seen = Audit(engine, SCHEMA).violations()

    stop.go()

    open_one.result()
    assert seen == []
    assert passes(engine) == [(3, "pending")]


def test_two_prunes_share_the_work(play: Play, make: Factory, engine: Engine, twice: int) -> None:
    """What one has locked the other leaves alone: nothing is counted twice."""
    one, other = play.actor("one"), play.actor("other")
    stop = one.after(CHOOSE)
    pruning = one.does(prunes(make))
    stop.reached()

    second = other.does(prunes(make)).result()

    stop.go()
    assert second == Pruned()
    assert pruning.result().passes == 1
    assert passes(engine) == [(2, "skipped")]
