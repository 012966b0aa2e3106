"""The laws of the database: every CHECK and unique index of the hot tables refuses what it should, by its name."""

from typing import Any

import pytest
from sqlalchemy import CheckConstraint, PrimaryKeyConstraint, UniqueConstraint, text
from sqlalchemy.exc import IntegrityError

from pipeline.models import Base
from pipeline.service.acknowledging import Verb
from tests.conftest import SCHEMA
from tests.factories import Factory

HOT = ("sites", "lanes", "stages", "gates", "topics", "jobs", "attempts", "revisions", "findings", "publications")

LONG = "repeat('x', 1001)"
JOB = "UPDATE jobs SET {} WHERE id = :waiting"
PENDING = "UPDATE jobs SET {} WHERE id = :pending"
DONE = "UPDATE jobs SET {} WHERE id = :done"
REVISION = (
    "INSERT INTO revisions (site_id, topic_id, number, origin, fence, title, description, title_key, description_key,"
    " body, front_matter, content_hash, lineage) SELECT site_id, topic_id, {}, 'human', {}, '', '', '', '', '', '{{}}',"
    " '', '{{}}' FROM revisions WHERE topic_id = :topic"
)
PUBLICATION = (
    "INSERT INTO publications (site_id, topic_id, target, live_path, live_hash, live_remote, first_at, changed_at,"
    " intent_path, intent_hash) VALUES (:site, {}, 'files', {}, 'h', 'r', now(), now(), {}, 'h')"
)

LAWS: tuple[tuple[str, str], ...] = (
    ("uq_sites_slug", "INSERT INTO sites (slug, name, base_url) VALUES ('acme', '', '')"),
    ("ck_sites_slug", "UPDATE sites SET slug = '../acme'"),
    ("ck_sites_state", "UPDATE sites SET state = 'asleep'"),
    ("ck_sites_built", "UPDATE sites SET built = changed + 1"),
    ("uq_lanes_site_id_name", "INSERT INTO lanes (site_id, name) VALUES (:site, 'lane')"),
    ("ck_lanes_state", "UPDATE lanes SET state = 'asleep'"),
    ("ck_lanes_overrides", "UPDATE lanes SET overrides = '[]'"),
    ("ck_lanes_on_failed", "UPDATE lanes SET on_failed = 'panic'"),
    ("ck_lanes_next_position", "UPDATE lanes SET next_position = 0"),
    ("ck_lanes_name", "UPDATE lanes SET name = ''"),
    ("pk_stages", "INSERT INTO stages (site_id, name, ordinal) VALUES (:site, 'publish', 9)"),
    ("uq_stages_site_id_ordinal", "INSERT INTO stages (site_id, name, ordinal) VALUES (:site, 'new', 1000)"),
    ("ck_stages_state", "UPDATE stages SET state = 'asleep'"),
    ("ck_stages_width", "UPDATE stages SET width = 0"),
    ("ck_stages_ordinal", "UPDATE stages SET ordinal = -1 WHERE ordinal = 1000"),
    ("ck_stages_max_attempts", "UPDATE stages SET max_attempts = 0"),
    ("ck_stages_name", "UPDATE stages SET name = 'assemble' WHERE ordinal = 1000"),
    (
        "uq_gates_lane_id_stage",
        "INSERT INTO gates (lane_id, stage, ordinal, width) SELECT lane_id, stage, 1, 1 FROM gates",
    ),
    ("ck_gates_width", "UPDATE gates SET width = 0"),
    ("ck_gates_passed", "UPDATE gates SET passed = -1"),
    ("uq_topics_site_id_slug", "UPDATE topics SET slug = 'lane-1' WHERE id = :topic"),
    ("uq_topics_site_id_path", "UPDATE topics SET path = 'lane/lane-1/' WHERE id = :topic"),
    ("uq_topics_lane_id_position", "UPDATE topics SET position = 1 WHERE id = :topic"),
    ("ck_topics_slug", "UPDATE topics SET slug = 'No Slug' WHERE id = :topic"),
    ("ck_topics_path", f"UPDATE topics SET path = {LONG} WHERE id = :topic"),
    ("ck_topics_position", "UPDATE topics SET position = 0 WHERE id = :topic"),
    ("ck_topics_pass", "UPDATE topics SET pass = 0 WHERE id = :topic"),
    ("ck_jobs_state", JOB.format("state = 'asleep'")),
    ("ck_jobs_reserved", JOB.format("token = gen_random_uuid()")),
    ("ck_jobs_reserved", JOB.format("state = 'reserved', slot = 2")),
    ("ck_jobs_slot", JOB.format("slot = 1")),
    ("ck_jobs_slot", PENDING.format("slot = NULL")),
    ("ck_jobs_slot", PENDING.format("gate_id = NULL")),
    ("ck_jobs_slot_number", PENDING.format("slot = 0")),
    ("ck_jobs_attempts", JOB.format("attempts = max_attempts + 1")),
    ("ck_jobs_attempts", JOB.format("attempts = -1")),
    ("ck_jobs_counts", JOB.format("given_back = -1")),
    ("ck_jobs_counts", JOB.format("snoozed = -1")),
    ("ck_jobs_counts", JOB.format("round = -1")),
    ("ck_jobs_finished", JOB.format("finished_at = now()")),
    ("ck_jobs_finished", DONE.format("finished_at = NULL")),
    ("ck_jobs_run_at", PENDING.format("run_at = NULL")),
    ("ck_jobs_hold", PENDING.format("hold = 'why'")),
    ("ck_jobs_priority", JOB.format("priority = 4")),
    ("ck_jobs_topic", JOB.format("topic_id = NULL")),
    ("ck_jobs_topic", JOB.format("position = NULL")),
    ("ck_jobs_topic", JOB.format("stage = 'assemble'")),
    ("ck_jobs_finite", JOB.format("release_at = 'infinity'")),
    ("ck_jobs_finite", JOB.format("retry_at = '-infinity'")),
    ("ck_jobs_finite", PENDING.format("run_at = 'infinity'")),
    ("ck_jobs_finite", JOB.format("run_until = 'infinity'")),
    ("ck_jobs_finite", "UPDATE jobs SET lease_expires_at = 'infinity' WHERE state = 'reserved'"),
    ("ck_jobs_finite", DONE.format("finished_at = 'infinity'")),
    (
        "uq_jobs_topic_open",
        "INSERT INTO jobs (site_id, lane_id, topic_id, position, pass, stage, state, max_attempts)"
        " SELECT site_id, lane_id, topic_id, position, 2, stage, 'cancelled', 5 FROM jobs WHERE id = :waiting",
    ),
    (
        "uq_jobs_assembly_open",
        "INSERT INTO jobs (site_id, stage, state, max_attempts)"
        " SELECT :site, 'assemble', 'failed', 5 FROM generate_series(1, 2)",
    ),
    ("uq_jobs_gate_slot", JOB.format("state = 'pending', slot = 1")),
    (
        "pk_attempts",
        "INSERT INTO attempts (fence, job_id, stage, round, token, worker, reserved_at, ended_at, outcome, charged)"
        " SELECT fence, job_id, stage, round, token, worker, reserved_at, ended_at, outcome, charged FROM attempts",
    ),
    ("ck_attempts_outcome", "UPDATE attempts SET outcome = 'well'"),
    ("ck_attempts_order", "UPDATE attempts SET ended_at = reserved_at - interval '1 second'"),
    ("uq_revisions_topic_id_number", REVISION.format("1", "NULL")),
    ("uq_revisions_fence", REVISION.format("2", "fence")),
    ("ck_revisions_origin", "UPDATE revisions SET origin = 'dreamt'"),
    ("ck_revisions_body", "UPDATE revisions SET body = repeat('x', 16777217)"),
    ("ck_revisions_keys", "UPDATE revisions SET title_key = repeat('x', 65)"),
    (
        "ck_findings_severity",
        "INSERT INTO findings (topic_id, fence, rule, severity, message) VALUES (:topic, 1, 'r', 'odd', '')",
    ),
    ("ck_publications_lengths", f"UPDATE publications SET intent_path = {LONG}"),
    ("ck_publications_intent", "UPDATE publications SET intent_token = gen_random_uuid()"),
    ("ck_publications_live", "UPDATE publications SET live_hash = NULL"),
    ("uq_publications_topic", PUBLICATION.format("(SELECT topic_id FROM publications)", "'b/'", "'b/'")),
    ("uq_publications_intent_path", PUBLICATION.format(":topic", "'b/'", "'a/'")),
    ("uq_publications_live_path", PUBLICATION.format(":topic", "'a/'", "'b/'")),
)


@pytest.fixture(scope="module")
def values(scenery: Factory) -> dict[str, int]:
    """Rows of every hot table: a done, a pending and a waiting job in one lane, a reserved one, a publication."""
    make = scenery
    done, pending, waiting = make.advance_to("publish", count=3)
    make.say(make.claim("publish")[0], Verb.ADVANCE)
    make.plan(lane="other")
    make.claim("generate")
    topic = make.job(waiting).topic_id
    with make.engine.begin() as connection:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        published = PUBLICATION.format("(SELECT topic_id FROM jobs WHERE id = :done)", "'a/'", "'a/'")
        connection.execute(text(published), {"site": make.site_id, "done": done})
    return {"site": make.site_id, "done": done, "pending": pending, "waiting": waiting, "topic": topic}


def laws_of_the_models() -> set[str]:
    """The names of every CHECK, unique constraint and unique index of the hot tables."""
    names: set[Any] = set()
    for name in HOT:
        table = Base.metadata.tables[name]
        names |= {c.name for c in table.constraints if isinstance(c, CheckConstraint | UniqueConstraint)}
        names |= {i.name for i in table.indexes if i.unique}
        names |= {
            c.name
            for c in table.constraints
            if isinstance(c, PrimaryKeyConstraint) and all(column.identity is None for column in c.columns)
        }
    return {str(name) for name in names}


def test_every_law_of_the_hot_tables_is_tried() -> None:
    """A CHECK or unique index that is added without a trial fails here; a generated key needs none."""
    assert {name for name, _ in LAWS} == laws_of_the_models()


@pytest.mark.parametrize(("law", "statement"), LAWS, ids=[f"{n}-{law}" for n, (law, _) in enumerate(LAWS)])
def test_the_database_refuses_by_name(law: str, statement: str, scenery: Factory, values: dict[str, int]) -> None:
    """What breaks one law is refused by that law."""
    asked = text(statement)
    wanted = {key: value for key, value in values.items() if key in asked.compile().params}
    with scenery.engine.connect() as connection:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        with pytest.raises(IntegrityError) as refusal:
            connection.execute(asked, wanted)

    assert refusal.value.orig is not None
    assert refusal.value.orig.diag.constraint_name == law  # type: ignore[attr-defined]
