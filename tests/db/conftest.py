"""One scene for tests that roll back, and plain SQL."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from pipeline.build import services as build_services
from pipeline.db import make_engine
from pipeline.states import TRANSITIONS
from tests.conftest import SCHEMA, _create, _drop, _name
from tests.factories import Factory

Sql = Callable[..., Any]


@pytest.fixture(scope="module")
def scenery(server_url: str, template: str, run_folder: Any) -> Iterator[Factory]:
    """A factory over a database of this module alone: what its tests change, they roll back."""
    name = _name(run_folder, "scene")
    _drop(server_url, name)
    engine = make_engine(_create(server_url, name, template), schema=SCHEMA, connections=5, name="scene")
    yield Factory(engine, build_services(engine))
    engine.dispose()
    _drop(server_url, name)


@pytest.fixture
def sql(engine: Engine) -> Sql:
    """Runs one statement of plain SQL, committed; returns its rows, if it has any."""

    def run(statement: str, **values: Any) -> Any:
        with engine.begin() as connection:
            connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
            answer = connection.execute(text(statement), values)
            return answer.all() if answer.returns_rows else answer.rowcount

    return run


EDGES = """
CREATE FUNCTION {schema}.refuse_illegal_edges() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state NOT IN ('pending', 'waiting') THEN RAISE EXCEPTION 'illegal edge: nothing to %%', NEW.state; END IF;
  ELSIF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN ({edges}) THEN
    RAISE EXCEPTION 'illegal edge: %% to %%', OLD.state, NEW.state;
  END IF;
  RETURN NEW;
END $$
"""


@pytest.fixture
def strict_edges(engine: Engine) -> Iterator[None]:
    """For this test, the database itself refuses every change of a job's state that no verb is allowed to make."""
    edges = {edge for verb in TRANSITIONS.values() for edge in verb.edges}
    words = ", ".join(f"('{source}', '{target}')" for source, target in sorted(edges))
    with engine.begin() as connection:
        connection.exec_driver_sql(EDGES.format(schema=SCHEMA, edges=words))
        connection.exec_driver_sql(
            f"CREATE TRIGGER refuse_illegal_edges BEFORE INSERT OR UPDATE OF state ON {SCHEMA}.jobs"
            f" FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.refuse_illegal_edges()"
        )
    yield
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TRIGGER refuse_illegal_edges ON {SCHEMA}.jobs")
        connection.exec_driver_sql(f"DROP FUNCTION {SCHEMA}.refuse_illegal_edges()")
