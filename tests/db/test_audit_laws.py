"""The laws as queries: a constraint that somebody took away is missed by nobody who asks for every row."""

import pytest
from sqlalchemy import text

from pipeline.service.audit import Audit
from pipeline.sql.audit.laws import laws
from tests.conftest import SCHEMA
from tests.factories import Factory

BROKEN = (
    ("ck_jobs_attempts", "ALTER TABLE jobs DROP CONSTRAINT ck_jobs_attempts", "UPDATE jobs SET attempts = -1"),
    (
        "uq_jobs_topic_open",
        "DROP INDEX uq_jobs_topic_open",
        "INSERT INTO jobs (site_id, lane_id, topic_id, position, pass, stage, state, max_attempts)"
        " SELECT site_id, lane_id, topic_id, position, 2, stage, 'failed', 5 FROM jobs",
    ),
    (
        "uq_topics_site_id_slug",
        "ALTER TABLE topics DROP CONSTRAINT uq_topics_site_id_slug",
        "UPDATE topics SET slug = 'the-same'",
    ),
    (
        "fk_events_job_id_jobs",
        "ALTER TABLE events DROP CONSTRAINT fk_events_job_id_jobs",
        "INSERT INTO events (job_id, verb, actor) VALUES (4711, 'skip', 'x')",
    ),
)


@pytest.fixture(scope="module")
def lane(scenery: Factory) -> list[int]:
    return scenery.plan(count=2)


def broken(factory: Factory, *statements: str) -> set[str]:
    """The laws that do not hold after these statements, which are rolled back."""
    with factory.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        for statement in statements:
            connection.execute(text(statement))
        found = {law.name for law in laws() if connection.execute(law.broken).first() is not None}
        transaction.rollback()
    return found


@pytest.mark.parametrize(("name", "drop", "harm"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_a_row_that_a_lost_constraint_lets_in_is_found(
    scenery: Factory, lane: list[int], name: str, drop: str, harm: str
) -> None:
    """By the name of the law; before that, all of them hold."""
    assert broken(scenery) == set()

    assert name in broken(scenery, drop, harm)


def test_every_constraint_of_the_schema_is_asked_for(scenery: Factory) -> None:
    """What the database enforces is what the laws are made from."""
    with scenery.engine.connect() as connection:
        enforced = connection.execute(
            text(
                "SELECT conname FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace"
                " WHERE n.nspname = :schema AND contype IN ('c', 'u', 'p', 'f') AND conname !~ 'alembic'"
                " UNION SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
                " JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = :schema AND i.indisunique AND c.relname !~ 'alembic'"
            ),
            {"schema": SCHEMA},
        ).scalars()

        assert {law.name for law in laws()} == set(enforced)


def test_the_laws_are_asked_of_the_rows_themselves(scenery: Factory, lane: list[int]) -> None:
    """All at once, each an answer without rows."""
    answers = list(Audit(scenery.engine, SCHEMA).laws())

    assert {answer.name for answer in answers} == {law.name for law in laws()}
    assert [answer for answer in answers if answer.rows or answer.unseen] == []
