"""``pipeline stages``, and what ``run`` says of an order that is not its own."""

from collections.abc import Callable

import pytest

from pipeline.build import Services
from pipeline.project.site import load_site
from pipeline.service.order import StageSpec
from pipeline.states import JobState
from tests.doors.scene import Door, Said
from tests.factories import STAGES, Factory

TRANSLATE = StageSpec("translate", None, 3)
MINE = (StageSpec("write", None, 2), StageSpec("check", None, 5), StageSpec("release", 1, 2))  # those of the project
MORE = """class Translate(Stage):
    def run(self, topic, ctx):
        return Done()


PIPELINE = (Write, Check, Translate,"""


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_says_which_stages_are_not_as_it_describes_them(door: Door, services: Services) -> None:
    """A width that is not the database's, and a stage that a person took out."""
    site_id = services.planning.register(load_site(door.root, "demo"), (*MINE[:2], StageSpec("release", 3, 2)))
    services.planning.retire(site_id, "check", actor="test")

    said = door("run", "--site", "demo", "--workers", "1")

    assert said.code == 0
    assert (
        "stage 'release' has width 1 in stages:PIPELINE, but 3 in the database, which is kept; change it:" in said.err
    )
    assert "pipeline stages set release --site demo --width 1" in said.err
    assert "stage 'check' is in stages:PIPELINE, but was retired" in said.err
    assert "pipeline stages restore check --site demo" in said.err


@pytest.mark.slow
def test_a_stage_more_plans_nothing_again(door: Door) -> None:
    """What is live stays as it is; only what is new meets the stage that was added."""
    assert door("run", "--site", "demo", "--workers", "1").code == 0
    file = door.root / "stages/__init__.py"
    file.write_text(file.read_text().replace("PIPELINE = (Write, Check,", MORE))

    found = door("run", "--site", "demo", "--workers", "1", "--json").json

    assert (found["planned"]["changed"], found["planned"]["unchanged"], found["passes"]) == (0, 6, 0)


def test_a_width_is_set_while_jobs_wait(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """Who got a turn by that is counted; a dry run gives none; the same again says so."""
    first, second, third = make.advance_to("publish", count=3)

    dry = inside("stages set publish --site acme --width 2 --dry-run").out
    assert dry.startswith("stage publish would have: width 1 → 2; ")
    assert make.state(second) is JobState.WAITING
    done = inside("stages set publish --site acme --width 2 --json").json

    assert (done["before"], done["after"], done["dry_run"]) == ({"width": 1}, {"width": 2}, False)
    assert [make.state(i) for i in (first, second, third)] == [JobState.PENDING, JobState.PENDING, JobState.WAITING]
    assert inside("stages set publish --site acme --width 2").out == "stage publish has width 2 already\n"
    assert inside("stages set publish --site acme --width none").out.startswith("stage publish: width 2 → none")
    wrong = inside("stages set publish --site acme --width some")
    assert (wrong.code, wrong.err) == (
        2, "error: --width 'some': write a whole number from 1 to 1000000, none for no limit\n"
    )  # fmt: skip


def test_a_stage_rests_and_goes_on(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """What stands there and what still runs is told; the list shows it; twice is refused."""
    make.plan(count=3)
    make.claim("generate")

    assert inside("stages pause generate --site acme --dry-run").out == (
        "stage generate would go active → paused; 2 jobs stand there; 1 running job may finish\n"
    )
    assert make.claim("generate") != []
    paused = inside("stages pause generate --site acme --reason slow --json").json
    assert paused == {
        "site": "acme", "stage": "generate", "from": "active", "to": "paused", "standing": 1, "running": 2,
        "dry_run": False,
    }  # fmt: skip
    assert make.claim("generate") == []
    assert inside("stages list --site acme").out.splitlines()[1].split()[:2] == ["generate", "paused"]
    again = inside("stages pause generate --site acme")
    assert (again.code, again.err) == (1, "error: stage 'generate' is paused already\n")
    said = inside("stages resume generate --site acme")
    assert said.out == "stage generate paused → active; 1 job stands there\n"
    assert "pipeline run --site acme" in said.err
    assert make.claim("generate") != []


def test_a_run_does_not_wait_at_a_paused_stage(door: Door, services: Services) -> None:
    """It does what it can, says what rests and how it goes on, and ends with 1; a look ahead says so too."""
    site_id = services.planning.register(load_site(door.root, "demo"), MINE)
    services.planning.pause(site_id, "check", actor="test")

    said = door("run", "--site", "demo", "--workers", "1")
    ahead = door("run", "--site", "demo", "--plan")

    note = "note: stage check is paused; go on with: pipeline stages resume check --site demo"
    assert (said.code, said.out.splitlines()[-1]) == (1, note)
    assert note in ahead.out
    assert [(s.stage, s.count) for s in services.reading.standing(site_id)] == [("check", 6)]
    assert door("stages", "resume", "check", "--site", "demo").code == 0
    assert door("run", "--site", "demo", "--workers", "1").code == 0
