"""Begin each claim where its stage runs: in a thread, on the event loop, in a process; engine room.

Whatever happens there, each claim that began comes back as one acknowledgement: a job that nobody speaks for any more
would be renewed for ever.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pipeline import verdict
from pipeline.holding import Holding, now
from pipeline.keeper import Keeper
from pipeline.loop import Loop
from pipeline.runner import Colour, Runner
from pipeline.service.acknowledging import Ack
from pipeline.threads import Threads

log = logging.getLogger("pipeline")

PATIENCE = 1.0  # seconds that cancelled tasks may take to clean up


class Executors:
    """Runs up to ``capacity`` stages at once; ``done`` gets each holding with its acknowledgement, from any thread."""

    def __init__(self, runner: Runner, root: Path, capacity: int, done: Callable[[Holding, Ack], None]) -> None:
        self._runner = runner
        self._done = done
        self._threads = Threads(capacity, "stage")
        self._beside = ThreadPoolExecutor(capacity, thread_name_prefix="ledger")  # starts none until one is asked for
        self._keeper = Keeper(root)
        self._loop: Loop | None = None

    def start(self, holding: Holding) -> None:
        """Begin; returns at once."""
        match self._runner.colour(holding.claim):
            case Colour.THREAD:
                self._threads.give(lambda: self._run(holding, self._runner.run))
            case Colour.PROCESS:
                self._threads.give(lambda: self._run(holding, lambda h: self._runner.run_apart(h, self._keeper)))
            case Colour.LOOP:
                self._loop = self._loop or Loop()
                holding.take_up()
                work = lambda: self._runner.run_on_loop(holding, self._beside)  # noqa: E731
                self._loop.start(holding, work, lambda future: self._came(holding, future))

    def _run(self, holding: Holding, run: Callable[[Holding], Ack]) -> None:
        if not holding.ours():  # it lay here too long: whoever has it now is not to be met by its twin
            self._done(holding, verdict.stopped(holding.claim, self._runner.stage(holding.claim)))
            return
        if not holding.take_up():
            return
        began = now()
        holding.waited = began - holding.taken
        try:
            ack = run(holding)
        except BaseException as error:
            ack = self._failed(holding, error)
        holding.took = now() - began
        self._done(holding, ack)

    def _came(self, holding: Holding, future: "Future[Ack]") -> None:
        if future.cancelled():
            stage = self._runner.stage(holding.claim)
            ack = verdict.ended(holding, stage) or verdict.stopped(holding.claim, stage)
        elif (error := future.exception()) is not None:
            ack = self._failed(holding, error)
        else:
            ack = future.result()
        self._done(holding, ack)

    def _failed(self, holding: Holding, error: BaseException) -> Ack:
        """Something around the stage failed: the database was away, say. Tried again like the stage's own errors."""
        return verdict.raised(holding.claim, self._runner.stage(holding.claim), error)

    def cut(self) -> None:
        """End what can be ended, of those that are told to stop: tasks are cancelled, processes killed."""
        self._keeper.cut()
        if self._loop is not None:
            self._loop.cut(PATIENCE)

    def close(self) -> None:
        """Leave nothing behind but threads that do not heed ``cancelled()``; the process ends without them."""
        self._threads.close()
        self._beside.shutdown(wait=False, cancel_futures=True)
        self._keeper.close()
        if self._loop is not None:
            self._loop.close()
