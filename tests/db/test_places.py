"""Where topics stand: moved in their lane, to another, or put into the middle; no order that was kept is broken."""

import pytest

from pipeline.errors import NotFound, Refused
from pipeline.service.acknowledging import Verb
from pipeline.service.places import Moved, Place
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory


def order(sql: Sql, lane: str = "lane") -> list[str]:
    """The slugs of a lane by the places of their topics, which are those of their passes."""
    rows = sql(
        "SELECT t.slug, t.position, j.position FROM topics t JOIN jobs j ON j.topic_id = t.id"
        " JOIN lanes l ON l.id = t.lane_id AND l.id = j.lane_id WHERE l.name = :lane ORDER BY t.position",
        lane=lane,
    )
    assert [row[1] for row in rows] == [row[2] for row in rows]
    return [row[0] for row in rows]


def released(make: Factory) -> list[str]:
    """Publish all that can be; the slugs in that order."""
    slugs = []
    while claims := make.claim("publish"):
        assert claims[0].topic is not None
        slugs.append(claims[0].topic.slug)
        make.say(claims[0])
    return slugs


@pytest.mark.parametrize(
    ("mover", "where", "after"),
    [
        ("lane-4", {"before": "lane-2"}, ["lane-1", "lane-4", "lane-2", "lane-3"]),
        ("lane-4", {"after": "lane-2"}, ["lane-1", "lane-2", "lane-4", "lane-3"]),
        ("lane-2", {"after": "lane-4"}, ["lane-1", "lane-3", "lane-4", "lane-2"]),
        ("lane-2", {"before": "lane-4"}, ["lane-1", "lane-3", "lane-2", "lane-4"]),
        ("lane-1", {"after": "lane-2"}, ["lane-2", "lane-1", "lane-3", "lane-4"]),
        ("lane-2", {"before": "lane-1"}, ["lane-2", "lane-1", "lane-3", "lane-4"]),
    ],
)
def test_a_topic_is_released_where_it_was_moved_to(
    make: Factory, sql: Sql, mover: str, where: dict[str, str], after: list[str]
) -> None:
    """Earlier or later, also before the head that has its turn already, but has not begun."""
    make.advance_to("publish", count=4)

    make.services.places.move(make.site_id, mover, **where, actor=ACTOR)  # type: ignore[arg-type]

    assert order(sql) == after
    assert released(make) == after


def test_a_topic_does_not_move_to_where_its_lane_has_been(make: Factory, sql: Sql) -> None:
    """What was released stays before what was not."""
    make.advance_to("publish", count=4)
    make.say(make.claim("publish")[0])

    with pytest.raises(Refused, match="lane 'lane' has released up to position 1 at stage 'publish'"):
        make.services.places.move(make.site_id, "lane-3", before="lane-1", actor=ACTOR)

    assert order(sql) == ["lane-1", "lane-2", "lane-3", "lane-4"]


def test_nothing_moves_over_a_topic_that_is_running_there(make: Factory, sql: Sql) -> None:
    """The refusal says who holds it; behind it, moves are free."""
    make.advance_to("publish", count=4)
    (claim,) = make.claim("publish")

    with pytest.raises(Refused, match=f"job {claim.job_id} of lane 'lane' runs at stage 'publish'"):
        make.services.places.move(make.site_id, "lane-3", before="lane-1", actor=ACTOR)

    make.services.places.move(make.site_id, "lane-4", before="lane-2", actor=ACTOR)
    make.say(claim)
    assert released(make) == ["lane-4", "lane-2", "lane-3"]


def test_a_halted_head_moves_out_of_the_way(make: Factory) -> None:
    """A failed topic that is moved to the end no longer halts those that were behind it."""
    make.advance_to("publish", count=3)
    make.say(make.claim("publish")[0], Verb.FAIL)

    make.services.places.move(make.site_id, "lane-1", after="lane-3", actor=ACTOR)

    assert released(make) == ["lane-2", "lane-3"]
    make.services.operate.requeue([make.job_ids()[2]], actor=ACTOR)
    assert released(make) == ["lane-1"]


def test_a_topic_moves_to_the_end_of_another_lane(make: Factory, sql: Sql) -> None:
    """Its old lane goes on without it, and it waits for its turn in the new one."""
    make.advance_to("publish", lane="lane", count=2)
    make.plan(lane="other", count=2)

    moved = make.services.places.move_to_lane(make.site_id, "lane-1", "other", actor=ACTOR, reason="it belongs there")

    assert moved == Moved("lane-1", Place("lane", 1), Place("other", 3))
    assert (order(sql, "lane"), order(sql, "other")) == (["lane-2"], ["other-1", "other-2", "lane-1"])
    assert released(make) == ["lane-2"]
    assert sql("SELECT verb, from_state, to_state, reason FROM events") == [
        ("move", "pending", "waiting", "it belongs there")
    ]


def test_a_topic_that_runs_does_not_change_its_lane(make: Factory) -> None:
    make.plan(count=1)
    make.plan(lane="other")
    make.claim("generate")

    with pytest.raises(Refused, match="topic 'lane-1' is running"):
        make.services.places.move_to_lane(make.site_id, "lane-1", "other", actor=ACTOR)


def test_a_topic_that_is_over_stays_where_it_is(make: Factory) -> None:
    make.advance_to("publish", count=2)
    released(make)

    with pytest.raises(Refused, match="topic 'lane-2' is done or skipped"):
        make.services.places.move(make.site_id, "lane-2", before="lane-1", actor=ACTOR)


def test_a_new_topic_comes_into_the_middle(make: Factory, sql: Sql) -> None:
    """It goes through all stages, and those behind its place wait for it."""
    make.advance_to("publish", count=3)

    make.services.places.insert(make.site_id, make.row("lane", 9), "lane-2", actor=ACTOR)

    assert order(sql) == ["lane-1", "lane-9", "lane-2", "lane-3"]
    assert released(make) == ["lane-1"]
    for stage in ("generate", "validate"):
        make.say(make.claim(stage)[0])
    assert released(make) == ["lane-9", "lane-2", "lane-3"]


def test_a_new_topic_comes_before_a_head_that_has_not_begun(make: Factory) -> None:
    """The head gives its turn back and waits behind the new one."""
    (head,) = make.advance_to("publish")

    make.services.places.insert(make.site_id, make.row("lane", 9), "lane-1", actor=ACTOR)

    assert make.job(head).state == "waiting"
    assert make.claim("publish") == []


def test_what_is_planned_already_is_not_put_in_twice(make: Factory) -> None:
    make.plan(count=2)

    with pytest.raises(Refused, match="topic 'lane-2' is planned already; move it: pipeline topics move"):
        make.services.places.insert(make.site_id, make.row("lane", 2), "lane-1", actor=ACTOR)
    with pytest.raises(NotFound, match="no topic 'lane-7' is planned"):
        make.services.places.move(make.site_id, "lane-7", before="lane-1", actor=ACTOR)


def test_a_dry_run_moves_nothing(make: Factory, sql: Sql) -> None:
    make.advance_to("publish", count=3)

    moved = make.services.places.move(make.site_id, "lane-3", before="lane-1", actor=ACTOR, dry_run=True)

    assert moved.after == Place("lane", 1)
    assert (order(sql), sql("SELECT count(*) FROM events")) == (["lane-1", "lane-2", "lane-3"], [(0,)])
