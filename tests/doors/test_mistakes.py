"""Mistakes in a project: one clear message, its exit code, nothing half imported."""

from collections.abc import Callable

import pytest

from pipeline.build import Services
from tests.doors.scene import TOML, Door, Said
from tests.doors.test_stages import MINE
from tests.factories import Factory


def refused(said: Said, *parts: str) -> None:
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    for part in parts:
        assert part in said.err


def test_an_unknown_site_is_answered_with_the_nearest(closed: Door) -> None:
    """No database is asked to find that out."""
    refused(closed("run", "--site", "dema"), "no site 'dema'", "did you mean 'demo'?")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("name =\n", ("sites/demo/site.toml", "line 1")),
        (TOML + "locale = '?'\n", ("sites/demo/site.toml", "line 3", "locale")),
        ("name = 'x'\n", ("base_url is missing",)),
    ],
)
def test_a_broken_site_file_is_named_with_its_line(closed: Door, text: str, parts: tuple[str, ...]) -> None:
    """Before any server is asked."""
    (closed.root / "sites/demo/site.toml").write_text(text)

    refused(closed("run", "--site", "demo"), *parts)


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ("a,2,a2,,page,", ("topics.csv:3: column title: is empty",)),
        ("a,two,a2,T,page,", ("topics.csv:3: column position: 'two' is no position",)),
        ("b,1,a1,T,page,", ("topics.csv:3: column slug: 'a1' is already on line 2",)),
        ("a,1,a2,T,page,", ("topics.csv:3: column position: 1 in lane 'a' is already on line 2",)),
    ],
)
def test_a_bad_row_is_named_and_nothing_imported(
    door: Door, services: Services, row: str, parts: tuple[str, ...]
) -> None:
    """The good rows of a bad file are not imported either."""
    door.rows("a,1,a1,T,page,", row)

    refused(door("run", "--site", "demo"), "nothing was imported", *parts)
    assert services.reading.sites() == []


def test_two_topics_at_one_path_are_both_named(closed: Door) -> None:
    """By their lines."""
    (closed.root / "sites/demo/site.toml").write_text(TOML + "[paths]\npage = '{lane}/'\n")
    closed.rows("a,1,a1,T,page,", "a,2,a2,T,page,")

    refused(closed("run", "--site", "demo"), "topics.csv:3", "'a/' like that of line 2")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("stages/__init__.py defines no PIPELINE",)),
        ("PIPELINE = ()", ("stages:PIPELINE is empty",)),
        ("PIPELINE = (int,)", ("item 1 of stages:PIPELINE is <class 'int'>, which is no Stage class",)),
        ("x = 1\nx = 1 / 0", ("stages cannot be imported (stages/__init__.py, line 2): ZeroDivisionError",)),
        ("PIPELINE = (", ("stages cannot be imported", "SyntaxError", "line 1")),
        ("import nothing_of_that_name", ("ModuleNotFoundError: No module named 'nothing_of_that_name'",)),
    ],
)
def test_stages_that_cannot_be_used(closed: Door, text: str, parts: tuple[str, ...]) -> None:
    """The place in the project, not a traceback of ours."""
    closed.stages(text)

    refused(closed("run", "--site", "demo"), *parts)


def test_a_topic_cannot_move(door: Door, make: Factory) -> None:
    """A planned topic in another lane is refused with its line."""
    make.site("demo", MINE)
    make.services.planning.plan(make.site_id, [make.row("a", 1, slug="a1")])
    door.rows("b,1,a1,T,page,")

    refused(door("run", "--site", "demo"), "line 2", "'a1'", "cannot move")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run --site demo --workers 0", "--workers"),
        ("run --site demo --wait nan", "--wait"),
        ("run --site demo --wait -1", "--wait"),
        ("run", "missing option '--site'; see: pipeline run --help"),
        ("rum", "no such command 'rum'"),
        ("run --sight demo", "no such option"),
        ("jobs list --limit x", "--limit"),
    ],
)
def test_wrong_words(inside: Callable[[str], Said], words: str, message: str) -> None:
    """Usage errors end with 2 and name the help."""
    refused(inside(words), message)


def test_a_defect_is_told_in_one_line(closed: Door) -> None:
    """A traceback only for who asks for one."""
    closed.stages("raise SystemExit('gone')")

    said = closed("run", "--site", "demo")

    assert said.code == 1
    assert said.err == "error: unexpected SystemExit: gone; run again with PIPELINE_DEBUG=1 for the traceback\n"


@pytest.mark.parametrize(
    ("name", "value"), [("PIPELINE_CONCURRENCY", "many"), ("PIPELINE_SCHEMA", "a;b"), ("PIPELINE_GRACE", "soon")]
)
def test_a_wrong_variable_is_named(closed: Door, inside: Callable[[str], Said], name: str, value: str) -> None:
    """Without its value."""
    closed.env[name] = value

    said = inside("status")

    refused(said, f"environment variable {name}")
    assert value not in said.err.replace(name, "")
