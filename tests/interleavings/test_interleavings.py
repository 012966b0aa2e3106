"""Two or three actors, each verb cut into steps: whatever the order, one wins, all learn it, and nothing is stuck."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from tests.concurrency.stage import Play
from tests.interleavings.ground import Ground, ground as on_ground
from tests.interleavings.orders import LEVELS
from tests.interleavings.playing import SCENARIOS, as_role, play, play_at_all

# Each at one level, by turns; the long ones, and all at every level, are run by the other marker.
DAILY = [name for name, scenario in SCENARIOS.items() if not scenario.long]
TURNS = [(name, LEVELS[n % len(LEVELS)]) for n, name in enumerate(DAILY)]


@pytest.fixture
def ground(database_url: str) -> Iterator[Ground]:
    with on_ground(database_url) as ground:
        yield ground


@pytest.mark.parametrize(("name", "level"), TURNS)
def test_every_order(name: str, level: str, database_url: str, engine: Engine, ground: Ground) -> None:
    """The scenario's own property and the audit hold at the end of each order; somebody really met another."""
    count = play(SCENARIOS[name], level, database_url, engine, ground)

    assert count.runs > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_order_at_every_level(name: str, database_url: str, engine: Engine, ground: Ground) -> None:
    """The role's default changes nothing: the same orders, the same waits, the same ends."""
    count = play_at_all(SCENARIOS[name], database_url, engine, ground)

    assert count.runs > len(LEVELS)


@pytest.mark.parametrize("level", LEVELS)
def test_the_default_is_in_force_and_not_heeded(level: str, database_url: str) -> None:
    """A plain session of the actors' role is at its default; a verb's transaction at READ COMMITTED."""
    url = as_role(database_url, level)
    asked = "SELECT current_setting('transaction_isolation')"
    with create_engine(url, poolclass=NullPool).connect() as connection:
        default = connection.exec_driver_sql(asked).scalar_one()

    with Play(url) as play, play.actor("actor").engine.begin() as connection:
        ours = connection.exec_driver_sql(asked).scalar_one()

    assert default == level
    assert ours == "read committed"


def test_there_is_enough_of_it() -> None:
    """At least forty scenarios, the textbook's among them."""
    assert len(SCENARIOS) >= 40
    assert {name[: name.index("_")] for name in SCENARIOS if name[0] == "m" and name[1].isdigit()} >= {
        f"m{n}" for n in (1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    }
