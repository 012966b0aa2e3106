"""Planning: all or nothing, in the file's order, and never twice."""

from dataclasses import replace

import pytest
from sqlalchemy.exc import DBAPIError

from pipeline.errors import ProjectError, StagesError
from pipeline.service.acknowledging import Verb
from pipeline.service.planning import GAP, StageSpec
from pipeline.states import JobState as S
from pipeline.views import Planned
from tests.db.conftest import Sql
from tests.factories import ACTOR, STAGES, Factory


def positions(sql: Sql, lane: str = "lane") -> dict[str, int]:
    found = sql(
        "SELECT t.slug, t.position FROM topics t JOIN lanes l ON l.id = t.lane_id WHERE l.name = :lane", lane=lane
    )
    return {row.slug: row.position for row in found}


def finish(make: Factory, lane: str = "lane") -> None:
    """Bring every topic of a lane through its last stage."""
    for spec in make.specs:
        while claims := make.claim(spec.name, 99):
            for claim in claims:
                make.say(claim)


def test_topics_stand_in_the_files_order(make: Factory, sql: Sql) -> None:
    """Each lane counts from 1, in the order of the rows, whatever else stands between them."""
    make.site()
    rows = [make.row("b", 2), make.row("a", 1), make.row("b", 1), make.row("a", 2)]

    planned = make.services.planning.plan(make.site_id, rows)

    assert planned == Planned(new=4)
    assert positions(sql, "a") == {"a-1": 1, "a-2": 2}
    assert positions(sql, "b") == {"b-2": 1, "b-1": 2}
    assert {(r.name, r.next_position) for r in sql("SELECT name, next_position FROM lanes")} == {("a", 3), ("b", 3)}
    assert sql("SELECT count(*) FROM jobs j JOIN topics t ON t.id = j.topic_id WHERE j.position = t.position") == [(4,)]


def test_a_second_plan_changes_nothing(make: Factory, sql: Sql) -> None:
    """The same file again: not a row is written."""
    rows = [make.row("lane", n) for n in (1, 2)]
    make.plan(count=2)
    before = (
        sql("SELECT * FROM topics"),
        sql("SELECT * FROM jobs"),
        sql("SELECT * FROM lanes"),
        sql("SELECT * FROM gates"),
    )

    assert make.services.planning.plan(make.site_id, rows) == Planned(unchanged=2)

    assert before == (
        sql("SELECT * FROM topics"), sql("SELECT * FROM jobs"), sql("SELECT * FROM lanes"), sql("SELECT * FROM gates")
    )  # fmt: skip


def test_new_rows_are_appended(make: Factory, sql: Sql) -> None:
    """What comes later gets the lane's next positions; one that the file puts earlier is named."""
    make.plan(count=2)
    rows = [make.row("lane", 9), make.row("lane", 1), make.row("lane", 2), make.row("lane", 3)]

    planned = make.services.planning.plan(make.site_id, rows)

    assert planned == Planned(new=2, unchanged=2, appended=("lane-9",))
    assert positions(sql) == {"lane-1": 1, "lane-2": 2, "lane-9": 3, "lane-3": 4}


def test_a_plan_is_all_or_nothing(make: Factory, sql: Sql) -> None:
    """One row that the database refuses, and nothing of the file is planned."""
    make.site()
    rows = [make.row("lane", 1), make.row("lane", 2), make.row("other", 1, path="lane/lane-1/")]

    with pytest.raises(DBAPIError, match="uq_topics_site_id_path"):
        make.services.planning.plan(make.site_id, rows)

    assert sql("SELECT 1 FROM topics UNION ALL SELECT 1 FROM jobs UNION ALL SELECT 1 FROM lanes") == []


def test_more_topics_than_a_batch_are_one_plan(make: Factory, sql: Sql) -> None:
    """Positions go on over the batches in which rows are sent."""
    make.site()

    planned = make.services.planning.plan(make.site_id, [make.row("lane", n) for n in range(1, 1502)])

    assert planned.new == 1501
    assert positions(sql)["lane-1501"] == 1501


def test_a_changed_row_is_a_new_pass(make: Factory, sql: Sql) -> None:
    """What was live and is described anew goes through the stages again, at its place."""
    make.plan(count=2)
    finish(make)
    rows = [replace(make.row("lane", 1), title="New", input_hash="new"), make.row("lane", 2)]

    assert make.services.planning.plan(make.site_id, rows) == Planned(changed=1, unchanged=1)

    assert sql("SELECT pass, state FROM jobs WHERE position = 1 ORDER BY pass") == [(1, "done"), (2, "pending")]
    assert sql("SELECT title, pass FROM topics ORDER BY position")[0] == ("New", 2)
    assert make.services.planning.plan(make.site_id, rows).changed == 0


def test_a_row_that_changes_during_its_pass_is_planned_after_it(make: Factory, sql: Sql) -> None:
    """A pass that began with the old row ends with it; the next plan begins another."""
    make.plan()
    make.say(make.claim("generate")[0])
    row = replace(make.row("lane", 1), title="New", input_hash="new")

    assert make.services.planning.plan(make.site_id, [row]) == Planned(busy=1)
    assert sql("SELECT title, pass FROM topics") == [("New", 1)]
    finish(make)

    assert make.services.planning.plan(make.site_id, [row]) == Planned(changed=1)


def test_a_row_that_changes_before_its_pass_began_is_read_anew(make: Factory) -> None:
    """A pass that has not generated yet generates from what the file says by then: no second pass is needed."""
    make.plan()
    row = replace(make.row("lane", 1), title="New", input_hash="new")
    make.services.planning.plan(make.site_id, [row])

    claim = make.claim("generate")[0]
    assert claim.topic is not None
    assert claim.topic.title == "New"
    make.say(claim)
    finish(make)

    assert make.services.planning.plan(make.site_id, [row]) == Planned(unchanged=1)


def test_a_skipped_topic_is_not_planned_again(make: Factory) -> None:
    """To skip is to give up: the same row brings nothing back; a changed one does."""
    job_id = make.plan()[0]
    make.services.operate.skip([job_id], actor=ACTOR)

    assert make.services.planning.plan(make.site_id, [make.row("lane", 1)]) == Planned(unchanged=1)
    changed = replace(make.row("lane", 1), input_hash="new")
    assert make.services.planning.plan(make.site_id, [changed]) == Planned(changed=1)
    assert make.state(make.job_ids()[0]) is S.PENDING


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.REPAIR])
def test_a_topic_in_trouble_is_not_planned_twice(verb: Verb, make: Factory) -> None:
    """What needs a person is still unfinished, and its changed row is there when it is requeued."""
    job_id = make.plan()[0]
    make.say(make.claim("generate")[0], verb)
    changed = replace(make.row("lane", 1), title="Mended", input_hash="new")

    assert make.services.planning.plan(make.site_id, [changed]) == Planned(busy=1)
    make.services.operate.requeue([job_id], actor=ACTOR)

    claim = make.claim("generate")[0]
    assert claim.topic is not None
    assert claim.topic.title == "Mended"


def test_topics_that_the_file_lost_are_named_and_stay(make: Factory, sql: Sql) -> None:
    """Nothing is withdrawn because a row is missing."""
    make.plan(count=2)

    planned = make.services.planning.plan(make.site_id, [make.row("lane", 2)])

    assert planned == Planned(unchanged=1, absent=("lane-1",))
    assert len(positions(sql)) == 2


@pytest.mark.parametrize(("change", "said"), [({"lane": "other"}, "belongs to lane"), ({"path": "x/"}, "lives at")])
def test_a_topic_cannot_move_by_its_row(change: dict[str, str], said: str, make: Factory, sql: Sql) -> None:
    """A row whose lane or path is another is refused with its line, and nothing is planned."""
    make.plan()

    with pytest.raises(ProjectError, match=f"line 2: topic 'lane-1' {said}"):
        make.services.planning.plan(make.site_id, [replace(make.row("lane", 1), **change), make.row("lane", 2)])

    assert len(positions(sql)) == 1


def test_register_keeps_order_as_data(make: Factory, sql: Sql) -> None:
    """Stages get ordinals with gaps; registering again changes nothing; a new one fits between its neighbours."""
    make.site()
    make.site()
    assert sql("SELECT name, ordinal FROM stages ORDER BY ordinal") == [
        ("generate", GAP), ("validate", 2 * GAP), ("publish", 3 * GAP)
    ]  # fmt: skip

    make.site(stages=(*STAGES[:2], StageSpec("review", None, 1), STAGES[2], StageSpec("ping", None, 1)))

    assert [row.name for row in sql("SELECT name FROM stages ORDER BY ordinal")] == [
        "generate", "validate", "review", "publish", "ping"
    ]  # fmt: skip


def test_register_refuses_to_turn_the_order_round(make: Factory, sql: Sql) -> None:
    """Jobs follow the order that they began with."""
    make.site()
    before = sql("SELECT * FROM stages ORDER BY ordinal")

    with pytest.raises(StagesError, match="'generate' stands earlier"):
        make.site(stages=(STAGES[1], STAGES[0], STAGES[2]))

    assert sql("SELECT * FROM stages ORDER BY ordinal") == before


def test_a_site_that_is_described_anew_keeps_its_row(make: Factory, sql: Sql) -> None:
    """Registering is by slug."""
    first = make.site()

    assert make.site() == first
    assert sql("SELECT count(*) FROM sites") == [(1,)]
