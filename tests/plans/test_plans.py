"""The hot statements keep to their indexes, under a plan that knows none of their values.

What is finished must cost nothing: no statement of the work may read all of ``jobs``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from psycopg.sql import Literal
from psycopg.types.json import Json
from sqlalchemy import Connection, Executable, text
from sqlalchemy.dialects.postgresql import asyncpg

from pipeline.clock import DatabaseClock
from pipeline.service.planning import StageSpec
from pipeline.service.work import BEGINNING
from pipeline.sql import claim, gates, operate, reads, stages, transitions
from pipeline.sql.batch import bound
from pipeline.sql.transitions import Reach
from tests.conftest import SCHEMA
from tests.factories import Factory

CLOCK = DatabaseClock()
LANES = 100
STAGES = (StageSpec("generate", None, 5), StageSpec("validate", None, 5), StageSpec("publish", 1, 5))

# Each lane: 200 done, then one pending and 19 waiting at the strict gate, 2 reserved, 18 pending at the first stage.
FILL = (
    "INSERT INTO lanes (site_id, name, next_position)"
    f" SELECT :site, 'lane-' || n, 241 FROM generate_series(1, {LANES}) n",
    "INSERT INTO gates (lane_id, stage, ordinal, width, passed) SELECT id, 'publish', 3000, 1, 200 FROM lanes",
    "INSERT INTO topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)"
    " SELECT :site, l.id, p, l.name || '-' || p, l.name || '/' || p || '/', 'A title', 'page', '{}', 'hash'"
    " FROM lanes l, generate_series(1, 240) p",
    "INSERT INTO jobs (site_id, lane_id, topic_id, position, stage, state, cleared, max_attempts, run_at, gate_id,"
    " slot, attempts, token, fence, reserved_by, reserved_at, lease_expires_at, finished_at)"
    " SELECT :site, t.lane_id, t.id, t.position,"
    " CASE WHEN t.position <= 220 THEN 'publish' ELSE 'generate' END, s.state,"
    " CASE WHEN t.position <= 200 THEN 3000 WHEN t.position <= 220 THEN 2000 ELSE -1 END, 5,"
    " clock_timestamp() - t.position * interval '1 minute', CASE WHEN t.position BETWEEN 201 AND 220 THEN g.id END,"
    " CASE WHEN t.position = 201 THEN 1 END,"
    " CASE WHEN s.state = 'reserved' THEN 1 ELSE 0 END, CASE WHEN s.state = 'reserved' THEN gen_random_uuid() END,"
    " CASE WHEN s.state = 'reserved' THEN nextval('fences') END, CASE WHEN s.state = 'reserved' THEN 'w' END,"
    " CASE WHEN s.state = 'reserved' THEN clock_timestamp() END,"
    " CASE WHEN s.state = 'reserved' THEN clock_timestamp() + interval '30 s' END,"
    " CASE WHEN s.state = 'done' THEN clock_timestamp() END"
    " FROM topics t JOIN gates g ON g.lane_id = t.lane_id CROSS JOIN LATERAL (SELECT CASE"
    " WHEN t.position <= 200 THEN 'done' WHEN t.position = 201 THEN 'pending' WHEN t.position <= 220 THEN 'waiting'"
    " WHEN t.position <= 222 THEN 'reserved' ELSE 'pending' END AS state) s",
)


@dataclass(frozen=True)
class Scan:
    """How a plan comes to rows of ``jobs``."""

    node: str
    index: str
    condition: str


@pytest.fixture(scope="module")
def site(scenery: Factory) -> int:
    """A site with 20,000 finished jobs and some 4,000 that stand, among others with little."""
    for n in range(4):
        scenery.site(f"small-{n}", STAGES)
    site_id = scenery.site("large", STAGES)
    with scenery.engine.begin() as connection:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        for statement in FILL:
            connection.execute(text(statement), {"site": site_id} if ":site" in statement else {})
    with scenery.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(f"VACUUM (ANALYZE) {SCHEMA}.jobs, {SCHEMA}.topics, {SCHEMA}.lanes, {SCHEMA}.gates"))
        connection.execute(text(f"ANALYZE {SCHEMA}.sites, {SCHEMA}.stages"))
    return site_id


@pytest.fixture
def connection(scenery: Factory, site: int) -> Iterator[Connection]:
    with scenery.engine.connect() as connection:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        connection.execute(text("SET LOCAL plan_cache_mode = force_generic_plan"))
        yield connection
        connection.rollback()


def explain(connection: Connection, statement: Executable, values: dict[str, Any]) -> dict[str, Any]:
    """The generic plan of a statement."""
    compiled = statement.compile(dialect=asyncpg.dialect())  # type: ignore[attr-defined]
    given = [{**compiled.params, **values}[name] for name in compiled.positiontup]
    driver = connection.connection.dbapi_connection
    arguments = ", ".join(Literal(_plain(value)).as_string(driver) for value in given)
    connection.exec_driver_sql(f"PREPARE asked AS {compiled.string}".replace("%", "%%"))
    try:
        asked = f"EXPLAIN (FORMAT JSON) EXECUTE asked{f'({arguments})' if arguments else ''}"
        plan: dict[str, Any] = connection.exec_driver_sql(asked.replace("%", "%%")).scalar_one()[0]["Plan"]
        return plan
    finally:
        connection.exec_driver_sql("DEALLOCATE asked")


def _plain(value: Any) -> Any:
    return Json(value) if isinstance(value, list) and value and isinstance(value[0], dict) else value


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scans(plan: dict[str, Any]) -> list[Scan]:
    """Every way in which the plan reads ``jobs``; a bitmap is read by the index below it."""
    found = []
    for node in nodes(plan):
        index = node.get("Index Name", "")
        if node["Node Type"] == "Bitmap Heap Scan" or node["Node Type"] == "ModifyTable":
            continue
        if node.get("Relation Name") == "jobs" or (node["Node Type"] == "Bitmap Index Scan" and "_jobs" in index):
            found.append(Scan(node["Node Type"], index, node.get("Index Cond", "")))
    return found


def held(connection: Connection, count: int = 8) -> list[dict[str, Any]]:
    rows = connection.execute(text("SELECT id, token FROM jobs WHERE state = 'reserved' LIMIT :n"), {"n": count})
    return [
        {"job_id": row.id, "token": str(row.token), "lease_seconds": 30, "delay_seconds": 1, "error_class": None}
        for row in rows
    ]


def some_gates(connection: Connection, count: int = 8) -> list[int]:
    return list(connection.execute(text(f"SELECT id FROM gates ORDER BY id LIMIT {count}")).scalars())


def one_prefix(site: int) -> dict[str, Any]:
    return {
        "n": 0, "site_id": site, "stage": "generate", "priority": 2, "share": 8, "lease_seconds": 30,
        "floor_at": BEGINNING.isoformat(), "floor_id": 0,
    }  # fmt: skip


def test_the_claim_walks_its_index_alone(connection: Connection, site: int) -> None:
    """Prefix, due time and floor are all conditions of the one index; rows are then met by their key."""
    values = {"prefixes": [one_prefix(site)], **bound(token=uuid4(), worker="w")}

    found = scans(explain(connection, claim.claim(CLOCK, claim.Which.TOGETHER), values))

    assert sorted(s.index for s in found) == ["ix_jobs_claim", "pk_jobs"]
    assert all(s.condition for s in found)
    walk = next(s.condition for s in found if s.index == "ix_jobs_claim")
    assert "run_at <= statement_timestamp()" in walk
    assert "ROW(run_at, id) > ROW(" in walk
    for column in ("site_id", "stage", "priority"):
        assert f"{column} =" in walk


def test_the_claim_of_what_runs_alone_walks_an_index_of_those(connection: Connection, site: int) -> None:
    """However many others are pending, none of them is read."""
    values = {"prefixes": [one_prefix(site)], **bound(token=uuid4(), worker="w")}

    found = scans(explain(connection, claim.claim(CLOCK, claim.Which.ALONE), values))

    assert sorted(s.index for s in found) == ["ix_jobs_alone", "pk_jobs"]


def test_the_claim_reads_only_its_share(connection: Connection, site: int) -> None:
    """Run for real, it touches a handful of rows of the index, however many lie there."""
    values = {"prefixes": [one_prefix(site)], **bound(token=uuid4(), worker="w")}
    compiled = claim.claim(CLOCK, claim.Which.TOGETHER).compile(dialect=asyncpg.dialect())
    given = [{**compiled.params, **values}[name] for name in compiled.positiontup]
    driver = connection.connection.dbapi_connection
    arguments = ", ".join(Literal(_plain(value)).as_string(driver) for value in given)
    connection.exec_driver_sql(f"PREPARE asked AS {compiled.string}")

    plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked({arguments})").scalar_one()[0]

    connection.exec_driver_sql("DEALLOCATE asked")
    walk = next(n for n in nodes(plan["Plan"]) if n.get("Index Name") == "ix_jobs_claim")
    assert walk["Actual Rows"] * walk["Actual Loops"] == 8


# Who is to be tried again keeps its slot only if it is the head, or the gate is not too full.
AGAIN = {"pk_jobs", "ix_jobs_lane_position", "uq_jobs_gate_slot"}

HOT: dict[str, tuple[Executable, set[str]]] = {
    "prefixes-of-all": (claim.prefixes(CLOCK, one_site=False), {"ix_jobs_claim"}),
    "prefixes-of-one": (claim.prefixes(CLOCK, one_site=True), {"ix_jobs_claim"}),
    "near": (claim.near(CLOCK), {"ix_jobs_claim"}),
    "loners": (claim.loners(CLOCK, one_site=False), {"ix_jobs_alone"}),
    "renew": (claim.renew(CLOCK), {"pk_jobs"}),
    "promote": (
        gates.promote(CLOCK),
        {"ix_jobs_lane_position", "ix_jobs_waiting", "uq_jobs_gate_slot", "pk_jobs"},
    ),
    "move-passed": (gates.move_passed(), {"ix_jobs_lane_position"}),
    "ready": (gates.ready(), {"ix_jobs_lane_position", "ix_jobs_waiting", "uq_jobs_gate_slot"}),
    "expired-of-all": (transitions.expired(CLOCK, one_site=False), {"ix_jobs_reserved"}),
    "expired-of-one": (transitions.expired(CLOCK, one_site=True), {"ix_jobs_reserved"}),
    "gates-touched-next": (transitions.gates_touched(Reach.NEXT), {"pk_jobs"}),
    "gates-touched-lane": (transitions.gates_touched(Reach.LANE), {"pk_jobs"}),
    "gates-touched-skip": (transitions.gates_touched(Reach.SKIP), {"pk_jobs"}),
    "advance": (transitions.advance(CLOCK), {"pk_jobs"}),
    "reject": (transitions.reject(CLOCK), {"pk_jobs"}),
    "retry": (transitions.retry(CLOCK), AGAIN),
    "fail": (transitions.fail(CLOCK), {"pk_jobs"}),
    "release": (transitions.release(CLOCK), AGAIN),
    "reap": (transitions.reap(CLOCK, holder_is_gone=False), AGAIN),
    "still-held": (transitions.still_held(), {"pk_jobs"}),
    "standing": (
        reads.unfinished(CLOCK),
        {"uq_jobs_topic_open", "ix_jobs_claim", "ix_jobs_waiting", "ix_jobs_reserved", "ix_jobs_halted"},
    ),
    "halted": (reads.halted(), {"ix_jobs_halted", "ix_jobs_lane_position", "ix_jobs_waiting"}),
    "hasten": (operate.hasten(CLOCK), {"ix_jobs_claim"}),
    "left-behind": (stages.left_behind(), {"ix_jobs_claim", "ix_jobs_waiting"}),
}


# Those that may walk a whole partial index: all that is reserved, unfinished or waiting; or only its first entry.
WHOLE = {"expired-of-all", "standing", "ready", "prefixes-of-all", "left-behind"}


@pytest.mark.parametrize("name", HOT)
def test_no_statement_of_the_work_reads_what_is_finished(name: str, connection: Connection, site: int) -> None:
    """Each comes to its jobs by an index made for it, whatever is finished or waits elsewhere."""
    statement, indexes = HOT[name]
    at = held(connection)
    values = {
        "held": at,
        "acks": at,
        "gates": some_gates(connection),
        "known": [
            {"site_id": site, "stage": "generate", "priority": 2, "floor_at": BEGINNING.isoformat(), "floor_id": 0}
        ],
        **bound(site_id=site, limit=20, after="", end=site if name == "near" else None, length=999),
    }

    found = scans(explain(connection, statement, values))

    assert found
    assert [s for s in found if "Seq Scan" in s.node] == []
    assert {s.index for s in found} <= indexes
    assert name in WHOLE or all(s.condition for s in found)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_the_claim_takes_what_is_due_in_the_order_of_its_index(connection: Connection, site: int, mode: str) -> None:
    """What is due is neither sorted nor hashed for a few of it, whatever is known of the values."""
    connection.exec_driver_sql(f"SET LOCAL plan_cache_mode = {mode}")
    values = {"prefixes": [one_prefix(site)], **bound(token=uuid4(), worker="w")}

    plan = explain(connection, claim.claim(CLOCK, claim.Which.TOGETHER), values)

    due = next(n for n in nodes(plan) if n["Node Type"] == "LockRows")
    assert {"Nested Loop", "Index Scan"} <= {n["Node Type"] for n in nodes(due)}
    assert [n for n in nodes(due) if "Sort" in n["Node Type"] or n["Node Type"] in ("Hash", "Hash Join")] == []


BATCHES = ["advance", "reject", "retry", "snooze", "hold", "fail", "repair", "release"]


@pytest.mark.parametrize("verb", BATCHES)
def test_a_batch_is_never_compared_with_itself(verb: str, connection: Connection, site: int) -> None:
    """What was written is not joined with what was decided: the server takes both for one row, and loops over both."""
    values = {"acks": held(connection), "gates": some_gates(connection)}

    plan = explain(connection, getattr(transitions, verb)(CLOCK), values)

    sides = [n for n in nodes(plan) if n.get("Parent Relationship") in ("Outer", "Inner")]
    joins = [n for n in nodes(plan) if "Join" in n["Node Type"] or n["Node Type"] == "Nested Loop"]
    assert joins
    for join in joins:
        assert [n["Node Type"] for n in join["Plans"] if n in sides].count("CTE Scan") < 2


def test_the_blocker_is_found_in_one_step(connection: Connection) -> None:
    """The head of a lane begins behind what the gate has passed, not at the lane's first position."""
    values = {"gates": some_gates(connection)}

    found = scans(explain(connection, gates.promote(CLOCK), values))

    heads = [s.condition for s in found if s.index == "ix_jobs_lane_position"]
    assert heads
    assert all("lane_id = " in c and "position" in c and ">" in c for c in heads)
    assert [s for s in found if s.node == "Bitmap Index Scan" and s.index != "uq_jobs_gate_slot"] == []


def test_who_waits_is_looked_for_at_one_position(connection: Connection) -> None:
    """At a strict gate it is the head's, not all that wait there or ever did."""
    plan = explain(connection, gates.promote(CLOCK), {"gates": some_gates(connection)})

    waits = [s.condition for s in scans(plan) if s.index == "ix_jobs_waiting"]
    assert waits
    assert all("gate_id = " in c and 'position" >= ' in c and 'position" <= ' in c for c in waits)


def test_an_end_looks_each_gate_up_by_its_lane(connection: Connection) -> None:
    """And not all of a stage for each job, as planners do which have seen few lanes."""
    values = {"acks": held(connection), "gates": some_gates(connection)}

    for verb in (transitions.advance, transitions.reject):
        plan = explain(connection, verb(CLOCK), values)
        looks = [n for n in nodes(plan) if n.get("Index Name") == "uq_gates_lane_id_stage"]
        assert looks
        assert all("lane_id = " in n["Index Cond"] for n in looks)
