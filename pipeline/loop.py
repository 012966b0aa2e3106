"""The event loop of a worker, in a thread of its own, for async stages; engine room.

A task is told by cancellation what a thread can only be told by ``cancelled()``: its result is no longer wanted. One
that blocks instead of awaiting holds up every other async stage of this worker; nothing can be done about it from here.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any

from pipeline.holding import Holding
from pipeline.service.acknowledging import Ack

log = logging.getLogger("pipeline")

LOOK = 0.05  # seconds between two looks at the reservations


class Loop:
    """Runs coroutines for holdings; each is cancelled once when its result is no longer wanted."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[asyncio.Task[Ack], Holding] = {}
        self._told: set[asyncio.Task[Ack]] = set()
        self._watching = False
        self._open = True
        self._thread = threading.Thread(target=self._run, name="stages' event loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while self._open:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised in a task that a stage made itself: it ends that one, not the loop.
                log.error("a task of a stage raised %s", type(error).__name__)
        self._loop.close()

    def start(
        self, holding: Holding, work: Callable[[], Coroutine[Any, Any, Ack]], done: Callable[[Future[Ack]], None]
    ) -> None:
        """Run ``work`` as a task; ``done`` gets its result, on the loop."""

        async def whole() -> Ack:
            task = asyncio.current_task()
            assert task is not None
            self._tasks[task] = holding
            if not self._watching:
                self._watch()
            try:
                return await work()
            finally:
                self._told.discard(task)
                del self._tasks[task]

        asyncio.run_coroutine_threadsafe(whole(), self._loop).add_done_callback(done)

    def _watch(self) -> None:
        """Look again and again, as long as anything runs."""
        self._look()
        self._watching = bool(self._tasks)
        if self._watching:
            self._loop.call_later(LOOK, self._watch)

    def _look(self) -> None:
        """Cancel what nobody wants any more."""
        for task, holding in self._tasks.items():
            if task not in self._told and holding.cancelled():
                self._told.add(task)
                task.cancel()

    def cut(self, patience: float) -> None:
        """Cancel all tasks whose holdings are told to stop, and give them a moment to end."""
        over: Future[None] = Future()

        def look() -> None:
            self._look()
            left = list(self._tasks)
            if not left:
                over.set_result(None)
                return
            ending = asyncio.ensure_future(asyncio.wait(left))
            ending.add_done_callback(lambda _: over.set_result(None))

        self._loop.call_soon_threadsafe(look)
        wait([over], timeout=patience)  # a stage that blocks the loop is not waited for

    def close(self) -> None:
        self._open = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1)
