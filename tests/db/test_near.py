"""What a page asks of its lane: the live pages next to it."""

from collections.abc import Callable

import pytest

from pipeline.views import PageCard
from tests.db.conftest import Sql
from tests.factories import Factory

Near = Callable[..., list[int]]

pytestmark = pytest.mark.plants_faults  # pages are made live without anybody having worked on them


@pytest.fixture
def near(make: Factory, sql: Sql) -> Near:
    """Positions of the pages near a topic, in a lane of 150 of which those at ``live`` are live."""
    make.plan(count=150)
    ids = {row.position: row.id for row in sql("SELECT position, id FROM topics")}

    def ask(me: int, most: int = 4, *, live: range | list[int], also: int | None = None) -> list[int]:
        sql(
            "INSERT INTO publications (site_id, topic_id, target, live_path, live_hash, live_remote, live_fence,"
            " first_at, changed_at, intent_path, intent_hash) SELECT site_id, id, 'files', path, 'h', 'r', 1, now(),"
            " now(), path, 'h' FROM topics WHERE position = ANY(:live)",
            live=list(live),
        )
        found = make.services.reading.near(ids[me], "files", most, None if also is None else ids[also])
        assert all(isinstance(card, PageCard) and card.lane == "lane" for card in found)
        return [card.position for card in found]

    return ask


@pytest.mark.parametrize(
    ("me", "live", "found"),
    [
        (10, range(1, 10), [6, 7, 8, 9]),
        (10, range(1, 100), [6, 7, 8, 9]),
        (10, [2, 5, 9, 12], [2, 5, 9, 12]),
        (1, range(2, 9), [2, 3, 4, 5]),
        (10, [], []),
        (100, [35, 36], [36]),
        (100, [164 - 15, 150], [149, 150]),
    ],
    ids=str,
)
def test_the_pages_before_it_or_else_behind(near: Near, me: int, live: list[int], found: list[int]) -> None:
    """By position, and no further away than 64 topics."""
    assert near(me, live=live) == found


def test_one_more_page_by_name_live_or_not(near: Near) -> None:
    assert near(10, live=range(5, 10), also=3) == [3, 6, 7, 8, 9]
    assert near(5, 2, live=[], also=1) == [1, 6, 7]


def test_another_target_has_its_own(make: Factory, near: Near, sql: Sql) -> None:
    near(10, live=range(1, 10))

    (me,) = sql("SELECT id FROM topics WHERE position = 10")
    assert make.services.reading.near(me.id, "elsewhere", 4) == ()
