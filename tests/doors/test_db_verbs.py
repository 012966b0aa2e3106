"""``pipeline db downgrade``, ``current``, ``history`` and ``shell``: nothing is lost unasked, no password is shown."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from pipeline import migrate
from pipeline.cli import psql
from pipeline.embedded import EmbeddedServer, embedded_home
from pipeline.errors import Refused
from tests.doors.scene import CANARY, PIPELINE, Door, Said, write_project
from tests.doors.test_terminal import Terminal
from tests.factories import Factory
from tests.processes.project import until

pytestmark = pytest.mark.slow  # real processes, and many of them

HEAD = migrate.head()
BELOW = migrate.numbers()[-2]


@pytest.fixture
def laid(fresh: Door, fresh_database: str) -> Door:
    """A project on a database of its own, with the schema of this release."""
    migrate.upgrade(fresh_database, "pipeline")
    return fresh


def test_current_tells_where_the_schema_is(fresh: Door, fresh_database: str, inside: Callable[[str], Said]) -> None:
    """Before the first revision, in the middle, at the head."""
    assert inside("db current").out == f"the schema 'pipeline' is at base; this release needs {HEAD}\n"
    assert inside("db current --json").json == {"schema": "pipeline", "revision": None, "head": HEAD}
    migrate.upgrade(fresh_database, "pipeline", "0002")
    assert inside("db current").out == f"the schema 'pipeline' is at 0002; this release needs {HEAD}\n"
    migrate.upgrade(fresh_database, "pipeline")
    assert inside("db current").out == f"the schema 'pipeline' is at {HEAD}; as this release needs\n"


def test_history_lists_every_revision_without_a_database(inside: Callable[[str], Said]) -> None:
    """Oldest first; the database of this project cannot be reached."""
    found = inside("db history --json").json["revisions"]

    assert [row["revision"] for row in found] == migrate.numbers()
    assert found[0] == {"revision": "0001", "title": "Create the sites"}
    assert len(inside("db history").out.splitlines()) == len(found) + 1


def test_downgrade_refuses_to_lose_data_unasked(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """Where nobody can be asked, it tells what is there, and that --yes is needed."""
    make.plan(count=3)

    said = door("db", "downgrade", BELOW)

    assert (said.code, said.out) == (1, "")
    assert f"the schema 'pipeline' holds 1 site with 3 topics; going down from {HEAD} to {BELOW} loses data" in said.err
    assert "add --yes" in said.err
    assert f"at {HEAD}" in inside("db current").out


def test_downgrade_goes_down_and_upgrade_up_again(laid: Door, inside: Callable[[str], Said]) -> None:
    """To a revision, by its number with or without zeros, and to base; what was lost is told."""
    down = inside(f"db downgrade {int(BELOW)} --yes --json")
    assert down.json == {"schema": "pipeline", "revision": BELOW, "taken_back": [HEAD]}
    assert f"holds 0 sites with 0 topics; going down from {HEAD} to {BELOW} loses data" in down.err
    assert f"taken back {HEAD} " in down.err
    assert inside(f"db downgrade {BELOW} --yes").out == f"the schema 'pipeline' is at {BELOW}; nothing to do\n"

    above = inside(f"db downgrade {HEAD} --yes")
    assert (above.code, above.out) == (1, "")
    assert f"the schema is at {BELOW}, which is below {HEAD}; to go up: pipeline db upgrade" in above.err

    base = inside("db downgrade base --yes")
    assert base.out == f"the schema 'pipeline' is at base; {len(migrate.numbers()) - 1} revisions taken back\n"
    assert inside("db downgrade base").out == "the schema 'pipeline' is at base; nothing to do\n"
    assert inside("db upgrade").code == 0
    assert inside("db check").code == 0


@pytest.mark.parametrize("revision", ["9999", "head", "-1x", "0001;"])
def test_downgrade_to_an_unknown_revision(inside: Callable[[str], Said], revision: str) -> None:
    """Before any database is asked."""
    said = inside(f"db downgrade --yes -- {revision}")

    assert (said.code, said.out) == (2, "")
    assert f"no revision {revision!r} in this release" in said.err


def test_downgrade_asks_on_a_terminal(laid: Door, fresh_database: str) -> None:
    """No leaves all as it is; yes does it."""
    for answer, code, at in (("n", 1, HEAD), ("y", 0, BELOW)):
        terminal = Terminal(laid, ("db", "downgrade", BELOW))
        terminal.until("go on?")
        terminal.type(f"{answer}\n")

        assert terminal.end() == code
        assert migrate.current(fresh_database, "pipeline") == at
    assert "nothing was changed" not in terminal.seen


@pytest.fixture
def spy(tmp_path: Path, door: Door) -> Door:
    """A project whose psql on PATH tells what it was given."""
    script = tmp_path / "bin" / "psql"
    script.parent.mkdir()
    script.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >"$SEEN"\nprintf "%s" "$PGPASSWORD" >"$SEEN.password"\nexit "$ENDS"\n'
    )
    script.chmod(0o755)
    door.env |= {"PATH": f"{script.parent}:{os.environ['PATH']}", "SEEN": str(tmp_path / "seen"), "ENDS": "0"}
    return door


def test_shell_hides_the_password_from_the_process_list(spy: Door, tmp_path: Path) -> None:
    """It goes by PGPASSWORD; the rest goes in words, ours after it."""
    spy.env["PIPELINE_DATABASE_URL"] = "postgresql://me:canary%2F7Qx%409@db.example:5433/content?sslmode=require"

    assert spy("db", "shell", "--", "-c", "SELECT 1").code == 0

    first, target, *rest = (tmp_path / "seen").read_text().splitlines()
    assert first == "--dbname"
    assert set(target.split()) >= {"host=db.example", "port=5433", "user=me", "dbname=content", "sslmode=require"}
    assert rest == ["-c", "SELECT 1"]
    assert (tmp_path / "seen.password").read_text() == CANARY
    assert "7Qx" not in (tmp_path / "seen").read_text()


def test_shell_leaves_a_password_of_the_environment_alone(spy: Door, tmp_path: Path) -> None:
    """Where the URL has none."""
    spy.env |= {"PIPELINE_DATABASE_URL": "postgresql://me@db.example/content", "PGPASSWORD": "theirs"}

    assert spy("db", "shell").code == 0
    assert (tmp_path / "seen.password").read_text() == "theirs"


@pytest.mark.parametrize(("ends", "code"), [(0, 0), (1, 1), (2, 3), (3, 1), (7, 1)])
def test_shell_ends_as_psql_did(spy: Door, ends: int, code: int) -> None:
    """A lost connection is ours of the database."""
    spy.env["ENDS"] = str(ends)

    assert spy("db", "shell").code == code


@pytest.mark.parametrize(
    ("url", "code", "part"),
    [
        ("postgresql://me@h/x?sslpassword=canary%2F7Qx%409", 1, "cannot be given sslpassword"),
        ("postgresql://me:canary%2F7Qx%409@h/x?nonsense=1", 2, "nonsense"),
    ],
)
def test_shell_refuses_a_url_that_psql_cannot_have(spy: Door, url: str, code: int, part: str) -> None:
    """Described, not quoted."""
    spy.env["PIPELINE_DATABASE_URL"] = url

    said = spy("db", "shell")

    assert (said.code, said.out) == (code, "")
    assert part in said.err


def test_shell_without_any_psql(inside: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out is named, for both kinds of server."""
    monkeypatch.setattr(psql, "_bundled", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)

    said = inside("db shell")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: there is no psql here; install PostgreSQL's client programs")
    with pytest.raises(Refused):
        psql.find_psql(embedded=True)


def test_each_kind_of_server_has_its_psql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The embedded one that of its own release; a named one the system's; each the other where its own is missing."""
    monkeypatch.setattr(psql, "_bundled", lambda: "/bundled/psql")
    monkeypatch.setattr(shutil, "which", lambda name: "/system/psql")
    assert psql.find_psql(embedded=True) == Path("/bundled/psql")
    assert psql.find_psql(embedded=False) == Path("/system/psql")

    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert psql.find_psql(embedded=False) == Path("/bundled/psql")


def test_ctrl_c_ends_a_query_and_not_the_shell(door: Door, engine: Engine) -> None:
    """It goes to both of us, and is psql's to answer."""
    terminal = Terminal(door, ("db", "shell", "--", "-X"))
    terminal.until("the tables are in the schema 'pipeline'")
    terminal.type("SELECT pg_sleep(60);\n")
    asked = text("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'")

    def runs() -> bool:
        with engine.begin() as connection:  # what a transaction sees of it does not change
            return bool(connection.scalar(asked))

    until(runs, "the query runs")

    terminal.type("\x03")
    terminal.until("canceling statement due to user request")
    terminal.type("\\q\n")

    assert terminal.end() == 0


@pytest.mark.slow
def test_shell_on_the_embedded_server(run_folder: Path) -> None:
    """It runs for as long as psql does; a project that never ran starts none."""
    door = write_project(run_folder / f"shell-{os.getpid()}")
    assert "nothing here yet" in door("db", "shell").err
    assert door("db", "upgrade").code == 0

    said = door("db", "shell", "--", "-At", "-c", "SELECT count(*), current_user FROM pipeline.topics")

    assert (said.code, said.out) == (0, "0|pipeline\n")
    assert not EmbeddedServer(embedded_home(door.root)).running()
    broken = door("db", "shell", "--", "-v", "ON_ERROR_STOP=1", "-c", "SELECT nonsense")
    assert broken.code == 1
    script = subprocess.run(
        [*PIPELINE, "db", "shell", "--", "-At"],
        cwd=door.root, env=door.environment(), input="SELECT 6 * 7;\n", capture_output=True, text=True,
    )  # fmt: skip
    assert script.stdout == "42\n"


@pytest.mark.parametrize("verb", ["downgrade", "current", "history", "shell"])
def test_help_opens_with_an_imperative_and_ends_with_an_example(inside: Callable[[str], Said], verb: str) -> None:
    """As all of ours does."""
    said = inside(f"db {verb} --help")

    assert said.code == 0
    usage, text = said.out.split("\n\n", 1)
    assert usage.startswith(f"Usage: pipeline db {verb}")
    assert text.split()[0] in {"Take", "Show", "List", "Open"}
    assert re.search(r"\n  Example: \S*.*\n\n(Arguments|Options):", text)
