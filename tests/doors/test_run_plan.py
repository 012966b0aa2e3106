"""``pipeline run --plan``: what a run would do, in order, and not a row or file written."""

from typing import Any

import pytest
from sqlalchemy import Engine, text

from pipeline.build import Services
from pipeline.service.acknowledging import Verb
from pipeline.service.decision import Decision, decide
from pipeline.service.preview import Previews, columns_that_differ
from pipeline.states import JobState
from pipeline.views import Planned, TopicRow
from tests.conftest import SCHEMA
from tests.doors.scene import TOML, Door, Said
from tests.doors.test_run import PLANNED, STAGE
from tests.factories import ACTOR, Factory

PREVIEW = {"site", "state", "topics", "live", "planned", "changes", "stages", "lanes", "assembly", "notes"}
CHANGE = {"topic", "columns", "busy"}
LANE = {"lane", "state", "strict", "order", "again", "halted"}
STEP = {"topic", "position", "what", "stage", "state", "job"}


def plan(door: Door, *words: str) -> Said:
    return door("run", "--site", "demo", "--plan", *words)


def everything(engine: Engine) -> dict[str, Any]:
    """Every row of every table, and the counters of every sequence."""
    with engine.begin() as connection:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        names = connection.execute(
            text("SELECT table_name FROM information_schema.tables WHERE table_schema = :schema"), {"schema": SCHEMA}
        ).scalars()
        found: dict[str, Any] = {n: connection.execute(text(f"SELECT * FROM {n} ORDER BY 1")).all() for n in names}
        found["sequences"] = connection.execute(
            text("SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = :schema"), {"schema": SCHEMA}
        ).all()
        return found


def test_a_new_site_is_foreseen_whole(door: Door, engine: Engine) -> None:
    """All of it, by lane and in the file's order; no site, no lane, no stage is written, no page made."""
    before = everything(engine)

    said = plan(door, "--json")
    text = plan(door)

    found = said.json
    assert set(found) == PREVIEW
    assert set(found["planned"]) == PLANNED
    assert [set(stage) for stage in found["stages"]] == [STAGE] * 3
    assert [set(lane) for lane in found["lanes"]] == [LANE] * 2
    assert [set(step) for lane in found["lanes"] for step in lane["order"]] == [STEP] * 6
    assert (found["state"], found["topics"], found["live"], found["assembly"]) == (None, 6, 0, True)
    assert [(s["position"], s["topic"], s["what"]) for s in found["lanes"][0]["order"]] == [
        (1, "a1", "new"), (2, "a2", "new"), (3, "a3", "new")
    ]  # fmt: skip
    assert text.out.splitlines() == [
        "demo: 6 topics in the file, 0 live",
        "would plan: 6 new, 0 changed, 0 unchanged",
        "lane a: would publish 3 pages, in this order:",
        *("  1  a1  new", "  2  a2  new", "  3  a3  new"),
        "lane b: would publish 3 pages, in this order:",
        *("  1  b1  new", "  2  b2  new", "  3  b3  new"),
        "would assemble the site: yes",
        "nothing was written",
    ]
    assert (said.code, text.code, said.err, text.err) == (0, 0, "", "")
    assert everything(engine) == before
    assert not (door.root / "public").exists()


@pytest.mark.slow
def test_what_a_plan_foresees_a_run_does(door: Door, engine: Engine) -> None:
    """New, changed (in which columns), gone and late rows; then nothing is left to foresee."""
    door.rows("a,1,a1,One,page,", "a,2,a2,Two,page,", "b,1,b1,One,page,")
    assert door("run", "--site", "demo", "--workers", "1").code == 0
    door.rows("a,1,late,Late,page,", "a,2,a2,Two,page,\x20talk", "a,3,a1,New title,page,", "c,1,c1,C,page,")
    before = everything(engine)

    found = plan(door, "--json").json
    told = plan(door).out
    assert everything(engine) == before
    run = door("run", "--site", "demo", "--workers", "1", "--json").json

    assert found["planned"] == run["planned"]
    assert found["planned"] == {
        "new": 2, "changed": 2, "unchanged": 0, "busy": 0, "absent": ["b1"], "appended": ["late"], "closed": [],
    }  # fmt: skip
    assert [set(change) for change in found["changes"]] == [CHANGE] * 2
    assert {c["topic"]: c["columns"] for c in found["changes"]} == {"a1": ["title"], "a2": ["mood"]}
    lanes = {lane["lane"]: lane for lane in found["lanes"]}
    assert lanes["a"]["again"] == ["a1", "a2"]
    assert [(s["position"], s["topic"]) for s in lanes["a"]["order"]] == [(3, "late")]
    assert [(s["position"], s["topic"]) for s in lanes["c"]["order"]] == [(1, "c1")]
    assert "  a1 changed: title\n" in told
    assert "lane a: would publish again, as each is ready: a1, a2\n" in told
    assert "note: late would go to the end of the lane, not to the file's place\n" in told
    idle = plan(door).out
    assert "would publish: nothing\n" in idle
    assert "would plan: 0 new, 0 changed, 4 unchanged\n" in idle


def test_a_broken_file_is_refused_as_a_run_refuses_it(closed: Door) -> None:
    """Before any server is asked."""
    closed.rows("a,1,a1,,page,")

    said = plan(closed)

    assert (said.code, said.out) == (2, "")
    assert "topics.csv:2: column title: is empty" in said.err


def test_a_schema_that_is_behind_is_said(fresh: Door, fresh_database: str) -> None:
    """On a named server: with the next step, and without taking it."""
    said = plan(fresh)

    assert (said.code, said.out) == (3, "")
    assert said.err == "error: no schema 'pipeline' in this database; run: pipeline db upgrade\n"


def test_where_no_server_was_ever_started_none_is(homeless: Door) -> None:
    """A first run is foreseen from the folder alone."""
    said = plan(homeless)

    assert said.code == 0
    assert "note: there is no database yet: a run makes one in .pipeline/\n" in said.out
    assert not (homeless.root / ".pipeline").exists()


def test_what_stages_print_stays_out_of_the_answer(closed: Door) -> None:
    closed.stages((closed.root / "stages/__init__.py").read_text() + '\nprint("noise \\x1b[2J")\n')
    del closed.env["PIPELINE_DATABASE_URL"]

    said = plan(closed, "--json")

    assert said.json["topics"] == 6
    assert r"noise \x1b[2J" in said.err


def test_long_lanes_are_cut_for_people_and_whole_for_programs(homeless: Door) -> None:
    homeless.rows(*(f"a,{n},a{n},T,page," for n in range(1, 26)))

    assert "  10  a10  new\n  and 15 more\n" in plan(homeless).out
    assert len(plan(homeless, "--json").json["lanes"][0]["order"]) == 25


def test_a_paused_site_is_told(door: Door, make: Factory) -> None:
    """A run of it would be refused."""
    make.site("demo")
    make.services.sites.pause(make.site_id, actor=ACTOR)

    assert "note: the site is paused, so a run is refused; first: pipeline sites resume demo\n" in plan(door).out


# The rule, and the order, without a door.


def look(make: Factory, *rows: TopicRow, strict: bool = True) -> Any:
    return Previews(make.engine).look("acme", rows, strict=strict)


def test_the_server_itself_keeps_a_preview_from_writing(make: Factory, engine: Engine) -> None:
    """Nothing of it could be written even by mistake."""
    readonly = engine.execution_options(postgresql_readonly=True)
    from pipeline.build import services

    make.plan()
    with pytest.raises(Exception, match="read-only transaction"):
        services(readonly).work.touch(make.site_id)


def test_passes_under_way_come_in_their_order_before_new_ones(make: Factory) -> None:
    make.advance_to("publish", count=2)
    make.services.planning.plan(make.site_id, [make.row("lane", n) for n in (1, 2, 3)])

    (lane,) = look(make, *(make.row("lane", n) for n in (1, 2, 3, 4))).lanes

    assert [(s.position, s.topic, s.stage, s.state) for s in lane.order] == [
        (1, "lane-1", "publish", "pending"),
        (2, "lane-2", "publish", "waiting"),
        (3, "lane-3", "generate", "pending"),
        (4, "lane-4", None, None),
    ]
    assert (lane.halted, lane.moves, lane.again) == (None, True, ())


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.HOLD])
def test_a_lane_stands_where_a_person_is_needed(make: Factory, verb: Verb) -> None:
    """What is behind is shown, and that it is not published."""
    first, _ = make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], verb, hold="ask")

    preview = look(make, *(make.row("lane", n) for n in (1, 2)))

    (lane,) = preview.lanes
    assert lane.halted.job == first
    assert not lane.moves
    assert look(make, *(make.row("lane", n) for n in (1, 2)), strict=False).lanes[0].halted is None


def test_a_paused_lane_publishes_nothing(make: Factory) -> None:
    make.plan()
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)

    (lane,) = look(make, make.row("lane", 1)).lanes

    assert (lane.state, lane.moves, lane.order[0].state) == ("paused", False, JobState.WAITING)


def test_a_change_under_way_is_told_as_such(make: Factory, services: Services) -> None:
    make.plan()
    changed = make.row("lane", 1, title="Another", brief={"m": 1}, input_hash="other")

    preview = look(make, changed)

    assert preview.planned == Planned(busy=1)
    assert [(c.topic, c.columns, c.busy) for c in preview.changes] == [("lane-1", ("title", "m", "n"), True)]
    assert services.planning.plan(make.site_id, [changed]) == preview.planned


def test_a_hash_alone_names_no_column(make: Factory) -> None:
    """What the stages add to a row is no column of it."""
    make.plan()

    assert look(make, make.row("lane", 1, input_hash="other")).changes[0].columns == ()


def test_nothing_known_is_all_new(make: Factory) -> None:
    rows = [make.row(lane, n) for lane in ("b", "a") for n in (1, 2)]

    assert decide(rows, {}) == Decision(tuple(rows), (), (), 0, (), (), ())
    assert [lane.lane for lane in look(make, *rows).lanes] == ["a", "b"]


def test_columns_that_differ_are_named_in_their_order(make: Factory) -> None:
    before = make.row("lane", 1, brief={"a": "1", "b": "2"})
    now = make.row("lane", 1, type="city", brief={"c": "3", "b": "2"})

    assert columns_that_differ(now, before) == ("type", "c", "a")


def test_the_path_of_a_site_counts(closed: Door) -> None:
    """What only the file says is foreseen by the file's rules: two pages at one path are refused here as well."""
    (closed.root / "sites/demo/site.toml").write_text(TOML + "[paths]\npage = '{lane}/'\n")
    closed.rows("a,1,a1,T,page,", "a,2,a2,T,page,")

    assert "'a/' like that of line 2" in plan(closed).err
