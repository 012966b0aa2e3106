"""pgqueuer with asyncpg: batches as large as it takes well; an entrypoint a key where keys are to take turns."""

# mypy: disable-error-code="import-not-found"

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import journal
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

BATCH, BATCH_IN_ORDER = 1000, 100
POLL = timedelta(seconds=5)


def entrypoint(key: int) -> str:
    return f"key{key}" if journal.KEYS else "work"


async def driver() -> Any:
    return AsyncpgDriver(await asyncpg.connect(journal.URL))


class OnPgqueuer:
    async def prepare(self) -> None:
        await Queries(await driver()).install()

    async def open(self) -> None:
        self.queries = Queries(await driver())

    async def enqueue(self, pairs: list[tuple[int, int]]) -> None:
        names = [entrypoint(key) for key, _ in pairs]
        await self.queries.enqueue(names, [b"%d %d" % (key, seq) for key, seq in pairs], [0] * len(pairs))

    async def work(self) -> None:
        queuer = PgQueuer(await driver())

        async def run(job: Any) -> None:
            key, seq = job.payload.split()
            await journal.job(int(key), int(seq))

        for key in range(journal.KEYS or 1):
            queuer.entrypoint(entrypoint(key), concurrency_limit=1 if journal.KEYS else 0)(run)
        options: dict[str, Any] = {"heartbeat_timeout": timedelta(seconds=journal.LEASE)} if journal.LEASE else {}
        poll = timedelta(seconds=journal.LEASE / 4) if journal.LEASE else POLL
        await queuer.run(batch_size=BATCH_IN_ORDER if journal.KEYS else BATCH, dequeue_timeout=poll, **options)


asyncio.run(journal.main(OnPgqueuer()))
