"""The stages of a chaos run, and the log of what they did: written outside the database, by nobody but them.

What becomes of a run is a throw of dice by seed, topic, stage and fence, so that each new try is a new throw. Once the
file ``calm`` stands in the project, all ends well at once.
"""

import json
import os
import signal
import threading
import time
import zlib
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pipeline import (
    Backoff,
    Done,
    Draft,
    Fail,
    Finding,
    Hold,
    Outcome,
    Reject,
    Repair,
    Retry,
    Snooze,
    Stage,
    StageContext,
    TopicView,
)
from pipeline.content.files import FILES, FilesTarget, file_key
from pipeline.holding import now
from pipeline.service.planning import StageSpec

LEASE = timedelta(seconds=2)
ROOT = "CHAOS_ROOT"  # variables of a worker's environment
SEED = "CHAOS_SEED"
EFFECTS = "effects"
CALM = "calm"
WIDTH = 2

# Out of ten thousand runs of a stage; a topic has a few.
RETRIES, RAISES, FAILS, REPAIRS, HOLDS, SNOOZES, KILLS = 800, 200, 100, 50, 20, 20, 5
SHARES = (RETRIES, RAISES, FAILS, REPAIRS, HOLDS, SNOOZES, KILLS)
REJECTS = 300
SLOW, LONG = 1000, 30  # of a few hundredths of a second; of a few leases


class Log:
    """Lines of JSON, each appended whole, one file for each process."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(folder / f"{os.getpid()}-{time.monotonic_ns()}.jsonl", flags, 0o644)

    def write(self, **what: Any) -> None:
        os.write(self._file, json.dumps(what, separators=(",", ":")).encode() + b"\n")


@cache
def _root() -> Path:
    return Path(os.environ[ROOT])


@cache
def _log() -> Log:
    return Log(_root() / EFFECTS)


_first = threading.Lock()


def log() -> Log:
    with _first:
        return _log()


def throw(what: str) -> int:
    """0 to 9999, the same for the same words and seed."""
    return zlib.crc32(f"{os.environ[SEED]}/{what}".encode()) % 10_000


class Logged(Stage):
    """Every run begins and ends with a line; a process that is killed leaves a beginning without an end."""

    retry = Backoff(attempts=6, first=timedelta(milliseconds=20), cap=timedelta(milliseconds=200))
    lease = LEASE

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        name = type(self).__name__.lower()
        log().write(
            e="start", fence=ctx.fence, topic=topic.id, slug=topic.slug, stage=name, number=topic.number,
            attempt=ctx.attempt, pid=os.getpid(), boot=now(), wall=time.time(),
            draft=ctx.draft.hash if ctx.draft else None,
        )  # fmt: skip
        outcome: Outcome | None = None
        try:
            outcome = self._decide(name, topic, ctx)
        finally:
            log().write(e="end", fence=ctx.fence, said=type(outcome).__name__, boot=now(), wall=time.time())
        return outcome

    def _decide(self, name: str, topic: TopicView, ctx: StageContext) -> Outcome:
        if (_root() / CALM).exists():
            return self.good(topic, ctx)
        here = f"{topic.slug}/{name}/{ctx.fence}"
        self._take_time(here, ctx)
        kind = throw(f"{here}/outcome")
        for share, what in zip(SHARES, range(len(SHARES)), strict=True):
            if kind < share:
                return self._bad(what, ctx)
            kind -= share
        return self.good(topic, ctx)

    def _take_time(self, here: str, ctx: StageContext) -> None:
        kind = throw(f"{here}/time")
        if kind < LONG:
            # Half of these never ask whether their result is still wanted.
            until = time.monotonic() + LEASE.total_seconds() * (0.5 + throw(f"{here}/long") / 5000)
            careless = throw(f"{here}/careless") < 5000
            while time.monotonic() < until and (careless or not ctx.cancelled()):
                time.sleep(0.05)
        elif kind < LONG + SLOW:
            time.sleep(0.02 + throw(f"{here}/slow") / 80_000)

    def _bad(self, what: int, ctx: StageContext) -> Outcome:
        match what:
            case 0:
                return Retry("once more", timedelta(milliseconds=20))
            case 1:
                raise RuntimeError("no luck")
            case 2:
                return Fail("it cannot be")
            case 3:
                return Repair("the row is broken")
            case 4:
                return Hold("look at it")
            case 5:
                return Snooze(timedelta(seconds=1))
            case _:
                log().write(e="suicide", fence=ctx.fence, pid=os.getpid(), wall=time.time())
                os.kill(os.getpid(), signal.SIGKILL)
                raise AssertionError("unreachable")

    def good(self, topic: TopicView, ctx: StageContext) -> Outcome:
        return Done()


class Generate(Logged):
    def good(self, topic: TopicView, ctx: StageContext) -> Outcome:
        return Done(draft=Draft(topic.title, "", f"{topic.slug}, pass {topic.number}, round {topic.round}\n"))


class Validate(Logged):
    def good(self, topic: TopicView, ctx: StageContext) -> Outcome:
        if throw(f"{topic.slug}/{topic.number}/{topic.round}/reject") < REJECTS and not (_root() / CALM).exists():
            return Reject([Finding("words", "more words")])
        return Done()


class Check(Logged):
    width = WIDTH


class Publish(Logged):
    width = 1
    target = FILES

    def good(self, topic: TopicView, ctx: StageContext) -> Outcome:
        assert ctx.draft is not None
        page = FilesTarget(ctx.site.output).page(file_key(topic.path), ctx.draft.body.encode(), cancelled=ctx.cancelled)

        def act() -> str:
            tag = page.act()
            log().write(e="act", fence=ctx.fence, key=page.key, hash=page.hash, boot=now(), wall=time.time())
            return tag

        ctx.ledger.publish(FILES, page.key, page.hash, page.look, act, topic_id=topic.id, revision=ctx.revision)
        return Done()


PIPELINE = (Generate, Validate, Check, Publish)
SPECS = tuple(StageSpec(stage.__name__.lower(), stage.width, stage.retry.attempts) for stage in PIPELINE)
STRICT = "publish"
