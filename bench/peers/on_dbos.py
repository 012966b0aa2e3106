"""dbos: async workflows on one queue that is polled often; a partition for each key where keys are to take turns."""

# mypy: disable-error-code="import-not-found"

import asyncio
import os
from typing import Any

import journal
import sqlalchemy
from dbos import DBOS, DBOSClient

AT_ONCE = 100
POLL = 0.05
NAME = "bench"
VERSION = "1"
# What an executor left is done again by the next of its name; that is how a job comes to another.
EXECUTOR = "one" if journal.LEASE else f"executor-{os.getpid()}"
URL = journal.URL.replace("postgresql://", "postgresql+psycopg://")

DBOS.workflow(name="work")(journal.job)


def launch() -> None:
    DBOS(
        config={
            "name": NAME, "system_database_url": URL, "log_level": "ERROR", "run_admin_server": False,
            "enable_otlp": False, "application_version": VERSION, "sys_db_pool_size": 20, "executor_id": EXECUTOR,
        }
    )  # fmt: skip
    DBOS.launch()
    own: dict[str, Any] = {"partition_concurrency": 1} if journal.KEYS else {}
    DBOS.register_queue("queue", worker_concurrency=AT_ONCE, polling_interval_sec=POLL, **own)


class OnDbos:
    async def prepare(self) -> None:
        await asyncio.to_thread(launch)

    async def open(self) -> None:
        self.client = DBOSClient(system_database_url=URL)
        self.engine = sqlalchemy.create_engine(URL)

    async def enqueue(self, pairs: list[tuple[int, int]]) -> None:
        base = {"queue_name": "queue", "workflow_name": "work", "app_version": VERSION, "application_name": NAME}
        if journal.KEYS or len(pairs) == 1:  # its order is that of the times, of which one transaction has one
            for key, seq in pairs:
                self.client.enqueue(self._at(base, key), key, seq)
            return
        with self.engine.begin() as connection:
            for key, seq in pairs:
                self.client.enqueue_in_transaction(connection, self._at(base, key), key, seq)

    def _at(self, base: dict[str, str], key: int) -> Any:
        return base | ({"queue_partition_key": f"key{key}"} if journal.KEYS else {})

    async def work(self) -> None:
        await asyncio.to_thread(launch)
        await asyncio.Event().wait()


asyncio.run(journal.main(OnDbos()))
