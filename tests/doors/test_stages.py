"""``pipeline stages``, and what ``run`` says of an order that is not its own."""

from pipeline.build import Services
from pipeline.project.site import load_site
from pipeline.service.order import StageSpec
from tests.doors.scene import Door
from tests.factories import STAGES, Factory

TRANSLATE = StageSpec("translate", None, 3)
MINE = (StageSpec("write", None, 2), StageSpec("check", None, 5), StageSpec("release", 1, 2))  # those of the project
MORE = """class Translate(Stage):
    def run(self, topic, ctx):
        return Done()


PIPELINE = (Write, Check, Translate,"""


def test_stages_are_listed_retired_and_restored(door: Door, make: Factory) -> None:
    """One row a stage, with its jobs; what would be done, what was done, and what is refused."""
    make.site(stages=(*STAGES[:2], TRANSLATE, STAGES[2]))
    make.advance_to("translate", count=2)

    found = door("stages", "list", "--site", "acme", "--json").json
    text = door("stages", "list", "--site", "acme")
    dry = door("stages", "retire", "translate", "--site", "acme", "--dry-run")
    done = door("stages", "retire", "translate", "--site", "acme", "--yes", "--reason", "unused", "--json").json
    after = door("stages", "list", "--site", "acme").out
    back = door("stages", "restore", "translate", "--site", "acme")
    again = door("stages", "restore", "translate", "--site", "acme")
    strange = door("stages", "retire", "translat", "--site", "acme")
    last = door("stages", "retire", "publish", "--site", "acme")

    assert [row["name"] for row in found["stages"]] == ["generate", "validate", "translate", "publish"]
    assert set(found["stages"][2]) == {"name", "ordinal", "state", "width", "max_attempts", "jobs"}
    assert found["stages"][2]["jobs"]["ready"] == 2
    assert text.out.splitlines()[3].split()[:5] == ["translate", "active", "·", "3", "·"]
    assert dry.out == "stage translate would be retired; 2 unfinished jobs would go on to publish\n"
    assert done == {"site": "acme", "dry_run": False, "name": "translate", "next": "publish", "moved": 2}
    assert after.splitlines()[3].split()[:2] == ["translate", "retired"]
    assert (back.code, back.out) == (0, "stage translate is active again\n")
    assert (again.code, again.err) == (1, "error: stage 'translate' is not retired\n")
    assert strange.code == 2
    assert "no stage 'translat' in this site" in strange.err
    assert (last.code, "is the last one, and 2 unfinished jobs stand" in last.err) == (1, True)


def test_a_run_that_lacks_a_stage_says_so_and_takes_nothing_out(door: Door, services: Services) -> None:
    """It works on what it knows and ends with 1 while jobs wait there; what helps is named, and helps."""
    site = load_site(door.root, "demo")
    services.planning.register(site, (*MINE[:2], TRANSLATE, MINE[2]))

    first = door("run", "--site", "demo", "--workers", "1")
    helped = door("stages", "retire", "translate", "--site", "demo")
    second = door("run", "--site", "demo", "--workers", "1")

    assert first.code == 1
    assert "stage 'translate' is in the database, but not in stages:PIPELINE" in first.err
    assert "pipeline stages retire translate --site demo" in first.err
    assert "note: 6 jobs stand at stage 'translate', which stages:PIPELINE lacks" in first.out
    assert helped.out == "stage translate is retired; 6 jobs moved on to release\n"
    assert (second.code, "translate" in second.out + second.err) == (0, False)
    assert "6 of 6 topics live" in second.out


def test_a_run_says_which_stages_are_not_as_it_describes_them(door: Door, services: Services) -> None:
    """A width that is not the database's, and a stage that a person took out."""
    site_id = services.planning.register(load_site(door.root, "demo"), (*MINE[:2], StageSpec("release", 3, 2)))
    services.planning.retire(site_id, "check", actor="test")

    said = door("run", "--site", "demo", "--workers", "1")

    assert said.code == 0
    assert "stage 'release' has width 1 in stages:PIPELINE, but 3 in the database, which is kept" in said.err
    assert "stage 'check' is in stages:PIPELINE, but was retired" in said.err
    assert "pipeline stages restore check --site demo" in said.err


def test_a_stage_more_plans_nothing_again(door: Door) -> None:
    """What is live stays as it is; only what is new meets the stage that was added."""
    assert door("run", "--site", "demo", "--workers", "1").code == 0
    file = door.root / "stages/__init__.py"
    file.write_text(file.read_text().replace("PIPELINE = (Write, Check,", MORE))

    found = door("run", "--site", "demo", "--workers", "1", "--json").json

    assert (found["planned"]["changed"], found["planned"]["unchanged"], found["passes"]) == (0, 6, 0)
