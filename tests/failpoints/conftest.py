"""The process that makes victims, one for the whole run."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failpoints.points import Point
from tests.processes.project import DEADLINE, ROOT


class Maker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.failpoints.child"], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._heard: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(line)

    def run(self, root: Path, url: str, point: Point) -> int:
        """How a process ended that was to be killed at the point: its exit code, or the signal's number below 0."""
        assert self._process.stdin is not None
        order = {"root": str(root), "url": url, "what": point.what, "place": point.place}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        pid = int(json.loads(self._heard.get(timeout=DEADLINE))["pid"])
        try:
            return int(json.loads(self._heard.get(timeout=DEADLINE))["status"])
        except queue.Empty:
            os.kill(pid, signal.SIGTERM)  # not the signal that it was to die by
            self._heard.get(timeout=DEADLINE)
            raise AssertionError(f"it never came to {point.id}: {(root / 'log').read_text()}") from None

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=DEADLINE)


@pytest.fixture(scope="session")
def maker() -> Iterator[Maker]:
    maker = Maker()
    yield maker
    maker.end()
