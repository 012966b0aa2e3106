"""awa: a core in Rust with a storage of its own."""

# mypy: disable-error-code="import-not-found"

import asyncio
import dataclasses
from typing import Any

import journal
from awa import AsyncClient

AT_ONCE = 400
POLL_MS = 50


@dataclasses.dataclass
class Work:
    key: int
    seq: int


def client() -> Any:
    return AsyncClient(journal.URL, max_connections=20)


class OnAwa:
    async def prepare(self) -> None:
        made = client()
        await made.migrate()
        await made.install_queue_storage()

    async def open(self) -> None:
        self.client = client()

    async def enqueue(self, pairs: list[tuple[int, int]]) -> None:
        if len(pairs) == 1:
            await self.client.insert(Work(*pairs[0]), queue="default")
        else:
            await self.client.enqueue_many_copy([Work(key, seq) for key, seq in pairs], queue="default")

    async def work(self) -> None:
        made = client()

        async def run(job: Any) -> None:
            await journal.job(job.args.key, job.args.seq)

        made.task(Work, queue="default")(run)
        await made.start([("default", AT_ONCE)], poll_interval_ms=POLL_MS)
        await asyncio.Event().wait()


asyncio.run(journal.main(OnAwa()))
