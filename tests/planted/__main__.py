"""The kill table: ``python -m tests.planted`` plants each fault and says what caught it. Exit 1 when one was not."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from pipeline.build import services
from pipeline.db import make_engine
from pipeline.testing import database
from pipeline.testing.database import SCHEMA, Server
from tests.concurrency.stage import Play
from tests.factories import Factory
from tests.planted.faults import EQUIVALENT, FAULTS
from tests.planted.judging import judge
from tests.planted.scenarios import SCENARIOS
from tests.planted.stand import Stand

NAME = "planted_faults"


@contextmanager
def _stand(engine: Engine, url: str) -> Iterator[Stand]:
    """An empty database, emptied again afterwards."""
    try:
        with Play(url) as play:
            made = services(engine)
            yield Stand(url, engine, made, Factory(engine, made), play)
    finally:
        with engine.begin() as connection:
            database.empty(connection)


def _line(name: str, caught: str, how: str, seconds: float) -> None:
    print(f"{name:<32}{caught:<44}{how}  ({seconds:.1f} s)")


def main() -> int:
    wrong = 0
    with database.run_folder() as folder, database.server_url(folder) as server_url:
        server = Server(server_url)
        server.drop(NAME)
        url = server.create(NAME, server.template()).render_as_string(hide_password=False)
        engine = make_engine(url, schema=SCHEMA, connections=10, name="planted")
        try:
            for name, scenario in SCENARIOS.items():
                with _stand(engine, url) as stand:
                    verdict = judge(scenario, stand)
                if verdict.by is not None:
                    wrong += 1
                    _line("(the product itself)", name, f"{verdict.by}: {verdict.what}", 0)
            for table, caught_is_right in ((FAULTS, True), (EQUIVALENT, False)):
                for name, fault in table.items():
                    began = time.monotonic()
                    with _stand(engine, url) as stand:
                        verdict = judge(fault.scenario, stand, fault)
                    wrong += (verdict.by is not None) is not caught_is_right
                    how = f"{verdict.by}: {verdict.what}" if verdict.by else "not caught"
                    if not caught_is_right:
                        how += f", as it should be: {fault.what}"
                    _line(name, fault.scenario.__name__, how, time.monotonic() - began)
        finally:
            engine.dispose()
            server.drop(NAME)
    print(f"{len(FAULTS)} faults planted in the product and {len(EQUIVALENT)} in one wall of two: {wrong} surprises")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
