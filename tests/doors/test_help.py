"""Help is quick and has one form; text from data is harmless wherever it is shown."""

import re
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

from pipeline.cli.render import as_json, masked, safe, table
from tests.doors.scene import ROOT, Door, Said

HEAVY = ("sqlalchemy", "alembic", "psycopg", "jinja2", "pydantic", "rich")
COMMANDS = [
    "run", "status", "explain", "topics list", "topics show", "jobs list", "jobs requeue", "jobs skip", "jobs cancel",
    "jobs approve", "jobs grant", "lanes close", "lanes open", "lanes set", "topics move",
    "stages list", "stages retire", "stages restore", "stages set", "stages pause", "stages resume",
    "db upgrade", "db downgrade", "db check", "db current", "db history", "db url", "db shell", "db stop",
    "init", "config", "worker", "doctor", "prune",
    "sites list", "sites show", "sites add", "sites pause", "sites resume", "sites remove",
    "lanes list", "lanes pause", "lanes resume", "topics add", "topics edit", "topics remove",
]  # fmt: skip
IMPERATIVE = {
    "Add", "Bring", "Change", "Compare", "Delete", "Examine", "Give", "Let", "List", "Make", "Migrate", "Move", "Open",
    "Pause", "Print", "Publish", "Put", "Remove", "Resume", "Set", "Show", "Stop", "Take", "Tell", "Work",
}  # fmt: skip


@pytest.mark.parametrize("words", ["", "sites", "lanes", "topics", "jobs", "stages", "db", *COMMANDS])
def test_help_opens_with_an_imperative_and_ends_with_an_example(inside: Callable[[str], Said], words: str) -> None:
    """Of every command and group."""
    said = inside(f"{words} --help")

    assert said.code == 0
    usage, text = said.out.split("\n\n", 1)
    assert usage.startswith(f"Usage: pipeline {words}".rstrip())
    assert text.split()[0] in IMPERATIVE
    assert re.search(r"\n  Example: \S*.*\n\n(Arguments|Options):", text)


def test_version_and_no_words(closed: Door) -> None:
    """The version is an answer; no words at all are wrong usage, answered with help."""
    version = closed.cold("--version")
    nothing = closed.cold()

    assert (version.code, version.out) == (0, "pipeline 0.1.0\n")
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err.startswith("Usage: pipeline")


def loaded(code: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.splitlines()[-1].split())


def test_help_loads_no_library_of_the_work() -> None:
    """Showing help loads nothing heavy beyond what ``import pipeline`` itself does."""
    show = "import sys; sys.argv = ['pipeline', '--help']\n"
    show += "from pipeline.cli.main import main\ntry: main()\nexcept SystemExit: pass"

    heavy = (loaded(show) - loaded("import pipeline")) & set(HEAVY)

    assert heavy == set()


def worked() -> float:
    """Seconds of a core that processes of ours took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_quick(closed: Door) -> None:
    """Beside what a bare ``import pipeline`` takes on this machine; the best of a few."""
    bare, shown = [], []
    for _ in range(4):
        began = worked()
        loaded("import pipeline")
        between = worked()
        closed.cold("--help")
        bare.append(between - began)
        shown.append(worked() - between)

    assert min(shown) - min(bare) < 0.4


@pytest.mark.parametrize(
    "text", ["\x1b[31m", "\x1b]8;;http://x\x07", "a\r\nb", "\x9b2J", "\u202eevil", "\u2028", "\ud800", "\x7f", "\0"]
)
def test_safe_text_has_no_raw_control(text: str) -> None:
    """Escapes are shown, on one line; JSON escapes them as well; tables keep rows on a line."""
    for shown in (safe(text), as_json({"x": text}), table(("x",), [(text,), ("[bold]y[/bold]",)])):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", shown)
    assert "\n" not in safe(text)
    assert table(("x",), [(text,), ("[bold]y[/bold]",)]).splitlines()[2] == "[bold]y[/bold]"


def test_a_wide_table_in_a_pipe_is_whole() -> None:
    """No cell is cut, whatever the width of a terminal may be."""
    row = ["w" * 500, "v" * 500]

    assert table(("a", "b"), [row]).splitlines()[1].split() == row


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:s3c@r/et@h/db is away", "postgresql://me:***@h/db is away"),
        ("host=h password=secret dbname=x", "host=h password=*** dbname=x"),
        ("https://h/x?a=1 and mail@x", "https://h/x?a=1 and mail@x"),
    ],
)
def test_quoted_passwords_are_masked(text: str, shown: str) -> None:
    """Whoever quotes a URL in a message gives no password away."""
    assert masked(text) == shown
