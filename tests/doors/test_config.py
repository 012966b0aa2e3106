"""Settings: defaults, the file, the environment, flags; whatever is wrong is named by its place, never quoted."""

import json
import os
import re
from collections.abc import Callable

import pytest

from pipeline import settings
from pipeline.errors import ProjectError
from tests.doors.scene import ROOT, Door, Said

KEYS = [
    "database_url", "schema", "workers", "concurrency", "poll", "wake", "reap", "grace", "prune_after", "prepare",
]  # fmt: skip


@pytest.fixture
def bare(homeless: Door, monkeypatch: pytest.MonkeyPatch) -> Door:
    """A project that the environment of these tests tells nothing."""
    for name in list(os.environ):
        if name.startswith("PIPELINE_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)
    return homeless


def write(door: Door, text: str) -> None:
    (door.root / "pipeline.toml").write_text(text)


def sources(said: Said) -> dict[str, tuple[object, str, str | None]]:
    return {row["name"]: (row["value"], row["from"], row["source"]) for row in said.json["settings"]}


def refused(said: Said, *parts: str) -> None:
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    for part in parts:
        assert part in said.err


def test_without_anything_all_is_default(bare: Door, inside: Callable[[str], Said]) -> None:
    """One worker for each core; the embedded server."""
    said = inside("config --json")

    assert set(said.json) == {"root", "file", "settings"}
    assert (said.json["root"], said.json["file"]) == (str(bare.root), None)
    found = sources(said)
    assert list(found) == KEYS
    assert {kind for _, kind, _ in found.values()} == {"default"}
    assert found["database_url"][0] is None
    assert found["workers"][0] == os.cpu_count()
    assert (found["poll"][0], found["reap"][0], found["grace"][0]) == (1, 10, 30)
    assert "the embedded server in .pipeline/" in inside("config").out


def test_each_source_is_stronger_than_the_one_before(bare: Door, inside: Callable[[str], Said]) -> None:
    """File over default, variable over file, flag over variable; an empty variable counts as unset."""
    write(bare, "workers = 3\nconcurrency = 4\ngrace = 5\nschema = 'mine'\n")
    bare.env |= {"PIPELINE_CONCURRENCY": "6", "PIPELINE_WORKERS": "7", "PIPELINE_GRACE": "", "PIPELINE_REAP": "PT2S"}

    found = sources(inside("config --json --workers 8"))

    assert found == {
        "database_url": (None, "default", None),
        "schema": ("mine", "file", "schema"),
        "workers": (8, "flag", "--workers"),
        "concurrency": (6, "environment", "PIPELINE_CONCURRENCY"),
        "poll": (1, "default", None),
        "wake": (True, "default", None),
        "reap": (2, "environment", "PIPELINE_REAP"),
        "grace": (5, "file", "grace"),
        "prune_after": (0, "default", None),
        "prepare": ("auto", "default", None),
    }
    assert re.search(r"workers +7 +environment variable PIPELINE_WORKERS\n", inside("config").out)


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("0.5", 0.5), ("PT2S", 2), ("00:01:00", 60)])
def test_durations_are_seconds_unless_they_say_otherwise(
    bare: Door, inside: Callable[[str], Said], text: str, seconds: float
) -> None:
    """In variables as in the file."""
    bare.env["PIPELINE_POLL"] = text
    write(bare, f"reap = {text if text[0].isdigit() and ':' not in text else repr(text)}\n")

    found = sources(inside("config --json"))

    assert (found["poll"][0], found["reap"][0]) == (seconds, seconds)


def test_the_two_variables_of_the_database(bare: Door, inside: Callable[[str], Said]) -> None:
    """Both beat the file, ours beats the common one; what counts is what is told."""
    write(bare, 'database_url = "postgresql://me@file/x"\n')
    assert sources(inside("config --json"))["database_url"] == ("postgresql://me@file/x", "file", "database_url")

    bare.env["DATABASE_URL"] = "postgresql://me@common/x"
    told = sources(inside("config --json"))["database_url"]
    assert told == ("postgresql://me@common/x", "environment", "DATABASE_URL")

    bare.env["PIPELINE_DATABASE_URL"] = "postgresql://me@ours/x"
    told = sources(inside("config --json"))["database_url"]
    assert told == ("postgresql://me@ours/x", "environment", "PIPELINE_DATABASE_URL")


@pytest.mark.parametrize("words", ["config", "config --json"])
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:canary%2F7Qx%409@h/x?sslpassword=canary%2F7Qx%409", "postgresql://me:***@h/x"),
        ("postgresql://me:canary/7Qx@9@h/x", "*** (no URL of PostgreSQL)"),
        ("canary/7Qx@9", "*** (no URL of PostgreSQL)"),
    ],
)
def test_secrets_are_masked(bare: Door, inside: Callable[[str], Said], words: str, url: str, shown: str) -> None:
    """``inside`` looks for them in all that is said."""
    bare.env["PIPELINE_DATABASE_URL"] = url

    said = inside(words)

    assert said.code == 0
    assert shown in said.out


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "workers = 2\nconcurency = 4\n",
            ("pipeline.toml (at line 2): no key 'concurency'; did you mean 'concurrency'?",),
        ),
        ("[pipeline]\nworkers = 2\n", ("(at line 1): no key 'pipeline'; there is: database_url, schema, workers",)),
        ("'db_schema' = 'x'\n", ("(at line 1): no key 'db_schema'; did you mean 'schema'?",)),
        ("workers = 2\nschema = \n", ("pipeline.toml: ", "line 2")),
        ("workers = 2\nworkers = 3\n", ("pipeline.toml: ", "line 2")),
        ("\n\nconcurrency = 'many'\n", ("pipeline.toml (at line 3): concurrency: ", "integer")),
        ("workers = 0\n", ("(at line 1): workers: ", "greater than or equal to 1")),
        ("prune_after = 90\n", ("(at line 1): prune_after: ", "a day (86400) or longer")),
        ("workers = true\n", ("(at line 1): workers: must be a number",)),
        ("poll = 0\n", ("(at line 1): poll: ",)),
        ("poll = true\n", ("(at line 1): poll: must be a number",)),
        ("poll = 'soon'\n", ("(at line 1): poll: ",)),
        ("grace = -1\n", ("(at line 1): grace: ",)),
        ("schema = 'a;b'\n", ("(at line 1): schema: ",)),
        ("schema = 7\n", ("(at line 1): schema: ",)),
        ("database_url = ''\n", ("(at line 1): database_url: ",)),
        ("[grace]\nx = 1\n", ("(at line 1): grace: ",)),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    bare: Door, inside: Callable[[str], Said], text: str, parts: tuple[str, ...]
) -> None:
    """Before any database is asked, by each command that needs it."""
    write(bare, text)

    refused(inside("config"), *parts)
    refused(inside("status"), *parts)


def test_a_file_that_is_no_text(bare: Door, inside: Callable[[str], Said]) -> None:
    """The line of the first bad byte."""
    (bare.root / "pipeline.toml").write_bytes(b"workers = 2\n# caf\xe9\n")

    refused(inside("config"), "pipeline.toml: not UTF-8 (at line 2)")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:canary%2F7Qx%409@h/x",
        "postgresql://me:canary/7Qx@9@h/x",
        "postgresql://me:7Qx?a@h/x",
        "postgresql://:7Qx@h/x",
        "postgresql://me@h/x?password=7Qx",
        "postgresql://me@h/x?a=b&SSLPassword=7Qx",
    ],
)
def test_a_password_does_not_belong_into_the_file(bare: Door, inside: Callable[[str], Said], url: str) -> None:
    """It is refused, even when the environment says otherwise, and the way out is named."""
    write(bare, f'database_url = "{url}"\n')
    refused(inside("config"), "pipeline.toml (at line 1): database_url holds a password", "PIPELINE_DATABASE_URL")

    bare.env["PIPELINE_DATABASE_URL"] = "postgresql://me@h/x"
    refused(inside("status"), "database_url holds a password")


@pytest.mark.parametrize(
    "url", ["postgresql://h:5432/x", "postgresql://me@h:5432/x?sslmode=require", "postgresql:///x?host=/run/postgresql"]
)
def test_a_url_without_a_password_may_stand_in_the_file(bare: Door, inside: Callable[[str], Said], url: str) -> None:
    """A port is none."""
    write(bare, f'database_url = "{url}"\n')

    assert inside("config").code == 0


def test_a_wrong_flag_of_ours_is_named(bare: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doors check their flags; who loads settings by hand is told as well."""
    monkeypatch.chdir(bare.root)

    with pytest.raises(settings.UsageError, match="flag --concurrency: "):
        settings.load_settings(concurrency=0)


@pytest.mark.slow
def test_the_file_works_from_below_and_in_workers(bare: Door, fresh_database: str) -> None:
    """From a folder of the project, a run and its worker processes find the schema that the root's file names."""
    write(bare, 'workers = 1\nschema = "mine"\nconcurrency = 1\npoll = 0.1\n')
    bare.env["PIPELINE_DATABASE_URL"] = fresh_database
    below = Door(bare.root / "sites/demo", bare.env)
    assert below("db", "upgrade", "--json").json["schema"] == "mine"

    said = below("run", "--site", "demo", "--json")

    assert said.code == 0, said.err
    assert said.json["live"] == 6


@pytest.mark.parametrize(("words", "expected"), [((), 3), (("--workers", "5"), 5)])
def test_a_run_takes_its_workers_from_the_settings(
    bare: Door, inside: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: int
) -> None:
    """Unless a flag says otherwise."""
    write(bare, "workers = 3\n")
    seen: list[object] = []

    def stop(*_: object, workers: int, **__: object) -> None:
        seen.append(workers)
        raise ProjectError("enough")

    monkeypatch.setattr("pipeline.run.Run", stop)
    inside(" ".join(("run", "--site", "demo", *words)))

    assert seen == [expected]


def test_what_tells_is_what_counts(bare: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """``origins`` and the values agree for each setting and each mix of sources."""
    monkeypatch.chdir(bare.root)
    texts = {
        "database_url": ("postgresql://a@h/x", "postgresql://b@h/x", "postgresql://c@h/x"),
        "db_schema": ("a", "b", "c"),
        "prepare": ("always", "never", "auto"),
        "wake": (True, False, True),
        "prune_after": (86_400, 172_800, 0),
    }
    for field in settings.Settings.model_fields:
        for mix in range(8):
            three = dict(zip(("file", "environment", "flag"), texts.get(field, (1, 2, 3)), strict=True))
            kinds = [kind for bit, kind in enumerate(three) if mix >> bit & 1]
            given = {kind: three[kind] for kind in kinds}
            write(bare, f"{settings.key(field)} = {json.dumps(given['file'])}\n" if "file" in given else "")
            monkeypatch.setenv(settings.variables(field)[0], str(given.get("environment", "")))
            flags = {field: given["flag"]} if "flag" in given else {}

            strongest = kinds[-1] if kinds else "default"
            assert settings.origins(**flags)[field].kind == strongest
            if strongest != "default":
                wanted = settings.Settings.model_validate({field: given[strongest]})
                assert getattr(settings.load_settings(**flags), field) == getattr(wanted, field)
        monkeypatch.delenv(settings.variables(field)[0])


def test_its_help_has_our_form(inside: Callable[[str], Said]) -> None:
    """An imperative first, an example last."""
    assert re.search(r"\n\n  Show .*\n\n  Example: pipeline config\n\n", inside("config --help").out, re.DOTALL)


def test_no_setting_is_left_out_of_the_starters_file() -> None:
    """Whoever adds one tells new projects of it."""
    text = (ROOT / "pipeline/project/starter/pipeline.toml").read_text()

    assert re.findall(r"(?m)^# (\w+) = ", text) == KEYS
