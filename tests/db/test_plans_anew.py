"""What was planned on a worker's connection while its tables were empty is planned anew as they fill."""

from typing import Any

import pytest
from sqlalchemy import event

from pipeline import db
from pipeline.build import services as build_services
from pipeline.db import make_engine
from pipeline.testing.database import SCHEMA


@pytest.mark.parametrize(("steady", "at"), [(True, [101.0, 102.0, 104.0, 150.0]), (False, [])])
def test_a_connection_drops_its_plans_whenever_it_is_twice_as_old(
    database_url: str, monkeypatch: pytest.MonkeyPatch, steady: bool, at: list[float]
) -> None:
    """After a second, two, four; with the words that begin a transaction."""
    clock = [100.0]
    monkeypatch.setattr(db.time, "monotonic", lambda: clock[-1])
    engine = make_engine(database_url, schema=SCHEMA, connections=1, name="steady", steady=steady)
    dropped: list[float] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if "DISCARD PLANS" in statement:
            dropped.append(clock[-1])

    work = build_services(engine).work
    for moment in (100.0, 100.9, 101.0, 101.9, 102.0, 103.9, 104.0, 150.0, 199.9):
        clock.append(moment)
        assert work.prefixes() == []
    engine.dispose()

    assert dropped == at
