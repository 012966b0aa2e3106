"""Asks for broken invariants while everybody works, from a connection of its own; and how late this machine is."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from pipeline.db import make_engine
from pipeline.service.audit import Audit, Violation
from pipeline.testing.database import SCHEMA
from tests.chaos.scene import Database

PAUSE = 0.5
SHARE = 12  # of its time it rests at least so many times as long as it asks
TICK = 0.05
LOOK = 0.25


STILL = (
    "SELECT 1 FROM pg_stat_activity WHERE usename = 'pipeline' AND state LIKE 'idle in transaction%'"
    " AND state_change < clock_timestamp() - interval '0.3 s' LIMIT 1"
)


class Auditor:
    """``samples`` audits were answered, ``found`` is what they found, ``stall`` the longest that nothing ran here.

    ``stuck``: when a transaction stood still, with whatever it had locked; its client was frozen, or cut off.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._engine = make_engine(database.url(), schema=SCHEMA, connections=1, name="chaos auditor")
        self._audit = Audit(self._engine, schema=SCHEMA)
        self._over = threading.Event()
        works = (self._ask, self._watch, self._look)
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        self.samples = 0
        self.found: list[Violation] = []
        self.stall = 0.0
        self.stuck: list[tuple[float, float]] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self.found += self._audit.violations()
                self.samples += 1
            except SQLAlchemyError:
                pass  # the server is away, or told to end its sessions
            self._over.wait(max(PAUSE, SHARE * (time.monotonic() - began)))

    def _watch(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            time.sleep(TICK)
            self.stall = max(self.stall, time.monotonic() - began - TICK)

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            now = time.time()
            with suppress(psycopg.Error):
                if self._database.ask(STILL):
                    self.stuck.append((now - LOOK - 0.3, time.time() + LOOK))

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def last(self) -> Sequence[Violation]:
        """Once more, after the end; over a fresh connection, since the last fault may have ended the old one."""
        self._engine.dispose()
        try:
            return self._audit.violations()
        finally:
            self._engine.dispose()
