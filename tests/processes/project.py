"""A small project in a folder of its own, and workers as real processes on it.

Stages and tests tell each other by files ("signs"); a test waits for facts, files or rows, each with a deadline.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import TypeVar

from tests.warm import Process

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
DEADLINE = 20.0
PAUSE = 0.01  # between two looks

HEAD = '''
"""Stages of a test."""

import os
import time
from datetime import timedelta
from pathlib import Path

from pipeline import Backoff, Done, Draft, Fail, Finding, Found, Hold, Reject, Repair, Retry, Snooze, Stage

SIGNS = Path(__file__).parents[1] / "signs"
PID = os.getpid()
NOW = Backoff(attempts=5, first=timedelta(0), cap=timedelta(0))


def sign(name):
    (SIGNS / name).touch()


def signed(name, ctx=None):
    """Wait for a sign of the test; False when the result is no longer wanted."""
    until = time.monotonic() + 60
    while not (SIGNS / name).exists():
        if ctx is not None and ctx.cancelled():
            return False
        if time.monotonic() > until:
            raise TimeoutError(name)
        time.sleep(0.003)
    return True


def draft(topic, body="words"):
    return Draft(f"Title of {topic.slug}", f"About {topic.slug}", body)
'''


def until(fact: Callable[[], T], what: str, deadline: float = DEADLINE) -> T:
    """The fact once it holds; AssertionError when it does not in time."""
    end = time.monotonic() + deadline
    while not (found := fact()):
        assert time.monotonic() < end, f"it never came to this: {what}"
        time.sleep(PAUSE)
    return found


class WorkerProcess:
    """One ``python -m pipeline.child``."""

    def __init__(self, root: Path, number: int, env: Mapping[str, str]) -> None:
        self._log = root / f"worker-{number}.log"
        with self._log.open("wb") as log:
            streams = {"stdin": subprocess.PIPE, "stderr": log.fileno()}
            self.process = Process("pipeline.child", cwd=root, env=env, **streams)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"root": str(root), "site": None, "number": number}) + "\n")
        self.process.stdin.flush()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(timeout=DEADLINE)

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.ends()

    def said(self, text: str) -> bool:
        return text in self.log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


class Project:
    """A folder with stages and sites."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self._url = url
        self._workers: list[WorkerProcess] = []
        (root / "signs").mkdir()
        (root / "stages").mkdir()

    def site(self, slug: str = "acme") -> None:
        folder = self.root / "sites" / slug
        folder.mkdir(parents=True)
        folder.joinpath("site.toml").write_text(f'name = "{slug}"\nbase_url = "https://{slug}.example.com"\n')

    def stages(self, body: str) -> None:
        self.root.joinpath("stages/__init__.py").write_text(HEAD + "\n\n" + dedent(body))

    def env(self, **settings: str) -> dict[str, str]:
        """The environment of a process of this project."""
        quick = {"POLL": "PT0.1S", "REAP": "PT0.2S", "GRACE": "PT20S", "CONCURRENCY": "4"}
        mine = {f"PIPELINE_{key}": value for key, value in {**quick, **settings}.items()}
        own = {"PIPELINE_DATABASE_URL": self._url, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **mine, **own}

    def worker(self, **settings: str) -> WorkerProcess:
        worker = WorkerProcess(self.root, len(self._workers) + 1, self.env(**settings))
        self._workers.append(worker)
        return worker

    def sign(self, name: str) -> None:
        (self.root / "signs" / name).touch()

    def signs(self, prefix: str = "") -> list[str]:
        """The signs that are there and begin with ``prefix``, without it."""
        found = sorted(p.name for p in (self.root / "signs").iterdir())
        return [name.removeprefix(prefix) for name in found if name.startswith(prefix)]

    def until_signs(self, prefix: str, count: int) -> list[str]:
        what = f"{count} signs {prefix!r}"
        return until(lambda: found if len(found := self.signs(prefix)) >= count else [], what)

    def end(self) -> None:
        """Kill what is left of our own workers."""
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.send(signal.SIGKILL)
                worker.process.wait()
            if worker.process.stdin is not None:
                worker.process.stdin.close()
