"""What every peer's script shares: when each job began and ended, and the verbs of the command line.

Runs inside a peer's own environment, so it imports nothing of ours. Variables:

PEER_URL    the database
PEER_LOG    the file that gets a line ``key seq began ended process`` for each job, if any
PEER_KEYS   how many keys there are, when jobs of one key must run one at a time
PEER_TASK   the seconds that a job takes
PEER_HOLD   a folder where a process that has begun a job says so by a file, and waits for another file to end it
PEER_LEASE  after how many seconds of silence a job may be given to somebody else
"""

# mypy: disable-error-code="import-not-found"

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol

URL = os.environ["PEER_URL"]
KEYS = int(os.environ.get("PEER_KEYS", "0"))
LEASE = float(os.environ.get("PEER_LEASE", "0"))
TASK = float(os.environ.get("PEER_TASK", "0"))
HOLD = os.environ.get("PEER_HOLD", "")
AT_ONCE = 1000  # jobs in one call of a bulk enqueue

_LOG = os.environ.get("PEER_LOG", "")
_file = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if _LOG else -1

Pairs = list[tuple[int, int]]


class Peer(Protocol):
    """What a peer's script has to say."""

    def prepare(self) -> Awaitable[None]:
        """Make the tables."""
        ...

    def open(self) -> Awaitable[None]:
        """Get ready to enqueue."""
        ...

    def enqueue(self, pairs: Pairs) -> Awaitable[None]:
        """Enqueue one job for each ``(key, seq)``, in this order."""
        ...

    def work(self) -> Awaitable[None]:
        """Work until killed."""
        ...


async def job(key: int, seq: int) -> None:
    """The job."""
    began = time.time()
    if HOLD:
        Path(HOLD, f"began.{os.getpid()}").touch()
        while not Path(HOLD, f"go.{os.getpid()}").exists():
            await asyncio.sleep(0.02)
        Path(HOLD, f"ended.{os.getpid()}").touch()
    if TASK:
        await asyncio.sleep(TASK)
    if _LOG:
        os.write(_file, b"%d %d %.6f %.6f %d\n" % (key, seq, began, time.time(), os.getpid()))


async def main(peer: Peer) -> None:
    """``prepare``; ``enqueue`` what stands on standard input; ``work``; or enqueue ``singly``: a job for each line of
    standard input, answering with the time before and after."""
    verb = sys.argv[1]
    if verb == "prepare":
        await peer.prepare()
    elif verb == "enqueue":
        await peer.open()
        order: Any = json.load(sys.stdin)
        for start in range(0, len(order), AT_ONCE):
            await peer.enqueue(order[start : start + AT_ONCE])
    elif verb == "singly":
        await peer.open()
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            key, seq = map(int, line.split())
            before = time.time()
            await peer.enqueue([(key, seq)])
            print(before, time.time(), flush=True)
    else:
        await peer.work()
    sys.stdout.flush()
    os._exit(0)
