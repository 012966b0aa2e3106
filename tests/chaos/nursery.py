"""Makes worker processes quickly: ``python -m tests.chaos.nursery`` imports everything once, and forks.

It has no thread and no connection when it does, so a child is what ``python -m pipeline.child`` is, without the second
of processor time that its imports take. An order is a line of JSON in; births and deaths are lines out.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pipeline import child
from tests.chaos import work
from tests.processes.project import DEADLINE, ROOT as HOUSE

__all__ = ["Born", "Nursery", "work"]

LOOK = 0.02


class Born:
    """A process that the nursery made."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._over = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def ended(self, code: int) -> None:
        self.returncode = code
        self._over.set()

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> bool:
        """Whether it ended in time."""
        return self._over.wait(timeout)


class Nursery:
    """The process that makes them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"], cwd=HOUSE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self._turn = threading.Lock()
        self._told = threading.Condition()
        self._born: dict[int, Born] = {}  # by order
        self._alive: dict[int, Born] = {}  # by process id
        self._orders = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._told:
                if "born" in told:
                    self._born[told["order"]] = self._alive[told["born"]] = Born(told["born"])
                else:
                    self._alive.pop(told["ended"]).ended(told["code"])
                self._told.notify_all()

    def make(self, root: Path, log: Path, orders: dict[str, Any], env: dict[str, str]) -> Born:
        """A worker in ``root`` with these orders on its standard input."""
        assert self._process.stdin is not None
        with self._turn:
            self._orders += 1
            order = self._orders
            said = {"order": order, "root": str(root), "log": str(log), "orders": orders, "env": env}
            self._process.stdin.write(json.dumps(said) + "\n")
            self._process.stdin.flush()
        with self._told:
            assert self._told.wait_for(lambda: order in self._born, timeout=DEADLINE), "no worker was made"
            return self._born[order]

    def close(self) -> None:
        """It goes when all of its children have gone; those that are left see their input end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=DEADLINE)


def _be_worker(order: dict[str, Any]) -> int:
    reading, writing = os.pipe()
    os.write(writing, json.dumps(order["orders"]).encode() + b"\n")
    os.dup2(reading, 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    random.seed()
    os.environ.update(order["env"])
    os.chdir(order["root"])
    return child.main()


def main() -> None:
    alive = 0
    buffer = b""
    open_ = True
    while open_ or alive:
        if open_ and select.select([0], [], [], LOOK)[0]:
            data = os.read(0, 65536)
            open_ = bool(data)
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        code = _be_worker(order)
                    finally:
                        os._exit(code)
                alive += 1
                os.write(1, json.dumps({"order": order["order"], "born": pid}).encode() + b"\n")
        while alive:
            pid, status = os.waitpid(-1, os.WNOHANG if open_ else 0)
            if pid == 0:
                break
            alive -= 1
            os.write(1, json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


if __name__ == "__main__":
    main()
