"""oban: one queue with a high limit."""

# mypy: disable-error-code="import-not-found"

import asyncio
from typing import Any

import journal
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

LIMIT = 500


@worker(queue="default")
class Work:
    async def process(self, job: Any) -> None:
        await journal.job(job.args["key"], job.args["seq"])


async def pool() -> Any:
    made = AsyncConnectionPool(journal.URL, min_size=4, max_size=10, open=False)
    await made.open()
    return made


class OnOban:
    async def prepare(self) -> None:
        connections = await pool()
        Oban(pool=connections)
        await install(connections)

    async def open(self) -> None:
        self.oban = Oban(pool=await pool())

    async def enqueue(self, pairs: list[tuple[int, int]]) -> None:
        made: Any = Work
        if len(pairs) == 1:
            await self.oban.enqueue(made.new({"key": pairs[0][0], "seq": pairs[0][1]}))
        else:
            await self.oban.enqueue_many([made.new({"key": key, "seq": seq}) for key, seq in pairs])

    async def work(self) -> None:
        await Oban(pool=await pool(), queues={"default": LIMIT}).start()
        await asyncio.Event().wait()


asyncio.run(journal.main(OnOban()))
