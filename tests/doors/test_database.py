"""Databases that cannot be used, ``pipeline db``, and the embedded server: exit codes, sentences, no password."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from pipeline import migrate
from pipeline.db import check_server
from pipeline.embedded import EmbeddedServer, embedded_home
from pipeline.errors import DatabaseError
from tests.doors.scene import CANARY, Door, Said, write_project

COMMANDS = [
    "status", "topics list --site demo", "topics show demo/a1", "jobs list", "jobs requeue 1",
    "jobs skip 1 --yes", "jobs cancel 1 --yes", "db upgrade", "db check",
]  # fmt: skip


def away(said: Said, *parts: str) -> None:
    assert (said.code, said.out) == (3, ""), said
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    for part in parts:
        assert part in said.err


@contextmanager
def refusing_server() -> Iterator[int]:
    """A port on which every login is refused, as PostgreSQL refuses a wrong password."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while (length := struct.unpack("!I", connection.recv(4))[0]) == 8:  # may we use TLS, or GSSAPI?
                    connection.recv(length - 4)
                    connection.sendall(b"N")
                connection.recv(length - 4)
                fields = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "me"\0\0'
                connection.sendall(b"E" + struct.pack("!I", len(fields) + 4) + fields)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.mark.parametrize("words", COMMANDS)
def test_a_server_that_does_not_answer(inside: Callable[[str], Said], words: str) -> None:
    """Every command: 3, one line, the driver's reason, no password."""
    away(inside(words), "the database cannot be reached", "refused")


def test_a_run_on_a_server_that_does_not_answer(closed: Door) -> None:
    """The project was read before: this is told when its files are well."""
    away(closed("run", "--site", "demo"), "the database cannot be reached", "refused")


def test_a_wrong_password(closed: Door, inside: Callable[[str], Said]) -> None:
    """The user is named, the password is not."""
    with refusing_server() as port:
        closed.env["PIPELINE_DATABASE_URL"] = f"postgresql://me:canary%2F7Qx%409@127.0.0.1:{port}/content"

        for words in ("status", "db upgrade"):
            away(inside(words), 'password authentication failed for user "me"')


@pytest.mark.parametrize(
    ("url", "code", "part"),
    [
        ("mysql://me:canary%2F7Qx%409@h/x", 2, "pipeline needs postgresql://"),
        ("postgresql://me:canary%2F7Qx%409@h:port/x", 2, "the database URL cannot be read"),
        ("postgresql://me:canary/7Qx@9@h/x", 2, "written as %40"),
        ("postgresql://me:x@canary:7Qx@h/x", 2, "written as %40"),
        ("canary/7Qx@9", 2, "the database URL cannot be read"),
        ("postgresql://me:canary%2F7Qx%409@127.0.0.1:1/x?nonsense=1", 3, "nonsense"),
        ("postgresql://me@127.0.0.1:1/x?password=canary%2F7Qx%409", 3, "refused"),
        ("postgresql://me:canary%2F7Qx%409@127.0.0.1:99999/x", 3, "99999"),
        ("postgresql://me:canary%2F7Qx%409@no-such-host.invalid/x", 3, "no-such-host.invalid"),
    ],
)
def test_a_url_that_cannot_be_used(closed: Door, inside: Callable[[str], Said], url: str, code: int, part: str) -> None:
    """It is described, and never quoted."""
    closed.env["PIPELINE_DATABASE_URL"] = url

    said = inside("status")

    assert (said.code, said.out) == (code, "")
    assert part in said.err


def test_a_database_that_is_missing(door: Door, database_url: str) -> None:
    """The server's own words."""
    name = database_url.rpartition("/")[2].partition("?")[0]
    door.env["PIPELINE_DATABASE_URL"] = door.env["PIPELINE_DATABASE_URL"].replace(name, "nowhere")

    away(door("status"), 'database "nowhere" does not exist')


def test_a_schema_that_is_missing(fresh: Door, inside: Callable[[str], Said]) -> None:
    """A run stops before its work; ``db upgrade`` lays it, once."""
    away(fresh("run", "--site", "demo"), "run: pipeline db upgrade")
    away(inside("status"), "no schema 'pipeline' in this database; run: pipeline db upgrade")
    away(inside("db check"), "run: pipeline db upgrade")

    done = fresh("db", "upgrade", "--json")

    assert set(done.json) == {"schema", "revision", "applied"}
    assert (done.json["revision"], done.json["applied"]) == (migrate.head(), migrate.numbers())
    assert f"applied {migrate.head()}" in done.err
    assert inside("db upgrade").out == f"the schema 'pipeline' is at {migrate.head()}; nothing to do\n"


@contextmanager
def changed(url: str, there: str, back: str) -> Iterator[None]:
    """A schema that somebody changed, for as long as the block lasts."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(there))
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(text(back))
        engine.dispose()


def test_a_schema_that_does_not_fit(door: Door, database_url: str, inside: Callable[[str], Said]) -> None:
    """Behind and ahead end with 3 and what to do; drift is listed and ends with 1; a fitting one with 0."""
    first, head = migrate.numbers()[0], migrate.head()
    version = "UPDATE pipeline.alembic_version SET version_num = '{}'"
    fits = version.format(head)

    with changed(database_url, version.format(first), fits):
        for words in ("jobs list", "db check"):
            away(inside(words), f"the schema is at {first}, this release needs {head}; run: pipeline db upgrade")
    with changed(database_url, version.format("9999"), fits):
        away(inside("status"), "the schema is at 9999, which this release does not know")
        away(inside("db upgrade"), "the schema is at 9999, which this release does not know")
        away(door("run", "--site", "demo"), "the schema is at 9999")
    extra = "ALTER TABLE pipeline.jobs {} COLUMN extra"
    with changed(database_url, extra.format("ADD") + " int", extra.format("DROP")):
        drifted = inside("db check")
        assert (drifted.code, drifted.out) == (1, "unexpected: column jobs.extra\n")
        assert set(inside("db check --json").json) == {"schema", "revision", "drift"}
    well = inside("db check")
    assert (well.code, well.out) == (0, f"the schema 'pipeline' is at {head}, as this release needs\n")


@pytest.mark.parametrize(("version", "standby", "part"), [(14, False, "is PostgreSQL 14"), (17, True, "standby")])
def test_a_server_that_is_no_good(version: int, standby: bool, part: str) -> None:
    """Too old, or read-only: a sentence that names what is needed."""

    class Server:
        def exec_driver_sql(self, statement: str) -> Any:
            return self

        def one(self) -> tuple[int, bool]:
            return version, standby

    with pytest.raises(DatabaseError, match=part):
        check_server(Server())  # type: ignore[arg-type]


def test_db_url_masks_the_password(closed: Door) -> None:
    """Unless it is asked for; in the query as well."""
    closed.env["PIPELINE_DATABASE_URL"] += "?sslpassword=canary%2F7Qx%409"

    assert closed("db", "url").out == "postgresql://me:***@127.0.0.1:1/content?sslpassword=%2A%2A%2A\n"
    assert set(closed("db", "url", "--json").json) == {"url", "embedded"}
    process = closed.start("db", "url", "--show-password")
    assert CANARY.replace("/", "%2F").replace("@", "%40") in process.communicate()[0]


def test_a_project_that_never_ran_starts_no_server(
    homeless: Door, inside: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way on is named, and nothing is left behind."""
    monkeypatch.delenv("PIPELINE_DATABASE_URL", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    for words in ("status", "jobs list", "topics list --site demo", "topics show demo/a1", "db check", "db url"):
        said = inside(words)
        assert (said.code, said.out) == (1, "")
        assert said.err == "error: nothing here yet; run: pipeline run --site demo\n"
    assert "did you mean" in inside("status --site dem").err
    assert inside("db stop").out == "nothing to stop: the embedded server does not run\n"
    assert inside("db stop --json").json == {"stopped": False}
    assert not (homeless.root / ".pipeline").exists()


def test_db_stop_refuses_a_named_server(closed: Door) -> None:
    """It is not ours to stop."""
    said = closed("db", "stop")

    assert said.code == 1
    assert "only the embedded one is stopped here" in said.err


def test_the_embedded_server_is_started_used_and_stopped(run_folder: Path) -> None:
    """Without a URL, ``db upgrade`` lays the schema; a server in use is stopped with --force alone."""
    door = write_project(run_folder / f"door-{os.getpid()}")
    assert door("db", "upgrade").code == 0
    assert door("db", "url").code == 1
    assert door("status").err == "no site was run yet; run: pipeline run --site NAME\n"

    with EmbeddedServer(embedded_home(door.root)) as server:
        assert door("db", "url").out.startswith("postgresql://pipeline@/pipeline?host=")
        used = door("db", "stop")
        assert (used.code, used.out) == (1, "")
        assert "--force" in used.err
        assert door("db", "stop", "--force").out == "the embedded server was stopped\n"
        assert not server.running()
