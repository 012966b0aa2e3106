"""procrastinate: five jobs at once, beyond which it gets slower; a lock for each key where keys are to take turns."""

# mypy: disable-error-code="import-not-found"

import asyncio
import logging
from typing import Any

import journal
import procrastinate

AT_ONCE = 5
logging.disable(logging.WARNING)
connector = procrastinate.PsycopgConnector(conninfo=journal.URL, min_size=2, max_size=AT_ONCE + 4)
app = procrastinate.App(connector=connector)
work: Any = app.task(name="work", pass_context=False)(journal.job)


class OnProcrastinate:
    async def prepare(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await app.open_async()

    async def enqueue(self, pairs: list[tuple[int, int]]) -> None:
        def made(key: int, seq: int) -> Any:
            lock = {"lock": f"key{key}"} if journal.KEYS else {}
            return work.configure(**lock).make_new_job(key=key, seq=seq)

        await app.job_manager.batch_defer_jobs_async([made(key, seq) for key, seq in pairs])

    async def work(self) -> None:
        await app.open_async()
        options: dict[str, Any] = {"concurrency": AT_ONCE, "fetch_job_polling_interval": 1.0}
        if journal.LEASE:
            options |= {"update_heartbeat_interval": journal.LEASE / 4, "stalled_worker_timeout": journal.LEASE}
            self.rescue = asyncio.create_task(self._give_to_others())
        await app.run_worker_async(install_signal_handlers=False, **options)

    async def _give_to_others(self) -> None:
        """As its handbook shows, though from a task of the loop: jobs of workers that have gone silent are retried."""
        while True:
            await asyncio.sleep(journal.LEASE / 4)
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=journal.LEASE):
                await app.job_manager.retry_job(job)


asyncio.run(journal.main(OnProcrastinate()))
