"""chancy: async jobs, a queue that is polled eagerly."""

# mypy: disable-error-code="import-not-found"

import asyncio

import journal
from chancy import Chancy, Job, Queue, Worker

AT_ONCE = 100


async def work(*, key: int, seq: int) -> None:
    await journal.job(key, seq)


def made(key: int, seq: int) -> Job:
    return Job(func="on_chancy.work", kwargs={"key": key, "seq": seq})


class OnChancy:
    async def prepare(self) -> None:
        async with Chancy(journal.URL) as chancy:
            await chancy.migrate()
            queue = Queue(
                "default", concurrency=AT_ONCE, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True
            )
            await chancy.declare(queue, upsert=True)

    async def open(self) -> None:
        self.chancy = await Chancy(journal.URL).__aenter__()

    async def enqueue(self, pairs: list[tuple[int, int]]) -> None:
        if len(pairs) == 1:
            await self.chancy.push(made(*pairs[0]))
            return
        async for _ in self.chancy.push_many([made(key, seq) for key, seq in pairs]):
            pass

    async def work(self) -> None:
        async with Chancy(journal.URL) as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":  # its worker imports this file again, to find the job
    asyncio.run(journal.main(OnChancy()))
