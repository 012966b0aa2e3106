"""What a doctor sees beside the audit: each sign shows when its cause is there, and not before."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from pipeline.clock import FrozenClock
from pipeline.db import make_engine
from pipeline.service.acknowledging import Verb
from pipeline.service.audit import Audit
from pipeline.service.condition import Condition
from pipeline.service.health import Check, Health, State
from tests.conftest import SCHEMA
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory

pytestmark = pytest.mark.guarantee("R28")

SERVER = ["version", "primary", "durability", "autovacuum", "isolation", "connections", "clock", "pooler", "snapshots",
          "prepared", "slots"]  # fmt: skip


@pytest.fixture
def health(engine: Engine) -> Health:
    return Health(engine, SCHEMA)


@pytest.fixture
def stranger(database_url: str) -> Iterator[Engine]:
    """Another application on the same database."""
    engine = make_engine(database_url, schema=SCHEMA, connections=1, name="pipeline of another")
    yield engine
    engine.dispose()


def named(checks: Iterator[Check] | list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


def condition(make: Factory, clock: FrozenClock | None = None) -> list[tuple[str, str, str]]:
    """``(name, state, found)`` of the site of a test."""
    checks = Condition(make.engine, clock).site(make.site_id, "acme")
    assert all(check.advice for check in checks if check.state is not State.OK)
    return [(check.name, check.state, check.found) for check in checks]


def test_the_server_is_looked_at_from_all_sides(health: Health) -> None:
    """A check each; what is not as it should be says what to do. The tests' own server is not durable, by intent."""
    found = [check for check in health.server() if check.name != "sessions"]

    assert [check.name for check in found] == SERVER
    assert {check.section for check in found} == {"server"}
    assert [check.name for check in found if check.state is State.BROKEN] == []
    assert all(check.advice for check in found if check.state is not State.OK)


@pytest.mark.parametrize(
    ("setting", "value", "name", "part"),
    [
        ("ROOM", 10_000, "connections", "room for"),
        ("OFFSET", -1.0, "clock", "logs here tell another"),
        ("NEWEST_SERVER", 14, "version", "newer than what this release was tried on"),
    ],
)
def test_a_limit_that_is_passed_is_a_warning(
    health: Health, monkeypatch: pytest.MonkeyPatch, setting: str, value: float, name: str, part: str
) -> None:
    """With what to do."""
    monkeypatch.setattr(f"pipeline.service.health.{setting}", value)

    check = named(health.server(), name)

    assert check.state is State.WARNING
    assert part in check.found
    assert check.advice


def test_an_old_server_is_broken(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.service.health.OLDEST_SERVER", 99)

    assert named(health.server(), "version").state is State.BROKEN


def test_prepared_statements_behind_a_pooler_are_broken(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    """They meet sessions that do not know them."""
    monkeypatch.setattr("pipeline.service.health.is_pooled", lambda connection: True)

    check = named(health.server(), "pooler")

    assert (check.state, check.advice) == (State.BROKEN, "set PIPELINE_PREPARE=auto or never")


def test_a_snapshot_that_is_held_too_long_is_named(
    health: Health, stranger: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the process and the application that holds it."""
    monkeypatch.setattr("pipeline.service.health.PINNED", 0.0)
    with stranger.connect().execution_options(isolation_level="REPEATABLE READ") as holder:
        pid = holder.execute(text("SELECT pg_backend_pid()")).scalar_one()
        check = named(health.server(), "snapshots")

    assert check.state is State.WARNING
    assert f"by pipeline of another (pid {pid}, role pipeline)" in check.found
    assert f"pg_terminate_backend({pid})" in check.advice
    assert named(health.server(), "snapshots").state is State.OK


def test_dead_rows_that_pile_up_are_told(
    health: Health, make: Factory, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the hot tables, by their names."""
    assert named(health.tables(), "dead rows").state is State.OK
    monkeypatch.setattr("pipeline.service.health.DEAD", 0)
    make.plan(count=3)
    with make.engine.connect() as connection:
        for _ in range(20):
            connection.execute(text(f"UPDATE {SCHEMA}.jobs SET priority = 3"))
            connection.commit()
        connection.execute(text("SELECT pg_stat_force_next_flush()"))
        connection.commit()

    check = named(health.tables(), "dead rows")

    assert check.state is State.WARNING
    assert "jobs" in check.found


def test_an_index_whose_building_failed_is_broken(health: Health, make: Factory, engine: Engine) -> None:
    """A law that holds nothing looks like one that does."""
    assert named(health.tables(), "indexes").state is State.OK
    make.plan(count=2)
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection:
        with pytest.raises(IntegrityError):
            connection.execute(text(f"CREATE UNIQUE INDEX CONCURRENTLY half ON {SCHEMA}.jobs (site_id)"))
        check = named(health.tables(), "indexes")
        connection.execute(text(f"DROP INDEX CONCURRENTLY {SCHEMA}.half"))

    assert (check.state, check.found) == (State.BROKEN, "invalid: half")


def test_a_session_of_ours_that_idles_in_a_transaction_shows(engine: Engine, stranger: Engine) -> None:
    """L4: it holds its locks and its snapshot while it does nothing."""
    audit = Audit(engine, SCHEMA)
    deadline = time.monotonic() + 20
    with stranger.connect() as idle:
        pid = idle.execute(text("SELECT pg_backend_pid()")).scalar_one()
        rows: tuple[dict[str, object], ...] = ()
        while not rows and time.monotonic() < deadline:
            rows = {answer.name: answer.rows for answer in audit.liveness()}["L4"]

    assert [row["pid"] for row in rows] == [pid]


def test_what_nobody_does_shows_in_liveness(make: Factory, sql: Sql) -> None:
    """A lease that nobody takes back, a due job that nobody takes, a halt without a word, a page left half way."""
    audit = Audit(make.engine, SCHEMA)
    make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")
    failed, pending = make.advance_to("generate", lane="other", count=2)
    make.publish(claim)
    assert [answer.name for answer in audit.liveness() if answer.rows] == []

    hour = "interval '1 hour'"
    sql(f"UPDATE jobs SET lease_expires_at = reserved_at, reserved_at = reserved_at - {hour} WHERE state = 'reserved'")
    sql(f"UPDATE jobs SET lease_expires_at = lease_expires_at - {hour} / 2 WHERE state = 'reserved'")
    sql(f"UPDATE jobs SET run_at = run_at - {hour} WHERE id = :id", id=pending)
    sql("UPDATE jobs SET state = 'failed' WHERE id = :id", id=failed)
    sql(
        "UPDATE publications SET intent_token = a.token, intent_fence = a.fence, intent_at = now() - interval '1 hour'"
        " FROM (SELECT token, fence FROM attempts LIMIT 1) a"
    )

    found = {answer.name: [row.get("job_id") for row in answer.rows] for answer in audit.liveness() if answer.rows}
    assert found == {"L1": [claim.job_id], "L2": [pending], "L3": [failed], "L5": [None]}
    sql("UPDATE publications SET intent_token = NULL, intent_fence = NULL, intent_at = NULL")


def test_idle_working_and_ready_are_told_apart(make: Factory, sql: Sql) -> None:
    """All is well in each of them."""
    make.site()
    nothing = condition(make)
    make.plan(count=3)
    ready = condition(make)
    (claim,) = make.claim("generate")
    working = condition(make)
    make.say(claim, Verb.SNOOZE, delay=timedelta(hours=3))
    sql("UPDATE jobs SET run_at = run_at + interval '5 hours' WHERE run_at < now() + interval '1 hour'")
    later = condition(make)

    assert nothing == [("idle", "ok", "nothing to do")]
    assert ready == [("idle", "ok", "3 ready")]
    assert working == [("working", "ok", "1 running, 2 ready")]
    assert later == [("idle", "ok", "3 later, the next in 3 h")]


def test_what_is_due_and_left_is_overdue(make: Factory, clock: FrozenClock) -> None:
    """And so are reservations whose lease is over."""
    make.plan(count=2)
    make.claim("generate")
    clock.advance(timedelta(minutes=10, seconds=20))

    assert condition(make, clock) == [
        ("overdue", "warning", "1 due for up to 10 min, and nobody works"),
        ("overdue", "warning", "1 reserved with leases over for up to 10 min: nobody took them back"),
    ]


def test_what_is_blocked_says_by_what(make: Factory, sql: Sql) -> None:
    """A halted head with those behind it, a hold, a lane, a stage and a site that rest."""
    failed, _, _ = make.advance_to("publish", lane="halted", count=3)
    make.say(make.claim("publish")[0], Verb.FAIL, error="no")
    make.advance_to("publish", lane="held")
    make.say(make.claim("publish")[0], Verb.HOLD, hold="look at it")
    make.plan(lane="resting")
    make.services.lanes.pause(make.site_id, "resting", actor=ACTOR)
    sql("UPDATE stages SET state = 'paused' WHERE name = 'generate'")
    make.services.sites.pause(make.site_id, actor=ACTOR)

    found = condition(make)

    assert found == [
        ("idle", "ok", "nothing is due"),
        ("blocked", "warning", "the site is paused"),
        ("blocked", "warning", "lane resting is paused"),
        ("blocked", "warning", "stage generate is paused"),
        ("blocked", "warning", f"job {failed}, position 1 of lane halted, is failed at publish; 2 wait behind it"),
        ("blocked", "warning", "1 on hold, for a person to approve"),
    ]


def test_what_upkeep_mended_is_told(make: Factory, sql: Sql) -> None:
    """A promotion that was due before is an event, and a sign."""
    first, _ = make.advance_to("publish", count=2)
    assert make.services.work.heal(make.site_id) == 0
    sql("UPDATE jobs SET state = 'waiting', slot = NULL WHERE id = :id", id=first)

    assert make.services.work.heal(make.site_id) == 1
    assert sql("SELECT verb, from_state, to_state, actor FROM events WHERE job_id = :id", id=first) == [
        ("promote", "waiting", "pending", "upkeep")
    ]
    name, state, found = condition(make)[-1]
    assert (name, state) == ("healed", "warning")
    assert found.startswith("upkeep promoted 1 in a week, last at ")
