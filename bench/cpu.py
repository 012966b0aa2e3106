"""How much processor time a job costs, here and in the server: what is left of a figure when the machine is shared."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.ground import Ground

TICK = 1 / os.sysconf("SC_CLK_TCK")


class Meter:
    """Processor time of the server and of the sessions that the processes ``started`` lead, since it began."""

    def __init__(self, ground: Ground, started: Sequence[int]) -> None:
        self._server = int((ground.scratch.data / "postmaster.pid").read_text().split()[0])
        self._started = set(started)
        self._from: tuple[float, float] | None = None
        self._jobs = 0.0

    def look(self, finished: float) -> None:
        """Begin with the first job that is finished: what came before was the start of the processes."""
        if finished and self._from is None:
            self.begin(finished)

    def begin(self, finished: float = 0.0) -> None:
        self._from, self._jobs = self._used(), finished

    def each(self, finished: float) -> dict[str, float]:
        """Microseconds a job since it began, of the workers and of the server."""
        if self._from is None or finished <= self._jobs:
            return {}
        pairs = zip(("worker_us", "server_us"), self._used(), self._from, strict=True)
        return {name: round(1e6 * (now - before) / (finished - self._jobs)) for name, now, before in pairs}

    def _used(self) -> tuple[float, float]:
        workers = server = 0.0
        for pid, parent, session, own, reaped in _processes():
            if session in self._started:
                workers += own
            elif pid == self._server:
                server += own + reaped
            elif parent == self._server:
                server += own
        return workers, server


def _processes() -> Iterator[tuple[int, int, int, float, float]]:
    """``(pid, parent, session, seconds, seconds of children that it has reaped)``."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        yield int(folder.name), int(fields[1]), int(fields[3]), own * TICK, reaped * TICK
