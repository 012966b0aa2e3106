"""``pipeline sites``: folder and database together, add, rest, remove; and the names that a shell completes."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli.completion import job_states, site_lanes, site_names, site_topics
from pipeline.project.site import load_site
from pipeline.project.topics import load_topics
from tests.doors.scene import Door, Said
from tests.doors.test_lanes import LANE, PAUSED
from tests.doors.test_run import STAGE
from tests.factories import ACTOR, Factory

SITE = {"site", "name", "state", "topics", "live", "in_folder", "in_database", "problem", "paused"}
OF_FILE = {"base_url", "locale", "time_zone", "topics_file", "output"}
ADD = "sites add shop --name Shop --base-url https://shop.example"


@pytest.mark.parametrize(
    "words", ["sites", *(f"sites {verb}" for verb in ("list", "show", "add", "pause", "resume", "remove"))]
)
def test_help_opens_with_an_imperative_and_ends_with_an_example(inside: Callable[[str], Said], words: str) -> None:
    said = inside(f"{words} --help")

    assert said.code == 0
    assert said.out.split("\n\n", 1)[1].split()[0] in {"List", "Show", "Add", "Let", "Remove"}
    assert re.search(r"\n  Example: pipeline sites .*\n\n(Arguments|Options):", said.out)


def test_sites_are_those_of_the_folder_and_of_the_database(
    door: Door, make: Factory, inside: Callable[[str], Said]
) -> None:
    """What is in one of the two only is shown as such; a broken file hides no other site."""
    make.plan(count=2)
    (door.root / "sites/wrong").mkdir()
    (door.root / "sites/wrong/site.toml").write_text("name = \x1b\n")

    found = inside("sites list --json").json
    text = inside("sites list").out

    assert set(found) == {"sites"}
    assert [set(site) for site in found["sites"]] == [SITE] * 3
    acme, demo, wrong = found["sites"]
    assert (acme["site"], acme["state"], acme["topics"], acme["live"]) == ("acme", "active", 2, 0)
    assert (acme["in_folder"], acme["in_database"]) == (False, True)
    assert (demo["name"], demo["state"], demo["topics"]) == ("Demo", None, None)
    assert (demo["in_folder"], demo["in_database"]) == (True, False)
    assert wrong["problem"].startswith("sites/wrong/site.toml: ")
    assert re.search(r"acme +active +2 +0 +no folder +acme\n", text)
    assert re.search(r"demo +never run +Demo\n", text)
    assert "sites/wrong/site.toml: " in text


def test_the_folder_is_enough_where_there_is_no_database(homeless: Door, inside: Callable[[str], Said]) -> None:
    """Nobody starts a server to find nothing."""
    assert [site["site"] for site in inside("sites list --json").json["sites"]] == ["demo"]
    assert "https://demo.example" in inside("sites show demo").out
    assert not (homeless.root / ".pipeline").exists()


def test_a_site_is_shown_with_its_lanes_and_jobs(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    make.site("demo")
    make.advance_to("publish", count=2)

    found = inside("sites show demo --json").json
    text = inside("sites show demo").out

    assert set(found) == SITE | OF_FILE | {"stages", "lanes"}
    assert [set(stage) for stage in found["stages"]] == [STAGE] * 3
    assert [set(lane) for lane in found["lanes"]] == [LANE]
    assert (found["name"], found["topics_file"], found["output"]) == ("Demo", "sites/demo/topics.csv", "public/demo")
    assert re.search(r"publish +1 +· +1 ", text)
    assert re.search(r"lane +active +2 +0 +1\n", text)


def test_a_site_rests_and_goes_on(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """A run of it is refused meanwhile, with the next step; nothing of it is claimed."""
    make.site("demo")
    make.plan()
    make.claim("generate")

    paused = inside("sites pause demo --reason moving --json").json
    assert paused == {"site": "demo", "from": "active", "to": "paused", "jobs": 0, "running": 1, "dry_run": False}
    (site,) = inside("sites list --state paused --json").json["sites"]
    assert set(site["paused"]) == PAUSED
    assert site["paused"]["reason"] == "moving"
    assert ": moving" in inside("sites show demo").out
    run = door("run", "--site", "demo", "--workers", "1")
    assert (run.code, run.out) == (1, "")
    assert run.err == (
        "error: site 'demo' is paused; see why: pipeline sites show demo; go on: pipeline sites resume demo\n"
    )

    assert inside("sites resume demo").out == "site demo paused → active\n"
    again = inside("sites resume demo")
    assert (again.code, again.err) == (1, "error: site 'demo' is active already\n")


@pytest.mark.slow
def test_a_run_ends_when_its_site_is_paused(door: Door) -> None:
    """What is running finishes; then the run ends, tells why, and does not wait for what nobody may claim."""
    door.moods(a1="slow")
    process = door.start("run", "--site", "demo", "--workers", "1", env={"PIPELINE_CONCURRENCY": "1"})
    door.wait_until_slow()
    assert door("sites", "pause", "demo").code == 0
    (door.root / "go").touch()

    said = door.end(process)

    assert said.code == 1
    assert "note: the site was paused meanwhile; go on with: pipeline sites resume demo" in said.out
    assert door("sites", "resume", "demo").code == 0
    assert door("run", "--site", "demo", "--workers", "1").code == 0


# Add.


def test_a_site_that_is_added_can_be_loaded_at_once(closed: Door, inside: Callable[[str], Said]) -> None:
    """Its facts are those given; its topics file has the header alone. No database is asked."""
    added = inside(ADD + " --locale de --time-zone Europe/Berlin --json")

    assert added.json == {"site": "shop", "files": ["sites/shop/site.toml", "sites/shop/topics.csv"]}
    site = load_site(closed.root, "shop")
    assert (site.name, site.base_url, site.locale) == ("Shop", "https://shop.example", "de")
    assert load_topics(site) == []
    assert (closed.root / "sites/shop/topics.csv").read_text() == "lane,position,slug,title,type\n"
    assert sorted(p.name for p in (closed.root / "sites/shop").iterdir()) == ["site.toml", "topics.csv"]


@pytest.mark.parametrize("name", ['A "quoted" \\ name', "Kyōto ☕ #1", "[red]x[/red] = 'y'", "'''"])
def test_any_name_becomes_sound_toml(closed: Door, name: str) -> None:
    """Quotes, backslashes and the like are data."""
    said = closed("sites", "add", "shop", "--name", name, "--base-url", "https://shop.example")

    assert said.code == 0
    assert tomllib.loads((closed.root / "sites/shop/site.toml").read_text())["name"] == name


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (ADD.replace("shop ", "demo ", 1), 1, "sites/demo is a site already; see: pipeline sites show demo"),
        (ADD.replace("shop ", "there ", 1), 1, "sites/there is there, but no site: move it away"),
        (ADD.replace("shop ", "../x ", 1), 2, "'../x' is no name for a site"),
        (ADD.replace("shop ", "Shop ", 1), 2, "'Shop' is no name for a site"),
        (ADD.replace("shop ", "con ", 1), 2, "'con' is no name for a site"),
        (ADD.replace("https:", "ftp:"), 2, "--base-url: must be an absolute http(s) URL"),
        (ADD + " --time-zone Mars/Base", 2, "--time-zone: must be an IANA time zone"),
        (ADD + " --locale ?", 2, "--locale: "),
        (ADD.replace("Shop", "\x1b[31mShop"), 2, "--name: holds a control character"),
        ("sites add shop", 2, "missing option '--name'"),
        ("sites pause acne", 2, "no site 'acne' in the database; did you mean 'acme'?"),
        ("sites pause demo", 2, "site 'demo' was never run; run: pipeline run --site demo"),
        ("sites show \x1b[2J", 2, r"no site '\x1b[2J' here; there is: acme, demo"),
        ("sites list --state gone", 2, "no state 'gone' of a site; there is: active, paused"),
        ("sites remove acme --yes", 1, "1 unfinished job; see: pipeline jobs list --site acme"),
        ("sites remove acme --dry-run", 1, "1 unfinished job"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    door: Door, make: Factory, inside: Callable[[str], Said], words: str, code: int, message: str
) -> None:
    """And nothing is written."""
    make.plan()
    (door.root / "sites/there").mkdir()
    before = sorted(door.root.rglob("*"))

    said = inside(words)

    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert sorted(door.root.rglob("*")) == before


def test_no_site_is_added_where_no_project_is(closed: Door, inside: Callable[[str], Said], tmp_path: Path) -> None:
    closed.root = tmp_path / "elsewhere"
    closed.root.mkdir()

    said = inside(ADD)

    assert said.code == 1
    assert "is no project: it has no sites/ and no pipeline.toml" in said.err
    assert list(closed.root.iterdir()) == []


# Remove.


def test_a_site_that_is_over_is_removed(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """--dry-run counts and changes nothing; the folder stays, and that is told."""
    make.site("demo")
    make.services.operate.skip(make.plan(count=2), actor=ACTOR)

    dry = inside("sites remove demo --dry-run --json").json
    assert dry == {
        "site": "demo", "removed": False, "lanes": 1, "topics": 2, "jobs": 2, "attempts": 0, "revisions": 0
    }  # fmt: skip
    assert make.services.reading.sites() != []

    gone = inside("sites remove demo --yes")

    assert gone.out == "site demo is gone from the database: 1 lane, 2 topics, 2 jobs, 0 drafts\n"
    assert "the folder sites/demo is still there" in gone.err
    assert make.services.reading.sites() == []
    assert (door.root / "sites/demo/topics.csv").exists()


# Completion.


def test_names_of_sites_are_completed_from_the_folder(closed: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from a folder below; nothing where there is no project; a name that a terminal would obey is left out."""
    (closed.root / "sites/d\x1b[2J").mkdir()
    (closed.root / "sites/d\x1b[2J/site.toml").touch()
    monkeypatch.chdir(closed.root / "stages")

    assert (site_names(""), site_names("d"), site_names("x")) == (["demo"], ["demo"], [])
    assert (site_topics("de"), site_lanes("de")) == (["demo/"], ["demo/"])
    assert (site_topics("demo/a"), site_lanes("demo/")) == (["demo/a1", "demo/a2", "demo/a3"], ["demo/a", "demo/b"])
    assert (site_topics("gone/"), site_topics("../"), job_states("re")) == ([], [], ["reserved", "repair"])
    (closed.root / "sites/demo/topics.csv").write_bytes(b"\xff\x00")
    assert site_topics("demo/") == []
    monkeypatch.chdir("/")
    assert (site_names(""), site_topics("demo/")) == ([], [])


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("pipeline run --site ", "demo"),
        ("pipeline lanes pause d", "demo/"),
        ("pipeline topics list --site d", "demo"),
        ("pipeline sites re", "resume\nremove"),
    ],
)
def test_a_shell_is_answered(closed: Door, words: str, answer: str) -> None:
    """As bash asks; no database is reached, none is asked."""
    count = len(words.split()) - (0 if words.endswith(" ") else 1)
    said = closed(env={"_PIPELINE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)})

    assert (said.code, said.out.strip(), said.err) == (0, answer, "")


def test_completion_is_shown_and_installed(closed: Door, tmp_path: Path) -> None:
    """For the shell that asks, in its own files."""
    home = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    shown = closed("--show-completion", "bash", env=home)
    assert not (tmp_path / ".bashrc").exists()
    installed = closed("--install-completion", "bash", env=home)

    assert (shown.code, installed.code) == (0, 0)
    assert "_PIPELINE_COMPLETE=complete_bash" in shown.out
    assert "pipeline" in (tmp_path / ".bashrc").read_text()
