"""One process for stages, and the pipes to it; engine room. It never blocks for longer than a look takes.

It stands in a session of its own: a Ctrl-C at a terminal does not reach it, and what it starts is killed with it.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pipeline import wire
from pipeline.wire import Message

LOOK = 0.05  # seconds between two looks at the reservation
CHUNK = 1 << 18


class Cut(Exception):
    """The process must be killed: nobody wants its result any more."""


class Gone(Exception):
    """The process ended, or speaks another language."""


class Process:
    """One ``python -m pipeline.apart``. ``check`` is called between looks, and may raise to give up waiting."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.apart"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, bufsize=0, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._read = bytearray()
        self._seen = 0  # bytes of it that hold no end of a line
        self._lock = threading.Lock()
        self.root = root
        self.ready = False

    def runs(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Message, check: Callable[[], None]) -> None:
        data = memoryview(wire.line(message))
        poll = select.poll()
        poll.register(self._in, select.POLLOUT)
        while data:
            check()
            if not poll.poll(LOOK * 1000):
                continue
            try:
                data = data[os.write(self._in, data[:CHUNK]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Gone from error

    def receive(self, check: Callable[[], None]) -> Message:
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        while (end := self._read.find(b"\n", self._seen)) < 0:
            self._seen = len(self._read)
            if self._seen > wire.MAX_LINE:
                raise Gone(f"answered with more than {wire.MAX_LINE} bytes")
            check()
            if not poll.poll(LOOK * 1000):
                continue
            try:
                data = os.read(self._out, CHUNK)
            except BlockingIOError:
                continue
            if not data:
                raise Gone
            self._read += data
        line, self._seen = bytes(self._read[:end]), 0
        del self._read[: end + 1]
        try:
            message = json.loads(line)
            message["say"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Gone("said what is no answer") from error
        return dict(message)

    def kill(self) -> str:
        """End it, and all that it started; returns how it had ended."""
        with self._lock:
            if self._process.returncode is None:
                if self._at_end():
                    self._await_end()
                # Before it is collected: until then its number cannot be another's.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=5)
        code = self._process.returncode
        if code is None:
            return "cannot be killed"
        return f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _at_end(self) -> bool:
        """Whether it has closed its answers: it is ending by itself, and how it does is worth knowing."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def _await_end(self) -> None:
        until = time.monotonic() + 1
        while hasattr(os, "waitid") and time.monotonic() < until:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return
            time.sleep(0.005)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
