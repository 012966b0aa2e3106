"""Models, migrations and the way back agree, as the server's catalogue tells it."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.schema import CreateSchema

from pipeline import migrate
from pipeline.models import Base
from tests.fingerprint import Fingerprint, fingerprint


@pytest.fixture
def engine(fresh_database: str) -> Engine:
    return migrate.direct_engine(fresh_database)


def create(engine: Engine, schema: str) -> None:
    with engine.begin() as connection:
        connection.execute(CreateSchema(schema))
        translated = connection.execution_options(schema_translate_map={None: schema})
        Base.metadata.create_all(translated)


def run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def test_models_and_migrations_agree(fresh_database: str, engine: Engine) -> None:
    """What create_all makes and what the revisions make is the same, definition by definition."""
    create(engine, "created")

    applied = migrate.upgrade(fresh_database, "migrated")

    made = fingerprint(engine, "migrated")
    assert applied == migrate.numbers()
    assert made == fingerprint(engine, "created")
    assert not [entry for entry in made if "INVALID" in entry[2]]
    assert ("relation", "jobs", "r p f fillfactor=80") in made


@pytest.mark.migrated
def test_down_and_up_again_changes_nothing(fresh_database: str, engine: Engine) -> None:
    """Base is an empty catalogue, sequences included, and the way up from there leads to the same place."""
    before = fingerprint(engine, "pipeline")

    down = migrate.downgrade(fresh_database, "pipeline", "base")
    empty = fingerprint(engine, "pipeline")
    migrate.upgrade(fresh_database, "pipeline")

    assert down == migrate.numbers()[::-1]
    assert empty == set()
    assert fingerprint(engine, "pipeline") == before


def test_each_step_down_leads_to_where_it_came_from(fresh_database: str, engine: Engine) -> None:
    """Every single revision takes back exactly what it did."""
    path: list[Fingerprint] = [set()]
    for number in migrate.numbers():
        migrate.upgrade(fresh_database, "pipeline", number)
        path.append(fingerprint(engine, "pipeline"))

    for expected in path[-2::-1]:
        migrate.downgrade(fresh_database, "pipeline", "-1")
        assert fingerprint(engine, "pipeline") == expected


def test_nothing_is_made_outside_the_schema(fresh_database: str, engine: Engine) -> None:
    """Tables and the table of versions live in the schema that was named, whatever else the database holds."""
    run(engine, "CREATE SCHEMA other")
    run(engine, "CREATE TABLE other.sites (id int)")
    before = {name: fingerprint(engine, name) for name in ("public", "other")}

    migrate.upgrade(fresh_database, "tenant_7")

    assert {name: fingerprint(engine, name) for name in ("public", "other")} == before
    assert migrate.current(fresh_database, "tenant_7") == migrate.head()
    assert migrate.current(fresh_database, "public") is None
    assert migrate.drift(fresh_database, "tenant_7") == []


def test_two_tenants_do_not_see_each_other(fresh_database: str, engine: Engine) -> None:
    """One schema per tenant: each has its own revision; an odd name is a name like others."""
    odd = 'Odd "tenant" 100%'
    migrate.upgrade(fresh_database, "tenant_7", "0003")

    migrate.upgrade(fresh_database, odd)

    assert migrate.current(fresh_database, "tenant_7") == "0003"
    assert migrate.current(fresh_database, odd) == migrate.head()
    assert migrate.drift(fresh_database, odd) == []


@pytest.mark.migrated
def test_alembic_check_finds_nothing(fresh_database: str) -> None:
    """Models and migrated database are the same to Alembic, types, defaults and names of CHECKs included."""
    assert migrate.drift(fresh_database, "pipeline") == []


BY_HAND = {
    "ALTER TABLE pipeline.jobs DROP CONSTRAINT ck_jobs_slot": "missing: constraint ck_jobs_slot on jobs",
    "DROP INDEX pipeline.ix_jobs_claim": "missing: index ix_jobs_claim on jobs",
    "ALTER TABLE pipeline.attempts DROP COLUMN metrics": "missing: column attempts.metrics",
    "CREATE TABLE pipeline.notes (id int)": "unexpected: table notes",
    "ALTER TABLE pipeline.topics DROP CONSTRAINT fk_topics_lane_id_lanes": (
        "missing: foreign key fk_topics_lane_id_lanes on topics"
    ),
    "ALTER TABLE pipeline.sites ALTER COLUMN locale DROP NOT NULL": (
        "different: nullable of column sites.locale is True, not False"
    ),
}


@pytest.mark.migrated
def test_drift_tells_what_was_changed_by_hand(fresh_database: str, engine: Engine) -> None:
    """One line for each difference, told from the database's side, and none for what is as it was."""
    for statement in BY_HAND:
        run(engine, statement)

    found = migrate.drift(fresh_database, "pipeline")

    assert sorted(found) == sorted(BY_HAND.values())


@pytest.mark.migrated
def test_the_fingerprint_sees_what_alembic_does_not(fresh_database: str, engine: Engine) -> None:
    """A wrong predicate and a weakened CHECK keep their names: only the catalogue tells."""
    right = fingerprint(engine, "pipeline")
    run(engine, "DROP INDEX pipeline.ix_jobs_waiting")
    run(engine, "CREATE INDEX ix_jobs_waiting ON pipeline.jobs (gate_id, position) WHERE state = 'pending'")
    run(engine, "ALTER TABLE pipeline.gates DROP CONSTRAINT ck_gates_width, ADD CONSTRAINT ck_gates_width CHECK (true)")

    changed = {name for _, name, _ in right ^ fingerprint(engine, "pipeline")}

    assert migrate.drift(fresh_database, "pipeline") == []
    assert changed == {"ix_jobs_waiting", "gates.ck_gates_width"}
