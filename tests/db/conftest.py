"""One scene for tests that roll back, and plain SQL."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from pipeline.build import services as build_services
from pipeline.db import make_engine
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
