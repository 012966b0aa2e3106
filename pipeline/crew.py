"""Start, watch and stop worker processes; engine room. Always spawned, never forked; orders go by standard input."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Self

from pipeline.errors import DatabaseError, PipelineError, UsageError

log = logging.getLogger("pipeline")

LAST_WORDS = 1.0  # seconds; a stage's own children may hold the line open for longer
RESTARTS = 20  # a job that kills its worker is charged for it, so this is more than one such job can use up


@dataclass(slots=True)
class _Member:
    number: int
    process: subprocess.Popen[bytes]
    words: threading.Thread  # passes on what it says


class Recruit:
    """A process that gets itself ready to be a worker while others find out whether there is work. It holds nothing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[bytes] | None = _process(root)

    def __enter__(self) -> Self:
        return self

    def enlist(self) -> "subprocess.Popen[bytes]":
        """The process, or a new one once that is taken."""
        process, self._process = self._process, None
        return process or _process(self._root)

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _process(root: Path) -> "subprocess.Popen[bytes]":
    # The C library gives each thread a heap of its own, and what one has freed no other uses: with many threads, a
    # large answer of the server counted many times.
    heaps = {"MALLOC_ARENA_MAX": "1", **os.environ}
    command = [sys.executable, "-m", "pipeline.child"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root, env=heaps)


class Crew:
    """``size`` worker processes on one site, or on all; the first is the ``recruit``, if there is one."""

    def __init__(
        self, root: Path, size: int, *, site: str | None, grace: timedelta, recruit: Recruit | None = None
    ) -> None:
        self._root = root
        self._site = site
        self._grace = grace
        self._recruit = recruit
        self._restarts = 0
        self._members = [self._start(number) for number in range(1, size + 1)]

    def _start(self, number: int) -> _Member:
        process = self._recruit.enlist() if self._recruit is not None else _process(self._root)
        # Through our own log: a line in the middle of a progress display would tear it.
        words = threading.Thread(target=_relay, args=(process.stderr,), daemon=True)
        words.start()
        orders = {"root": str(self._root), "site": self._site, "number": number}
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(orders).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once: told by watch()
        return _Member(number, process, words)

    def watch(self) -> bool:
        """Replace members that died; True when there were any, whose jobs can be taken back.

        Raises PipelineError when a member cannot work at all, or when they die again and again.
        """
        dead = [m for m in self._members if m.process.poll() is not None]
        for member in dead:
            code = member.process.returncode
            member.words.join(LAST_WORDS)  # its own come before ours about it
            if code in (2, 3):
                kind = DatabaseError if code == DatabaseError.exit_code else UsageError
                raise kind(f"worker {member.number} cannot work here (see above)")
            self._restarts += 1
            if self._restarts > RESTARTS:
                raise PipelineError(f"workers died {self._restarts} times; the last ended with {_how(code)}")
            log.warning("worker %d ended with %s; another takes its place", member.number, _how(code))
            self._members[self._members.index(member)] = self._start(member.number)
        return bool(dead)

    def stop(self) -> None:
        """Ask all to give back what they hold and end; those that do not in time are killed."""
        try:
            self._wind_down()
        except BaseException:
            # Asked to stop a second time: at once, then. What they held is taken back by the next run.
            for member in self._members:
                member.process.kill()
            raise

    def _wind_down(self) -> None:
        for member in self._members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + self._grace.total_seconds() + 10
        for member in self._members:
            try:
                member.process.wait(timeout=max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                log.warning("worker %d does not end; it is killed, its jobs are taken back later", member.number)
                member.process.kill()
                member.process.wait()
            if member.process.stdin is not None:
                member.process.stdin.close()


def _relay(stream: IO[bytes] | None) -> None:
    assert stream is not None
    with stream:
        for line in stream:
            log.warning("%s", line.decode("utf-8", "replace").rstrip())


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
