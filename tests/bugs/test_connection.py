"""Public bug reports of comparable systems, tried on ours: connections lost, silent, read-only, full (O-27 to O-34).

Those that need a server which can be spoilt have one of their own.
"""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from pipeline import db, heartbeat
from pipeline.bell import Bell
from pipeline.build import services
from pipeline.holding import MARGIN
from pipeline.service.planning import StageSpec
from pipeline.sql import wake
from tests.bugs.proxy import Proxy
from tests.bugs.spoilt import SCHEMA, Spoilt
from tests.db.conftest import Sql
from tests.doors.scene import Door
from tests.factories import Factory
from tests.processes.project import until
from tests.servers.conftest import project
from tests.servers.scratch import Scratch
from tests.servers.test_pooler import pooled, pooler
from tests.servers.test_standby_and_tls import with_tls

__all__ = ["pooled", "pooler", "project", "with_tls"]  # fixtures

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
    worker = spoilt.project.worker(POLL="PT1S", WAKE="false")

    for number in range(1, 7):
        spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row(f"l{number}", 1)])
        until(lambda number=number: spoilt.count("done") == number, f"{number} done", 10)  # type: ignore[misc]
        assert spoilt.end_sessions() >= 1
        spoilt.engine.dispose()

    late = spoilt.ask(
        "SELECT max(extract(epoch FROM a.reserved_at - j.created_at)) FROM pipeline.attempts a"
        " JOIN pipeline.jobs j ON j.id = a.job_id WHERE a.stage = 'generate'"
        " AND j.lane_id > (SELECT min(lane_id) FROM pipeline.jobs)"  # the first one waited for the worker to begin
    )
    assert float(late[0][0]) < 1 + 1 + 1  # and a second for a machine that is busy
    assert spoilt.ask("SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'") == [(0,)]
    assert worker.stop() == 0


def test_o28_a_server_that_says_nothing_is_given_up(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket stays open and acknowledges all: our own patience ends the statement, and the next one is well."""
    monkeypatch.setattr(db, "SILENCE", 0.5)
    engine = db.make_engine(proxy.url, schema=SCHEMA, connections=1, name="test", patience=0.5)
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT 1")) == 1

    proxy.hold()
    began = time.monotonic()
    with pytest.raises(OperationalError) as caught, engine.begin() as connection:
        connection.scalar(text("SELECT 2"))
    assert 0.9 < time.monotonic() - began < 10
    assert proxy.stuck.is_set()
    assert db.is_away(caught.value)

    proxy.go_on()
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT 3")) == 3
    engine.dispose()


def test_o28_who_is_at_work_is_patient_for_less_than_half_a_minute() -> None:
    """What a worker waits for at most, by its own clock, is within the bar of 30 s; its heartbeat, within a lease."""
    assert db.AT_WORK + db.SILENCE + 1 <= 30
    assert heartbeat.PATIENCE + db.SILENCE + 1 <= 30 * (1 - 0.3 - MARGIN)


@pytest.mark.slow
def test_o28_a_worker_finds_its_way_back(spoilt: Spoilt) -> None:
    """A worker whose server falls silent gives it up within half a minute, and goes on when it is heard again."""
    spoilt.project.stages(QUICK)
    spoilt.make.site(stages=ONE)
    with Proxy(spoilt.server.url(spoilt.name, "pipeline")) as proxy:
        spoilt.project._url = proxy.url
        worker = spoilt.project.worker()
        spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("l", 1)])
        until(lambda: spoilt.count("done") == 1, "it works")
        proxy.hold()
        assert proxy.stuck.wait(10)
        began = time.monotonic()

        until(lambda: worker.said("the database is away"), "it gives the server up", 40)

        assert 5 < time.monotonic() - began < 30
        proxy.go_on()
        spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("l", 1), spoilt.make.row("l", 2)])
        until(lambda: spoilt.count("done") == 2, "it works again", 40)
        assert worker.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_o28_a_worker_with_such_a_server_can_be_stopped(spoilt: Spoilt, busy: bool) -> None:
    """SIGTERM ends it within its grace period and five seconds, whether it waits for an answer or a stage runs."""
    spoilt.project.stages(SLOW_ONE if busy else QUICK)
    spoilt.make.site(stages=ONE)
    with Proxy(spoilt.server.url(spoilt.name, "pipeline")) as proxy:
        spoilt.project._url = proxy.url
        worker = spoilt.project.worker(GRACE="PT1S")
        spoilt.services.planning.plan(spoilt.make.site_id, [spoilt.make.row("l", 1)])
        until(lambda: spoilt.count("reserved" if busy else "done") == 1, "it works")
        proxy.hold()
        assert proxy.stuck.wait(10), "it waits for an answer"

        began = time.monotonic()
        worker.send(signal.SIGTERM)
        worker.ends()

        assert time.monotonic() - began < 1 + 5
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
    assert max(lines) <= 6, [w.log for w in workers]
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


def forked(engine: Engine, statement: str) -> tuple[object, object, object]:
    """What a statement answers in this process, in a forked copy of it, and here again."""
    ask = text(statement)
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
    theirs = os.read(reader, 100).decode()
    os.waitpid(child, 0)
    os.close(reader)
    with engine.begin() as connection:
        again = connection.scalar(ask)
    engine.dispose()
    return mine, theirs, again


PROCESS = "SELECT pid || ' ' || ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


def test_o32_a_forked_process_opens_connections_of_its_own(database_url: str) -> None:
    """An engine that was used before the fork is used on both sides of it: two server processes, no disturbance."""
    engine = db.make_engine(database_url, schema=SCHEMA, connections=2, name="forked")

    mine, theirs, again = forked(engine, PROCESS)

    assert mine == again
    assert theirs not in ("", mine)


@pytest.mark.slow
def test_o32_so_it_does_with_tls(with_tls: tuple[Scratch, Path]) -> None:
    """The state of an encrypted connection is not shared either."""
    server, certificate = with_tls
    url = server.url().update_query_dict({"sslmode": "verify-full", "sslrootcert": str(certificate)})
    engine = db.make_engine(url, schema=SCHEMA, connections=2, name="forked")

    mine, theirs, again = forked(engine, PROCESS)

    assert mine == again
    assert str(mine).endswith(" true")
    assert str(theirs).endswith(" true")
    assert theirs != mine


def test_o34_a_word_that_cannot_be_told_fails_nothing(
    database_url: str, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses to notify, for its queue is full, say: what was planned is planned, and nobody hears of it."""
    refused = text("DO $$ BEGIN RAISE EXCEPTION 'too many notifications' USING ERRCODE = '53400'; END $$")
    monkeypatch.setattr(wake, "ring", lambda: refused)
    site_id = make.site()
    engine = db.make_engine(database_url, schema=SCHEMA, connections=1, name="teller", wakes=True)

    planned = services(engine).planning.plan(site_id, [make.row("lane", 1)])

    engine.dispose()
    assert planned.new == 1
    assert len(make.job_ids()) == 1


def test_o34_a_listener_holds_no_transaction_open(database_url: str, sql: Sql) -> None:
    """While it waits its session is idle: what it has not heard yet is all that the server keeps for it."""
    bell = Bell()
    engine = db.make_engine(database_url, schema=SCHEMA, connections=1, name="listener", listen=bell.hear)
    engine.connect().close()
    services(engine).reading.sites()

    found = sql("SELECT state FROM pg_stat_activity WHERE application_name = 'listener'")

    engine.dispose()
    assert found == [("idle",)]


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
