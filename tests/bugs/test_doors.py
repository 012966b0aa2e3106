"""Public bug reports of comparable systems, tried on ours: migrations, settings, commands (O-49 to O-55).

Each test has the number of its report. Those that need a server which can be spoilt have one of their own.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from pipeline import migrate
from pipeline.cli.guard import guarded
from pipeline.cli.main import app
from tests.doors.conftest import closed, door, homeless, inside
from tests.doors.scene import ROOT, Door, Said, harmless
from tests.factories import Factory
from tests.fingerprint import fingerprint
from tests.processes.project import until
from tests.servers.conftest import empty_name, name, project, scratch, scratch_folder
from tests.servers.scratch import LOOPBACK, Scratch
from tests.servers.test_pooler import pooled, pooler

__all__ = [  # fixtures
    "closed", "door", "empty_name", "homeless", "inside", "name", "pooled", "pooler", "project", "scratch",
    "scratch_folder",
]  # fmt: skip

Inside = Callable[[str], Said]
SCHEMA = "pipeline"


@pytest.mark.slow
def test_o49_many_upgrades_at_once_one_of_them_killed(scratch: Scratch, empty_name: str) -> None:
    """Six on an empty database, one killed in the middle: the others end well, and nothing is half built."""
    url = scratch.url(empty_name, "pipeline").render_as_string(hide_password=False)
    env = {**os.environ, "PIPELINE_DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pipeline.cli.main", "db", "upgrade"]
    many = [
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert many[0].stderr is not None

    def at_work() -> "subprocess.Popen[str] | None":
        """The one whose turn it is, by the process number that the server knows nothing of: by what it has said."""
        at = migrate.current(url, SCHEMA)
        return many[0] if at is not None and "0005" <= at < migrate.head() else None

    until(at_work, "some revisions are done", 60)
    holder = scratch.run(
        "SELECT a.client_port FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE l.locktype = 'advisory' AND l.granted",
        database=empty_name,
    )
    victim = next((p for p in many if holder and owns_port(p.pid, int(str(holder[0][0])))), many[0])
    victim.kill()
    said = {p.pid: (*p.communicate(timeout=100), p.returncode) for p in many}

    assert {code for pid, (_, _, code) in said.items() if pid != victim.pid} == {0}, said
    migrate.upgrade(url, "clean")
    engine = migrate.direct_engine(url)
    assert fingerprint(engine, SCHEMA) == fingerprint(engine, "clean")


def owns_port(pid: int, port: int) -> bool:
    """Whether a process has a connection from that port."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].partition(":")[2], 16) == port:
            inodes.add(f"socket:[{fields[9]}]")
    try:
        return any(os.readlink(link) in inodes for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


PASSWORDS = (
    "p@ss7Qx",
    "7Qx=%3D",
    "a#7Qx",
    "b?7Qx",
    "c/7Qx",
    "d:7Qx",
    " 7Qx e ",
    "ü7Qx",
    "%(here)s7Qx%",
    "7Qx@/:#?%=ü &+",
)


@pytest.fixture
def guarded_by_password(scratch: Scratch) -> Iterator[str]:
    """A role that the server asks for its password."""
    access = scratch.data / "pg_hba.conf"
    before = access.read_text()
    access.write_text(f"host all keeper 127.0.0.1/32 scram-sha-256\n{before}")
    scratch.run("CREATE ROLE keeper LOGIN SUPERUSER", "SELECT pg_reload_conf()")

    def asks() -> bool:
        try:
            psycopg.connect(host=LOOPBACK, port=scratch.port, user="keeper", password="x", dbname="postgres").close()
        except psycopg.OperationalError:
            return True
        return False

    until(asks, "the server asks for a password")
    yield "keeper"
    access.write_text(before)
    scratch.run("SELECT pg_reload_conf()", "DROP ROLE keeper")


@pytest.mark.guarantee("S8")
@pytest.mark.slow
def test_o50_odd_characters_in_a_password(
    scratch: Scratch, name: str, guarded_by_password: str, closed: Door, inside: Inside
) -> None:
    """Encoded in the URL, every password connects; a wrong one is refused without being shown."""
    for number, password in enumerate(PASSWORDS):
        scratch.run(f"ALTER ROLE keeper PASSWORD '{password}'")
        url = f"postgresql://keeper:{quote(password, safe='')}@{LOOPBACK}:{scratch.port}/{name}"
        closed.env["PIPELINE_DATABASE_URL"] = url

        for words in ("status", "db upgrade", "db check", "db current", "jobs list", "db url"):
            assert inside(words).code == 0, (words, number)

        closed.env["PIPELINE_DATABASE_URL"] = url.replace("7Qx", "7Qxx")
        for words in ("status", "db upgrade", "db check"):
            said = inside(words)
            assert said.code == 3
            assert 'password authentication failed for user "keeper"' in said.err
    closed.env["PIPELINE_DATABASE_URL"] = url
    assert closed("run", "--site", "demo", "--workers", "1").code == 0


FILL = """
INSERT INTO pipeline.sites (slug, name, base_url) VALUES ('acme', 'Acme', 'https://acme.example');
INSERT INTO pipeline.lanes (site_id, name) SELECT s.id, 'lane ' || n FROM pipeline.sites s, generate_series(1, 50) n;
INSERT INTO pipeline.topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)
    SELECT l.site_id, l.id, n, l.id || '-' || n, '/' || l.id || '/' || n || '/', 'T', 'page', '{}', ''
    FROM pipeline.lanes l, generate_series(1, 1000) n;
INSERT INTO pipeline.jobs (site_id, lane_id, topic_id, position, stage, state, max_attempts, run_at)
    SELECT site_id, lane_id, id, position, 'generate', 'pending', 5, now() FROM pipeline.topics;
"""
CLAIM = (
    "UPDATE pipeline.jobs SET priority = priority WHERE id = (SELECT id FROM pipeline.jobs WHERE state = 'pending'"
    " ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
)


@pytest.mark.slow
@pytest.mark.guarantee("R27")
def test_o51_an_upgrade_under_load_holds_nobody_up(scratch: Scratch, empty_name: str) -> None:
    """From where the jobs' table is there to the newest revision, 50,000 jobs in it and four writers at work: none of
    them waits for longer than a second."""
    url = scratch.url(empty_name, "pipeline")
    migrate.upgrade(url, SCHEMA, "0015")
    for statement in FILL.strip().split(";\n"):
        scratch.run(statement.rstrip(";"), database=empty_name)
    over = threading.Event()

    def work(_: int) -> tuple[int, float]:
        done, longest = 0, 0.0
        with psycopg.connect(
            host=LOOPBACK, port=scratch.port, user="pipeline", dbname=empty_name, autocommit=True
        ) as connection:
            while not over.is_set():
                began = time.monotonic()
                connection.execute(CLAIM)
                longest = max(longest, time.monotonic() - began)
                done += 1
        return done, longest

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(work, number) for number in range(4)]
        try:
            applied = migrate.upgrade(url, SCHEMA)
        finally:
            over.set()
        found = [writer.result() for writer in writers]

    assert applied == migrate.numbers()[15:]
    assert min(done for done, _ in found) > 20
    assert max(longest for _, longest in found) < 1, found


SETTINGS = {
    "PIPELINE_SCHEMA": ("A B", "{}", "7Qx;"), "PIPELINE_WORKERS": ("many", "null", "{", "0", "1e99"),
    "PIPELINE_CONCURRENCY": ("7Qx", "null", "[]"), "PIPELINE_POLL": ("soon", "null", "0", "-1"),
    "PIPELINE_REAP": ("7Qx", "null"), "PIPELINE_GRACE": ("7Qx", "null", "{}"), "PIPELINE_PREPARE": ("7Qx", "null", "5"),
}  # fmt: skip


@pytest.mark.guarantee("S8")
@pytest.mark.parametrize("variable", SETTINGS)
def test_o52_o55_a_wrong_setting_is_named_and_not_shown(
    closed: Door, inside: Inside, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a secret in the URL and one setting broken: its name, 2, and no value of any; empty is the same as unset."""
    for value in (*SETTINGS[variable], " ", "\t"):
        closed.env[variable] = value
        for words in ("status", "run --site demo", "worker"):
            said = inside(words)
            assert (said.code, said.out) == (2, ""), (value, said)
            assert said.err.startswith(f"error: environment variable {variable}: ")
            assert said.err.count("\n") == 1
    closed.env[variable] = ""
    assert inside("status").code == 3  # as without it: the database is asked


def test_o55_a_url_that_is_none(closed: Door, inside: Inside) -> None:
    """Blank, null, an object: one sentence; empty is unset, and the next variable counts."""
    for value in (" ", "null", "{}", "[]", "7Qx"):
        closed.env["PIPELINE_DATABASE_URL"] = value
        said = inside("status")
        assert (said.code, said.out) == (2, ""), (value, said)
        assert "the database URL cannot be read" in said.err
    closed.env |= {"PIPELINE_DATABASE_URL": "", "DATABASE_URL": f"postgresql://me:7Qx@{LOOPBACK}:1/x"}
    assert inside("status").code == 3


@pytest.mark.guarantee("S8")
@pytest.mark.parametrize("debug", [False, True])
def test_o53_no_local_variable_is_shown(
    closed: Door, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, debug: bool
) -> None:
    """A defect in the deepest place, with the URL in its message: masked, 1, and a traceback only for who asks."""
    from tests.doors.test_surroundings import COMMANDS

    def broken(url: object, *_: object, **__: object) -> None:
        secret = "canary/7Qx@9"
        raise RuntimeError(f"cannot go on with {closed.env['PIPELINE_DATABASE_URL']} or password={secret}")

    monkeypatch.setattr("pipeline.build.make_engine", broken)
    monkeypatch.chdir(closed.root)
    monkeypatch.delenv("PIPELINE_DEBUG", raising=False)
    for key, value in (closed.env | ({"PIPELINE_DEBUG": "1"} if debug else {})).items():
        monkeypatch.setenv(key, value)
    met = 0
    for words in COMMANDS:
        if words.split()[0] in ("run", "worker"):
            continue  # they load the project's code
        code = guarded(lambda words=words: app(words.split(), prog_name="pipeline", standalone_mode=False))  # type: ignore[misc]
        out, err = capfd.readouterr()
        if "unexpected RuntimeError" in err:
            met += 1
            assert (code, out) == (1, "")
            assert ("Traceback" in err) == debug
        assert "secret" not in err.replace("password={secret}", "").replace("secret = ", "") or debug
        harmless((out + err).replace("Traceback", "").replace('secret = "canary/7Qx@9"', ""))
    assert met >= 10


def test_o54_json_is_whole_whatever_the_width(
    door: Door, make: Factory, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts, line ends, brackets, emoji, in a pipe of any width: one line, and the value as it was planned."""
    titles = ["x " * 5000, "two\nlines", "[red]x[/red] [/]", "\N{PILE OF POO} ü", '"\\{}', "\u2028"]
    make.site("demo")
    rows = [make.row("a", n, title=title) for n, title in enumerate(titles, start=1)]
    make.services.planning.plan(make.site_id, rows)

    for width in (None, "20", "80"):
        monkeypatch.delenv("COLUMNS", raising=False)
        door.env |= {"COLUMNS": width} if width else {}
        for words in (
            "topics list --site demo --json",
            "topics show demo/a-1 --json",
            "jobs list --json",
            "status --json",
        ):
            said = inside(words)
            assert said.err == ""
            found = said.json
            if words.startswith("topics list"):
                assert [topic["title"] for topic in found["topics"]] == titles
