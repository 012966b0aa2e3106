"""The database in the model's words: every site, stage, lane, gate, topic, job and ended reservation; and the audit.

Read on a session of its own, with plain SQL that shares nothing with the product's statements.
"""

from typing import Any

import psycopg
from psycopg.rows import dict_row

from pipeline.models import Base
from pipeline.service.append import input_hash
from pipeline.sql.audit import INVARIANTS
from pipeline.testing.database import SCHEMA
from tests.stateful.model import World

TITLE, TYPE = "A page", "page"
VERSIONS = (1, 2, 3)
_HASHES = {input_hash(TITLE, TYPE, {"v": v}, {}): v for v in VERSIONS}

_SITES = "SELECT slug, id, state, changed, built FROM sites"
_STAGES = "SELECT s.slug, g.name, g.ordinal, g.state, g.width FROM stages g JOIN sites s ON s.id = g.site_id"
_LANES = """SELECT s.slug, l.name, l.state, l.on_failed, l.next_position AS next, l.overrides AS own
FROM lanes l JOIN sites s ON s.id = l.site_id"""
_GATES = """SELECT s.slug, l.name, g.stage, g.ordinal, g.width, CASE WHEN g.width = 1 THEN g.passed END AS passed
FROM gates g JOIN lanes l ON l.id = g.lane_id JOIN sites s ON s.id = l.site_id"""
_TOPICS = """SELECT s.slug AS site, t.slug, l.name AS lane, t.position, t.pass AS number, t.released, t.input_hash,
       t.made_from, (t.brief ->> 'v')::int AS version, r.content_hash AS draft
FROM topics t JOIN sites s ON s.id = t.site_id JOIN lanes l ON l.id = t.lane_id
LEFT JOIN revisions r ON r.id = t.revision_id"""
_JOBS = """SELECT s.slug AS site, t.slug, j.pass AS number, l.name AS lane, j.position, j.stage,
       j.max_attempts AS permitted, j.state, j.cleared, j.attempts, j.given_back AS returned, j.snoozed, j.round,
       j.max_rounds AS rounds, j.gate_id IS NOT NULL AS gate, j.slot IS NOT NULL AS slot, j.hold IS NOT NULL AS hold,
       j.cancel_requested AS cancel, j.error_class AS error, j.approved, j.fence,
       coalesce(j.lease_expires_at <= clock_timestamp(), false) AS over, j.id,
       j.state <> 'pending' OR j.run_at <= clock_timestamp() AS due,
       j.gate_id IS NULL OR (g.lane_id = j.lane_id AND g.stage = j.stage) AS at_home
FROM jobs j JOIN sites s ON s.id = j.site_id LEFT JOIN topics t ON t.id = j.topic_id
LEFT JOIN lanes l ON l.id = j.lane_id LEFT JOIN gates g ON g.id = j.gate_id"""
_RECORDS = "SELECT fence, job_id AS job, outcome, charged, error_class AS error FROM attempts"
_TABLES = " UNION ALL ".join(
    f"SELECT '{name}', md5(string_agg(t::text, chr(10) ORDER BY t::text)) FROM {name} t"
    for name in sorted(t.name for t in Base.metadata.sorted_tables)
)
_BROKEN = " UNION ALL ".join(
    f"SELECT '{name}', count(*) FROM ({query}) q HAVING count(*) > 0" for name, (_, query) in INVARIANTS.items()
)

Rows = dict[tuple[Any, ...], dict[str, Any]]


class Reader:
    """Looks at the database; writes nothing."""

    def __init__(self, url: str) -> None:
        plain = url.replace("postgresql+psycopg:", "postgresql:")
        self._connection = psycopg.connect(
            plain, autocommit=True, row_factory=dict_row, prepare_threshold=0, application_name="reader",
            options=f"-c search_path={SCHEMA} -c jit=off",
        )  # fmt: skip

    def close(self) -> None:
        self._connection.close()

    def rows(self, statement: str) -> list[dict[str, Any]]:
        return self._connection.execute(statement).fetchall()

    def jobs(self) -> list[dict[str, Any]]:
        return self.rows(_JOBS)

    def whole(self) -> list[dict[str, Any]]:
        """Every table, to the last column."""
        return self.rows(_TABLES)

    def broken(self) -> list[dict[str, Any]]:
        """Which invariants of the audit do not hold."""
        return self.rows(_BROKEN)

    def world(self, jobs: list[dict[str, Any]]) -> dict[str, Rows]:
        topics = self.rows(_TOPICS)
        for row in topics:
            assert _HASHES[row.pop("input_hash")] == row["version"], row
            row["made_from"] = _HASHES[row["made_from"]] if row["made_from"] else None
        return {
            "site": {(r["slug"],): r for r in self.rows(_SITES)},
            "stage": {(r["slug"], r["name"]): r for r in self.rows(_STAGES)},
            "lane": {(r["slug"], r["name"]): r for r in self.rows(_LANES)},
            "gate": {(r["slug"], r["name"], r["stage"]): r for r in self.rows(_GATES)},
            "topic": {(r["site"], r["slug"]): r for r in topics},
            "job": {(r["site"], r["slug"], r["number"], r["id"]): r for r in jobs},
            "reservation": {(r["fence"],): r for r in self.rows(_RECORDS)},
        }


def foretold(world: World) -> dict[str, Rows]:
    """The same of the model."""
    sites = world.sites.values()
    lanes = [(s, lane) for s in sites for lane in s.lanes.values()]
    plain = ("id", "state", "changed", "built", "slug")
    topics = ("slug", "lane", "position", "number", "released", "made_from", "version", "draft")
    return {
        "site": {(s.slug,): {k: getattr(s, k) for k in plain} for s in sites},
        "stage": {
            (s.slug, g.name): {"slug": s.slug, "name": g.name, "ordinal": g.ordinal, "state": g.state, "width": g.width}
            for s in sites
            for g in s.stages.values()
        },
        "lane": {
            (s.slug, x.name): {
                "slug": s.slug, "name": x.name, "state": x.state, "on_failed": x.on_failed, "next": x.next, "own": x.own
            }
            for s, x in lanes
        },
        "gate": {
            (s.slug, x.name, g.stage): {
                "slug": s.slug, "name": x.name, "stage": g.stage, "ordinal": g.ordinal, "width": g.width,
                "passed": g.passed if g.width == 1 else None,
            }
            for s, x in lanes
            for g in x.gates.values()
        },
        "topic": {
            (s.slug, t.slug): {"site": s.slug, **{k: getattr(t, k) for k in topics}}
            for s in sites
            for t in s.topics.values()
        },
        "job": {
            (s.slug, j.slug, j.number, j.id): {
                "site": s.slug, "at_home": True, **{k: v for k, v in vars(j).items() if k != "spent"},
                "due": j.due or j.state != "pending",
            }
            for s in sites
            for j in s.jobs
        },
        "reservation": {(fence,): {"fence": fence, **vars(record)} for fence, record in world.records.items()},
    }  # fmt: skip


def differences(model: dict[str, Rows], database: dict[str, Rows]) -> list[str]:
    """What is not the same, in words."""
    told = []
    for kind in model:
        for key in sorted({*model[kind], *database[kind]}, key=str):
            one, other = model[kind].get(key), database[kind].get(key)
            if one is None or other is None:
                told.append(f"{kind} {key}: {'only in the database' if one is None else 'only in the model'}")
                continue
            told += [
                f"{kind} {key}: {name} is {one[name]!r} in the model, {other[name]!r} in the database"
                for name in other
                if one[name] != other[name]
            ]
    return told


__all__ = ["TITLE", "TYPE", "VERSIONS", "Reader", "differences", "foretold"]
