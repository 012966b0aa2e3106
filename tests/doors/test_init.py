"""``pipeline init``: a project that works as soon as it is made, and whose README tells the truth."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doors.scene import ROOT, Door, Said
from tests.warm import Process

README = (ROOT / "pipeline/project/starter/README.md").read_text()
COMMANDS = [
    line.split("  #")[0].strip().replace("@SITE@", "demo")
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if not line.startswith("export ")
]
PIECES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def made(door: Door, tmp_path: Path) -> Door:
    """A project that the command made, on the migrated, empty database."""
    assert door("init", "../x").code == 0
    return Door(tmp_path / "x", door.env)


def test_a_new_project_publishes_everything(made: Door) -> None:
    """The first run leaves nothing to do, the second finds nothing."""
    first = made("run", "--site", "demo", "--workers", "1")

    assert first.code == 0, first.err
    assert first.out.startswith("demo: 8 of 8 topics live\n")
    pages = sorted(p.relative_to(made.root / "public/demo").as_posix() for p in made.root.rglob("index.html"))
    assert len(pages) == 9
    home = (made.root / "public/demo/index.html").read_text()
    assert all(part in home for part in ("Coffee Notes", "/beans/arabica/", "/brewing/espresso/"))
    assert "worked: 0 passes" in made("run", "--site", "demo", "--workers", "1").out
    assert made("jobs", "list", "--json").json == {"jobs": [], "more": False}


def test_init_tells_what_it_made_and_what_is_next(inside: Callable[[str], Said], tmp_path: Path) -> None:
    """For people and as JSON."""
    told = inside("init ../x --site notes")
    assert told.code == 0
    assert (
        told.out
        == "made ../x: 14 files; ../x/README.md tells how to go on\nnext: cd ../x && pipeline run --site notes\n"
    )

    as_json = inside("init ../y --json").json
    assert set(as_json) == {"folder", "site", "files"}
    assert (as_json["folder"], as_json["site"]) == (str(tmp_path / "y"), "demo")
    assert "sites/demo/topics.csv" in as_json["files"]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ("init .", 1, "is not empty: it holds running, sites, stages; name a new folder"),
        ("init stages/__init__.py", 1, "is a file"),
        ("init ../x --site Demo", 2, "'Demo' is no name for a site"),
        ("init", 2, "missing argument 'DIR'; see: pipeline init --help"),
        ("init stages/__init__.py/x", 1, "Not a directory"),
    ],
)
def test_init_refuses(inside: Callable[[str], Said], tmp_path: Path, words: str, code: int, part: str) -> None:
    """Nothing is written, one message says why."""
    before = sorted(tmp_path.rglob("*"))

    said = inside(words)

    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")
    assert part in said.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_the_stage_of_its_readme_works_and_so_does_its_test(made: Door) -> None:
    """Saved as the README says, the test passes, and the stage is part of a run."""
    stage, package, test = PIECES
    (made.root / "stages/tone.py").write_text(stage)
    (made.root / "stages/__init__.py").write_text(package)
    (made.root / "tests").mkdir()
    (made.root / "tests/test_tone.py").write_text(test)

    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tested = subprocess.run(words, cwd=made.root, env=made.environment(), capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout

    ran = made("run", "--site", "demo", "--workers", "1", "--json").json
    assert [row["stage"] for row in ran["stages"]] == ["generate", "tone", "validate", "publish"]
    assert ran["live"] == 8


def test_every_command_of_its_readme_is_one(inside: Callable[[str], Said]) -> None:
    """Each has help; those that ask a database are run by other tests."""
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        words = [word for word in command.split() if not word.startswith("-")]
        assert words[0] == "pipeline"
        noun = [w for w in words[1:] if w != "demo"]
        assert inside(f"{' '.join(noun)} --help").code == 0, command


def test_plain_alembic_works_in_it(made: Door) -> None:
    """``alembic upgrade head`` finds the revisions and the database."""
    process = Process("alembic", ["upgrade", "head"], cwd=made.root, env=made.environment(), stderr=subprocess.PIPE)
    _, told = process.communicate(timeout=30)

    assert process.returncode == 0, told


def test_its_help_has_our_form(inside: Callable[[str], Said]) -> None:
    """An imperative first, an example last."""
    said = inside("init --help")

    assert said.code == 0
    assert re.search(r"\n\n  Make .*\n\n  Example: pipeline init .*\n\n", said.out, re.DOTALL)
