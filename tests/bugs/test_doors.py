"""Public bug reports of comparable systems, tried on ours: connections, servers, migrations, settings, commands.

Each test has the number of its report. Those that need a server which can be spoilt have one of their own.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pipeline import db, migrate
from pipeline.build import services as build_services
from pipeline.cli.guard import guarded
from pipeline.cli.main import app
from pipeline.service.audit import Audit
from pipeline.service.planning import StageSpec
from tests.doors.conftest import closed, door, homeless, inside
from tests.doors.scene import ROOT, Door, Said, harmless
from tests.factories import Factory
from tests.fingerprint import fingerprint
from tests.processes.project import Project, until
from tests.servers.conftest import empty_name, name, project, scratch, scratch_folder
from tests.servers.scratch import LOOPBACK, Scratch
from tests.servers.test_pooler import pooled, pooler

__all__ = [  # fixtures
    "closed", "door", "empty_name", "homeless", "inside", "name", "pooled", "pooler", "project", "scratch",
    "scratch_folder",
]  # fmt: skip

Inside = Callable[[str], Said]
SCHEMA = "pipeline"


class Spoilt:
    """A project with workers on a database that can be made read-only, or lose its sessions."""

    def __init__(self, server: Scratch, name: str, project: Project) -> None:
        self.server, self.name, self.project = server, name, project
        url = server.url(name, "pipeline").render_as_string(hide_password=False)
        self.engine = db.make_engine(url, schema=SCHEMA, connections=2, name="test")
        self.services = build_services(self.engine)
        self.make = Factory(self.engine, self.services)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.run(statement, database=self.name)

    def end_sessions(self, of: str = "pipeline%") -> int:
        ended = self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            f" AND pid <> pg_backend_pid() AND application_name LIKE '{of}'"
        )
        return len(ended)

    def read_only(self, on: bool) -> None:
        """For every session of this database, the new and the old."""
        self.server.run(f"ALTER DATABASE {self.name} SET default_transaction_read_only = {'on' if on else 'off'}")
        self.end_sessions("%")
        self.engine.dispose()

    def count(self, state: str) -> int:
        return int(
            self.ask(f"SELECT count(*) FROM pipeline.jobs WHERE state = '{state}' AND topic_id IS NOT NULL")[0][0]
        )


@pytest.fixture
def spoilt(scratch: Scratch, name: str, tmp_path: Path) -> Iterator[Spoilt]:
    url = scratch.url(name, "pipeline").render_as_string(hide_password=False)
    project = Project(tmp_path, url)
    project.site()
    found = Spoilt(scratch, name, project)
    try:
        yield found
        project.end()
        found.engine.dispose()
        assert Audit(found.engine, schema=SCHEMA).violations() == []
    finally:
        project.end()
        found.engine.dispose()


QUICK = """
class Generate(Stage):
    def run(self, topic, ctx):
        return Done(draft=draft(topic))


PIPELINE = (Generate,)
"""
ONE = (StageSpec("generate", None, 5),)


@pytest.mark.slow
def test_o27_no_wake_up_is_needed(spoilt: Spoilt) -> None:
    """Whoever listens may die: here nobody listens, and a job begins within a poll and a second of being due, even when
    all sessions are ended again and again."""
    spoilt.project.stages(QUICK)
    spoilt.make.site(stages=ONE)
    worker = spoilt.project.worker(POLL="PT1S")

    for number in range(1, 7):
        spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row(f"l{number}", 1)])
        until(lambda number=number: spoilt.count("done") == number, f"{number} done", 10)  # type: ignore[misc]
        assert spoilt.end_sessions() >= 1
        spoilt.engine.dispose()

    late = spoilt.ask(
        "SELECT max(extract(epoch FROM a.reserved_at - j.created_at)) FROM pipeline.attempts a"
        " JOIN pipeline.jobs j ON j.id = a.job_id WHERE a.stage = 'generate'"
    )
    assert float(late[0][0]) < 1 + 1 + 1  # and a second for a machine that is busy
    assert spoilt.ask("SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'") == [(0,)]
    assert worker.said("the database is away") or worker.said("heartbeats do not reach")  # it met the fault
    assert worker.stop() == 0


class Proxy:
    """Forwards to a server, until it is told to hold everything back with its sockets open."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.held = threading.Event()
        self.holds = 0  # pieces that did not get through
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection((LOOPBACK, self._to))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                self.holds += self.held.is_set()
                while self.held.is_set():
                    time.sleep(0.02)
                other.sendall(data)
        except OSError:
            pass
        finally:
            other.close()

    def close(self) -> None:
        self.held.clear()
        self._listener.close()


@pytest.fixture
def proxy(scratch: Scratch) -> Iterator[Proxy]:
    proxy = Proxy(scratch.port)
    yield proxy
    proxy.close()


def test_o28_a_server_that_says_nothing_is_given_up(proxy: Proxy, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket stays open and acknowledges all: our own patience ends the statement, and the next one is well."""
    monkeypatch.setattr(db, "SILENCE", 1.0)
    url = f"postgresql://pipeline@{LOOPBACK}:{proxy.port}/{name}"
    engine = db.make_engine(url, schema=SCHEMA, connections=1, name="test")
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT 1")) == 1

    proxy.held.set()
    began = time.monotonic()
    with pytest.raises(OperationalError) as caught, engine.begin() as connection:
        connection.scalar(text("SELECT 2"))
    assert 0.9 < time.monotonic() - began < 10
    assert db.is_away(caught.value)

    proxy.held.clear()
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT 3")) == 3
    engine.dispose()


@pytest.mark.slow
def test_o28_a_worker_with_such_a_server_can_be_stopped(proxy: Proxy, spoilt: Spoilt) -> None:
    """SIGTERM ends it within its grace period and a few seconds, whatever it waits for."""
    spoilt.project.stages(QUICK)
    spoilt.make.site(stages=ONE)
    url = f"postgresql://pipeline@{LOOPBACK}:{proxy.port}/{spoilt.name}"
    spoilt.project._url = url
    worker = spoilt.project.worker(GRACE="PT1S")
    spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("l", 1)])
    until(lambda: spoilt.count("done") == 1, "it works")
    proxy.held.set()
    until(lambda: proxy.holds, "it waits for an answer")

    began = time.monotonic()
    worker.send(signal.SIGTERM)
    worker.ends()

    assert time.monotonic() - began < 1 + 8 + 3
    assert worker.said("the database does not answer")


def cpu(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_o29_a_read_only_phase_is_no_storm(spoilt: Spoilt) -> None:
    """Workers say so once, use next to nothing, charge no attempt, and go on by themselves."""
    spoilt.project.stages(QUICK)
    spoilt.make.site(stages=ONE)
    workers = [spoilt.project.worker() for _ in range(2)]
    spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("l", 1)])
    until(lambda: spoilt.count("done") == 1, "they work")
    # Both have begun: one that is refused while it starts ends with 3, as it should.
    begun = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pipeline worker' AND state = 'idle'"
    until(lambda: int(spoilt.ask(f"{begun} AND query IN ('COMMIT', 'ROLLBACK')")[0][0]) == 2, "both have begun")
    spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("m", n) for n in range(1, 4)])
    spoilt.read_only(True)
    # One of them may have nothing to write: the other had taken all there was.
    until(lambda: any(w.said("the database is away, work stands still") for w in workers) or spoilt.count("done") == 4,
          "one met it, or all was done before")  # fmt: skip
    before = [cpu(w.pid) for w in workers]
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 5, "five seconds of it", 10)
    used = [cpu(w.pid) - earlier for w, earlier in zip(workers, before, strict=True)]
    lines = [len(w.log.splitlines()) for w in workers]
    spoilt.read_only(False)
    spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("n", n) for n in range(1, 4)])
    until(lambda: spoilt.count("done") == 7, "all is done", 20)

    assert max(used) < 5 * 0.1
    assert max(lines) <= 6
    tries = spoilt.ask("SELECT max(attempts) FROM pipeline.jobs")
    assert int(tries[0][0]) <= 1
    ends = [w.stop() for w in workers]
    assert ends == [0, 0], [w.log for w in workers]


SLOW_ONE = """
class Generate(Stage):
    def run(self, topic, ctx):
        sign(f"runs-{topic.slug}")
        signed("go")
        return Done(draft=draft(topic))


PIPELINE = (Generate,)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["read only", "disk full"])
def test_o30_o33_what_cannot_be_recorded_is_kept_until_it_can(spoilt: Spoilt, fault: str) -> None:
    """Between a stage's end and its record the database takes no writes, or its disk is full (53100): the record is
    tried again until it is accepted, once; no attempt is lost, and nobody has to mend anything."""
    spoilt.project.stages(SLOW_ONE)
    spoilt.make.site(stages=ONE)
    spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("l", 1)])
    worker = spoilt.project.worker()
    spoilt.project.until_signs("runs-", 1)
    full = "BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END"
    if fault == "read only":
        spoilt.read_only(True)
    else:
        spoilt.ask(f"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ {full} $$")
        spoilt.ask("CREATE TRIGGER full_disk BEFORE INSERT ON pipeline.attempts EXECUTE FUNCTION full_disk()")

    spoilt.project.sign("go")
    until(lambda: worker.said("work stands still"), "it met the fault")
    assert spoilt.count("done") == 0
    if fault == "read only":
        spoilt.read_only(False)
    else:
        spoilt.ask("DROP TRIGGER full_disk ON pipeline.attempts")
    until(lambda: spoilt.count("done") == 1, "it is recorded", 40)

    until(lambda: worker.said("the database is back"), "it says so")
    assert spoilt.ask("SELECT outcome FROM pipeline.attempts WHERE stage = 'generate'") == [("done",)]
    assert spoilt.project.signs("runs-") == ["l-1"]
    assert worker.stop() == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="no pgbouncer here: apt-get install pgbouncer")
def test_o31_eight_workers_through_a_pool_of_three(pooled: Door) -> None:
    """A pooler in transaction mode, far fewer sessions than connections: all of it works, with nothing to be set."""
    said = pooled("run", "--site", "demo", "--workers", "8")

    assert said.code == 0, said
    assert said.out.startswith("demo: 30 of 30 topics live\n")
    assert "away" not in said.err


def test_o32_a_forked_process_opens_connections_of_its_own(scratch: Scratch, name: str) -> None:
    """An engine that was used before the fork is used on both sides of it: two server processes, no disturbance."""
    engine = db.make_engine(scratch.url(name, "pipeline"), schema=SCHEMA, connections=2, name="forked")
    ask = text("SELECT pg_backend_pid()")
    with engine.begin() as connection:
        mine = connection.scalar(ask)
    reader, writer = os.pipe()

    child = os.fork()
    if child == 0:  # as little as possible: this is a copy of the test run
        try:
            with engine.begin() as connection:
                os.write(writer, str(connection.scalar(ask)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    theirs = int(os.read(reader, 100) or b"0")
    os.waitpid(child, 0)
    os.close(reader)

    with engine.begin() as connection:
        assert connection.scalar(ask) == mine
    assert theirs not in (0, mine)
    engine.dispose()


def test_o34_nothing_is_sent_through_the_notification_queue() -> None:
    """No statement of ours listens or notifies, so no queue can fill, and no transaction can hold it up."""
    sources = [path for folder in ("pipeline", "alembic") for path in (ROOT / folder).rglob("*.py")]

    found = [path.name for path in sources if re.search(r"\b(pg_notify|NOTIFY|LISTEN)\b", path.read_text())]

    assert found == []


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


def test_a_lost_connection_charges_nobody(spoilt: Spoilt) -> None:
    """A stage asks the corpus on a connection that the server has ended: its job comes again a second later, with all
    its attempts."""
    spoilt.project.stages(
        """
        class Generate(Stage):
            def run(self, topic, ctx):
                ctx.corpus.unknown({"b/"})
                sign("asks")
                if not signed("ended", ctx):
                    return Retry("stopped")
                ctx.corpus.unknown({"a/"})
                return Done(draft=draft(topic))


        PIPELINE = (Generate,)
        """
    )
    spoilt.make.site(stages=ONE)
    spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("l", 1)])
    worker = spoilt.project.worker()
    spoilt.project.until_signs("asks", 1)
    assert spoilt.end_sessions("pipeline stages") == 1

    spoilt.project.sign("ended")
    until(lambda: spoilt.count("done") == 1, "it is done")

    tried = spoilt.ask("SELECT outcome FROM pipeline.attempts ORDER BY fence")
    assert tried == [("snoozed",), ("done",)]
    assert spoilt.ask("SELECT attempts FROM pipeline.jobs WHERE topic_id IS NOT NULL") == [(1,)]
    assert worker.stop() == 0
