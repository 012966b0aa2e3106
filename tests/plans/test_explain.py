"""What people ask costs nothing for what is finished: an answer comes to its jobs by indexes alone."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Executable, text

from pipeline.service.explaining import Patience
from pipeline.sql import explain as explaining, reads
from pipeline.sql.batch import bound
from tests.factories import Factory
from tests.plans.test_plans import CLOCK, connection, explain, nodes, scans, site

__all__ = ["connection", "site"]

# Each with the indexes by which it may come to jobs. Those marked whole may walk all that stands of a site, never what
# is finished.
ASKED: dict[str, tuple[Executable, set[str]]] = {
    "topic": (explaining.topic(), {"ix_jobs_topic"}),
    "passes": (explaining.passes(CLOCK), {"pk_jobs"}),
    "gate": (explaining.gate(), {"ix_jobs_lane_position", "uq_jobs_gate_slot"}),
    "holders": (explaining.holders(), {"uq_jobs_gate_slot"}),
    "site": (explaining.site(CLOCK), {"uq_jobs_assembly_open"}),
    "lane_gates": (explaining.lane_gates(), {"ix_jobs_lane_position", "uq_jobs_gate_slot", "ix_jobs_waiting"}),
    "still_lanes": (explaining.still_lanes(CLOCK), {"ix_jobs_lane_position", "pk_jobs"}),
    "late": (explaining.late(CLOCK), {"ix_jobs_reserved"}),
    "failing_fast": (explaining.failing_fast(), {"ix_jobs_claim", "ix_jobs_reserved", "uq_jobs_topic_open"}),
    "unclaimed": (explaining.unclaimed(CLOCK), {"ix_jobs_claim"}),
    "delays": (reads.delays(CLOCK), {"ix_jobs_claim", "ix_jobs_reserved", "uq_jobs_topic_open"}),
}
WHOLE = {"failing_fast", "delays"}


def values(connection: Connection, site: int) -> dict[str, Any]:
    row = connection.execute(text("SELECT id, lane_id, gate_id FROM jobs WHERE state = 'waiting' LIMIT 1")).one()
    return bound(
        site_id=site, slug="lane-7-215", ids=[row.id], gate_id=row.gate_id, lane_id=row.lane_id, limit=20,
        overdue_seconds=60.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_no_question_reads_what_is_finished(name: str, connection: Connection, site: int) -> None:
    """Each comes to its jobs by an index made for it."""
    statement, indexes = ASKED[name]

    found = scans(explain(connection, statement, values(connection, site)))

    assert found
    assert [s for s in found if "Seq Scan" in s.node] == []
    assert {s.index for s in found} <= indexes
    assert name in WHOLE or all(s.condition for s in found)


def test_the_pace_looks_at_the_newest_reservations_alone(connection: Connection) -> None:
    """Backwards by key, so that what was done long ago is not met."""
    connection.execute(text("SET LOCAL enable_seqscan = off"))  # the scene has no attempts

    plan = explain(connection, reads.paces(CLOCK), {})

    walks = [n for n in nodes(plan) if n.get("Relation Name") == "attempts"]
    assert [(n["Node Type"], n.get("Scan Direction")) for n in walks] == [("Index Scan", "Backward")]


def test_the_head_is_the_same_for_all_that_wait(scenery: Factory, site: int) -> None:
    """The next one and the last of a lane are told of the same head, behind what the gate has passed."""
    patience = Patience(timedelta(seconds=30), timedelta(seconds=60))

    near = scenery.services.explaining.topic(site, "lane-7-202", patience)
    far = scenery.services.explaining.topic(site, "lane-7-220", patience)

    assert [(r.code, r.topic) for r in (*near.reasons, *far.reasons)] == [("behind", "lane-7-201")] * 2
