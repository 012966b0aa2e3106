"""A scenario on a database: its scene, its orders, and sessions of actors with an isolation default of their own."""

from dataclasses import replace

from sqlalchemy import Engine, make_url

from pipeline.build import services
from pipeline.testing import database
from tests.factories import Factory
from tests.interleavings import scenes
from tests.interleavings.ground import Ground
from tests.interleavings.orders import LEVELS, SCENARIOS, Count, Orders, Scenario

__all__ = ["SCENARIOS", "as_role", "play", "play_at_all", "scenes"]


def as_role(url: str, level: str) -> str:
    """The URL for sessions whose transactions are at this level where they say nothing else."""
    options = "-c default_transaction_isolation=" + level.replace(" ", r"\ ")
    return make_url(url).update_query_dict({"options": options}).render_as_string(hide_password=False)


def play(scenario: Scenario, level: str, url: str, engine: Engine, ground: Ground) -> Count:
    """Every order of the scenario; raises AssertionError with the one that broke something."""
    with engine.begin() as connection:
        database.empty(connection)
    make = Factory(engine, services(engine))
    staged = scenario.scene(make, level)
    count = Orders(scenario.name, staged, make, ground, level).run(as_role(url, level), url)
    ground.tidy()
    return count


def play_at_all(scenario: Scenario, url: str, engine: Engine, ground: Ground) -> Count:
    """The same at each level. Raises AssertionError where the levels differ in more than callers' own transactions."""
    counts = [play(scenario, level, url, engine, ground) for level in LEVELS]
    if not scenario.of_callers:
        assert counts == [counts[0]] * len(LEVELS), f"{scenario.name}: the levels differ: {list(map(str, counts))}"
    return replace(sum(counts, Count()), scenarios=1)
