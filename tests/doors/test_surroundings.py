"""Hostile surroundings: every command, whatever is around it, answers with one message and an exit code that is
documented; no traceback, no password, no control character.

The commands are read off the command line itself, so that none is forgotten.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy import NullPool, create_engine, text

from pipeline.cli.main import app
from tests.doors.scene import CANARY, PIPELINE, Door, Said, harmless
from tests.factories import Factory

Inside = Callable[[str], Said]

GIVEN = {
    "site": "demo", "topic": "demo/a1", "lane": "demo/a", "ids": "1", "revision": "0035", "folder": "new",
    "values": "title=New", "slug": "new", "name": "write", "base_url": "https://x.example", "title": "New",
}  # fmt: skip
OF_ONE = {"topics add": {"lane": "a"}, "sites add": {"site": "other"}}
# What a command cannot do without, although none of it is required by itself.
MORE = {
    **dict.fromkeys(("jobs requeue", "jobs skip", "jobs cancel", "jobs grant", "jobs approve"), "1"),
    "lanes set": "--on-failed skip",
    "topics edit": "--set title=T",
    "topics move": "--before b",
}
ENDLESS = {"db shell"}  # hands the terminal to psql
READS_FILES_ONLY = {
    "init", "config", "sites add", "topics add", "topics edit", "topics remove", "topics import", "db history",
    "db url",
}  # fmt: skip
DOCUMENTED = {0, 1, 2, 3}


def commands() -> list[str]:
    """Every command with the words that it cannot do without."""
    found = []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, (*path, name))
            return
        words = list(path)
        own = OF_ONE.get(" ".join(path), {})
        for parameter in command.params:
            value = own.get(parameter.name, GIVEN.get(parameter.name, "1"))
            if parameter.param_type_name == "option" and parameter.name == "yes":
                words.append("--yes")
            elif parameter.required and parameter.param_type_name == "option":
                words += [parameter.opts[0], value]
            elif parameter.required:
                words.append(value)
        if " ".join(path) not in ENDLESS:
            found.append(" ".join([*words, *([MORE[" ".join(path)]] if " ".join(path) in MORE else [])]))

    walk(typer.main.get_command(app), ())
    return found


COMMANDS = commands()


def is_one_of(words: str, names: set[str]) -> bool:
    return any(words == name or words.startswith(name + " ") for name in names)


def well_behaved(words: str, said: Said) -> None:
    """A documented code; a refusal has no answer, and one message that ends it."""
    assert said.code in DOCUMENTED, (words, said)
    if said.code:
        assert said.out == "", (words, said)
        assert said.err.splitlines()[-1].startswith("error: "), (words, said)
        assert said.err.count("error: ") == 1, (words, said)
        assert "unexpected" not in said.err, (words, said)


PASSWORDS = (
    "7Qx%40", "%3D7Qx", "7Qx%23x", "%3F7Qx", "7Qx%2F%40%3A", "%20%207Qx", "7Qx%C3%BC", "%257Qx%25%28here%29s",
)  # fmt: skip
RAW_PASSWORDS = ("7Qx@", "7Qx=", "7Qx#x", "7Qx?x", "a/7Qx", "a:7Qx", "7Qx%", "7Qx%zz", "ü7Qx", "x 7Qx", "[7Qx]")


@pytest.fixture
def inside(inside: Inside) -> Inside:
    """As ever, and each command finds the project's stages as a new process would."""

    def ours() -> dict[str, Any]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "stages"}

    def call(words: str) -> Said:
        before, path = ours(), sys.path[:]
        for name in before:
            del sys.modules[name]
        try:
            return inside(words)
        finally:
            for name in ours():
                del sys.modules[name]
            sys.modules.update(before)
            sys.path[:] = path

    return call


@pytest.mark.slow
@pytest.mark.guarantee("S8")
@pytest.mark.parametrize("password", PASSWORDS, ids=range(len(PASSWORDS)))
def test_no_database(closed: Door, inside: Inside, password: str) -> None:
    """Each command, with an encoded password of each kind: 3 for those that connect, and no trace of the password."""
    closed.env["PIPELINE_DATABASE_URL"] = f"postgresql://me:{password}@127.0.0.1:1/content"

    for words in COMMANDS:
        said = inside(words)
        well_behaved(words, said)
        if not is_one_of(words, READS_FILES_ONLY | {"db stop", "sites remove"}):
            assert said.code == 3, (words, said)
            assert "the database cannot be reached" in said.err


@pytest.mark.guarantee("S8")
@pytest.mark.parametrize("password", RAW_PASSWORDS, ids=range(len(RAW_PASSWORDS)))
def test_a_password_that_was_not_encoded(closed: Door, inside: Inside, password: str) -> None:
    """Whatever it does to the URL: no part of it is shown."""
    closed.env["PIPELINE_DATABASE_URL"] = f"postgresql://me:{password}@127.0.0.1:1/content"

    for words in ("status", "run --site demo", "db url", "db upgrade", "config", "jobs list", "worker"):
        well_behaved(words, inside(words))


def test_an_empty_database(fresh: Door, inside: Inside) -> None:
    """Every command that needs tables names the next step; none makes them by the way."""
    for words in COMMANDS:
        if words in ("db upgrade", "db current") or words.startswith("db downgrade"):
            continue
        said = inside(words)
        if words == "doctor":  # examines whatever there is, and its answer says what is missing
            assert (said.code, "pipeline db upgrade" in said.out) == (1, True)
            continue
        well_behaved(words, said)
        if not is_one_of(words, READS_FILES_ONLY | {"db stop", "sites remove"}):
            assert said.code == 3, (words, said)
            assert said.err.endswith("run: pipeline db upgrade\n")


@pytest.mark.migrated
def test_a_schema_that_is_behind_and_one_without_rights(fresh: Door, fresh_database: str, inside: Inside) -> None:
    """As long as it lasts, each command that needs it ends with 3 and what to do."""
    engine = create_engine(fresh_database, poolclass=NullPool)
    spoilt = {
        "UPDATE pipeline.alembic_version SET version_num = '0001'": "run: pipeline db upgrade\n",
        "REVOKE USAGE ON SCHEMA pipeline FROM CURRENT_USER": 'GRANT USAGE ON SCHEMA "pipeline" TO "pipeline"\n',
    }
    for statement, end in spoilt.items():
        with engine.begin() as connection:
            connection.execute(text(statement))
        for words in COMMANDS:
            if is_one_of(words, READS_FILES_ONLY | {"db stop", "db upgrade", "db downgrade", "db current"}):
                continue
            said = inside(words)
            if words == "doctor":
                assert (said.code, "broken" in said.out) == (1, True)
                continue
            well_behaved(words, said)
            assert said.code == 3, (words, said)
            assert said.err.endswith(end), (words, said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("schema = \n", "pipeline.toml"),
        ("workers = 'many'\n", "pipeline.toml (at line 1): workers"),
        ("wrokers = 2\n", "did you mean 'workers'?"),
        (
            f"database_url = 'postgresql://me:{CANARY.replace('/', '%2F').replace('@', '%40')}@h/x'\n",
            "holds a password",
        ),
        ("\x00\x1b[31m = 1\n", "pipeline.toml"),
    ],
)
def test_a_broken_settings_file(closed: Door, inside: Inside, text: str, part: str) -> None:
    """2 and the place, for every command that asks for a setting."""
    (closed.root / "pipeline.toml").write_text(text)

    for words in COMMANDS:
        said = inside(words)
        well_behaved(words, said)
        if not is_one_of(words, READS_FILES_ONLY - {"config", "db url"}):
            assert said.code == 2, (words, said)
            assert part in said.err


TITLES = ("Ünïcödé", "東京", "\N{SNOWMAN} \N{PILE OF POO}", "‮gnorw‬", "\x1b]0;owned\x07 \x9b2J", "a\ttab")


@pytest.fixture
def titled(door: Door, make: Factory) -> Door:
    """Topics with titles beyond ASCII, and worse."""
    make.site("demo")
    rows = [make.row("a", n, title=title) for n, title in enumerate(TITLES, start=1)]
    make.services.planning.plan(make.site_id, rows)
    return door


LOOKS = ("topics list --site demo", "topics show demo/a-5", "jobs list")
MORE_LOOKS = ("status", "lanes list --site demo", "sites list", "config", "db history")
ASCII = ({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"})


@pytest.mark.slow
@pytest.mark.guarantee("S9")
@pytest.mark.parametrize("env", ASCII)
def test_a_terminal_that_lacks_characters(titled: Door, env: dict[str, str]) -> None:
    """Titles beyond ASCII are shown as escapes; nothing raw, nothing refused; JSON says the same as anywhere."""
    for words in LOOKS:
        said = titled.cold(*words.split(), env=env)
        assert said.code == 0, (words, said)
        assert said.out.isascii()
    there = titled.cold("topics", "list", "--site", "demo", "--json", env=env).json
    assert there == titled("topics", "list", "--site", "demo", "--json").json
    assert [topic["title"] for topic in there["topics"]] == list(TITLES)


def test_every_width_shows_the_same(titled: Door, inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe no width changes a byte; refusals are as long as they are. Odd ones are tried on tables."""
    for words in (*LOOKS, *MORE_LOOKS, "jobs requeue 424242", "topics show demo/nowhere"):
        shown = set()
        for width in ("20", "80", "200", "0", "-5", "wide", "") if words in LOOKS else ("20", "200"):
            monkeypatch.setenv("COLUMNS", width)
            titled.env["COLUMNS"] = width
            said = inside(words)
            shown.add((said.code, said.out, said.err))
        assert len(shown) == 1, (words, shown)


@pytest.mark.parametrize("words", ["status", "topics list --site demo", "run --site demo --workers 1", "db history"])
def test_a_reader_that_leaves(door: Door, words: str) -> None:
    """``| head -1``: quiet, and the work is done all the same."""
    process = door.start(*words.split())
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    told = process.stderr.read()
    code = process.wait(timeout=30)

    harmless(told)
    assert code in (0, 2)
    assert "Broken pipe" not in told


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&-", "<&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed(door: Door, redirect: str) -> None:
    """A service without standard streams: nothing to say, no failure."""
    closed = {number for number, sign in enumerate(("<&-", ">&-", "2>&-")) if sign in redirect.split()}

    command = f"exec {' '.join(PIPELINE)} status {redirect}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=door.root, env=door.environment(), capture_output=True, text=True, check=False
    )
    others = {words: door.end(door.start(*words.split(), closed=closed)) for words in ("config", "db history")}

    harmless(done.stdout + done.stderr)
    assert done.returncode == 0, done
    assert [said.code for said in others.values()] == [0, 0], others


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", ["config", "db history", "status --json"])
def test_an_answer_that_cannot_be_written(door: Door, words: str) -> None:
    """A full disk behind ``>``: one message, and not 0, since the answer is lost."""
    with Path("/dev/full").open("w") as full:
        said = door.end(door.start(*words.split(), stdout=full.fileno()))

    assert said.code == 1, said
    assert said.err == "error: the answer cannot be written: No space left on device\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [{"PYTHONWARNINGS": "error"}, {"HOME": ""}, {"TERM": ""}, {"PATH": ""}, {"TZ": "Nowhere/X"}]
)
def test_an_odd_environment(door: Door, env: dict[str, str]) -> None:
    """Warnings as errors, no home, no path: a run works as ever."""
    said = door.cold("run", "--site", "demo", "--workers", "1", env=env)

    assert said.code == 0, said
    assert door.cold("status", env=env).code == 0


def test_without_a_home(door: Door) -> None:
    """Unset, not only empty; and a user id without a name."""
    env = {key: value for key, value in door.environment().items() if key not in ("HOME", "USER", "LOGNAME")}
    command = [*PIPELINE, "status"]
    done = subprocess.run(command, cwd=door.root, env=env, capture_output=True, text=True, check=False)

    harmless(done.stderr)
    assert done.returncode == 0


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system of its own at a place."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def can_mount() -> bool:
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    )


mounts = pytest.mark.skipif(sys.platform != "linux" or not can_mount(), reason="needs root, to mount a small disk")


@mounts
@pytest.mark.slow
def test_a_disk_that_is_full_below_public(door: Door) -> None:
    """The pages that do not fit are told with the reason, nothing half is left; with room, they are published."""
    with small_disk(door.root / "public", "4k"):
        said = door("run", "--site", "demo", "--workers", "1", "--wait", "0")

        assert said.code == 1, said
        assert "No space left on device" in said.out
        jobs = [str(job["id"]) for job in door("jobs", "list", "--state", "failed", "--json").json["jobs"]]
        assert jobs
        subprocess.run(["mount", "-o", "remount,size=1m", door.root / "public"], check=True)
        assert door("jobs", "requeue", *jobs).code == 0
        again = door("run", "--site", "demo", "--workers", "1")
        assert (again.code, again.out.splitlines()[0]) == (0, "demo: 6 of 6 topics live")
        assert all(page.read_text() for page in (door.root / "public").rglob("index.html"))


@mounts
def test_a_disk_that_is_full_below_the_embedded_server(homeless: Door) -> None:
    """It cannot be made there: the reason, and 3; with room, it can."""
    with small_disk(homeless.root / ".pipeline", "1m"):
        said = homeless("run", "--site", "demo", "--workers", "1")

        assert (said.code, said.out) == (3, ""), said
        assert "No space left on device" in said.err


@mounts
def test_a_project_that_cannot_be_written(door: Door) -> None:
    """Read-only, as in an image: looking works, and a run tells which file it could not write."""
    with small_disk(door.root / "public", "1m"):
        subprocess.run(["mount", "-o", "remount,ro", door.root / "public"], check=True)

        assert door("status").code == 0
        said = door("run", "--site", "demo", "--workers", "1", "--wait", "0")
        assert said.code == 1, said
        assert "Read-only file system" in said.out
