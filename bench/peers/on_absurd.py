"""absurd: async tasks, polled often; its Python kit has no bulk spawn."""

# mypy: disable-error-code="import-not-found"

import asyncio
import os
from typing import Any

import absurdctl
import journal
import psycopg
from absurd_sdk import AsyncAbsurd

AT_ONCE = 100
POLL = 0.05


class OnAbsurd:
    async def prepare(self) -> None:
        async with await psycopg.AsyncConnection.connect(journal.URL, autocommit=True) as connection:
            await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        await AsyncAbsurd(journal.URL, queue_name="default").create_queue("default")

    async def open(self) -> None:
        self.absurd = AsyncAbsurd(journal.URL, queue_name="default")

        async def run(params: Any, context: Any) -> None:
            await journal.job(params["key"], params["seq"])

        self.absurd.register_task("work")(run)

    async def enqueue(self, pairs: list[tuple[int, int]]) -> None:
        for key, seq in pairs:
            await self.absurd.spawn("work", {"key": key, "seq": seq})

    async def work(self) -> None:
        await self.open()
        await self.absurd.start_worker(
            worker_id=f"worker-{os.getpid()}", concurrency=AT_ONCE, batch_size=AT_ONCE, poll_interval=POLL
        )


asyncio.run(journal.main(OnAbsurd()))
