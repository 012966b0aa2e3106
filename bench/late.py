"""Late writes: a worker is stopped in the middle of a job for longer than its lease; another takes the job up; then the
first goes on and says that it is done. Is that taken for the truth, while the other is still at work?

Counted by the record: jobs that are finished before the second worker has let its run end.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.ground import Ground
from bench.measure import Ratio, Size
from bench.ours import FINISHED, asking, number, project, topics
from bench.peer import peer

PEERS = ("pgqueuer", "procrastinate", "dbos")
LEASE = 2.0
PATIENCE = 30.0
SETTLED = 1.5  # seconds after which what was said has been written, or has not

HOLDING = f"""
import os
import time
from datetime import timedelta
from pathlib import Path

from pipeline import Done, Stage

HOLD = Path(os.environ.get("BENCH_HOLD", ""))


class Work(Stage):
    lease = timedelta(seconds={LEASE})

    def run(self, topic, ctx):
        (HOLD / f"began.{{os.getpid()}}").touch()
        while not (HOLD / f"go.{{os.getpid()}}").exists():
            time.sleep(0.02)
        (HOLD / f"ended.{{os.getpid()}}").touch()
        return Done()


PIPELINE = (Work,)
"""

Worker = AbstractContextManager["subprocess.Popen[bytes]"]


@dataclass(frozen=True, slots=True)
class Side:
    """One job that is planned, how to start a worker, and how many jobs the record calls finished."""

    worker: Callable[[], Worker]
    finished: Callable[[], float]
    hold: Path


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    with ThreadPoolExecutor() as pool:  # they mostly wait
        asked = {name: pool.submit(_late, ground, name) for name in ("ours", *PEERS)}
    told: dict[str, object] = {}
    for name, answer in asked.items():
        try:
            told[name] = answer.result()
        except (RuntimeError, OSError) as error:
            if name == "ours":
                raise
            told[name] = f"not measured: {error}"
    return [Ratio("late writes accepted", float(str(told["ours"])), bar=0, aim=0, lower=True, detail=told)]


def _late(ground: Ground, name: str) -> int:
    with _ours(ground) if name == "ours" else _theirs(ground, name) as side, side.worker() as first:
        mine = _began(side.hold, set(), name)
        os.killpg(first.pid, signal.SIGSTOP)
        try:
            with side.worker():
                other = _began(side.hold, {mine}, name)
                os.killpg(first.pid, signal.SIGCONT)
                (side.hold / f"go.{mine}").touch()
                _until((side.hold / f"ended.{mine}").exists, f"the first run of {name} ends")
                time.sleep(SETTLED)
                accepted = side.finished()
                (side.hold / f"go.{other}").touch()
                _until(lambda: side.finished() > 0, f"the job of {name} is finished")
                return int(accepted)
        finally:
            os.killpg(first.pid, signal.SIGCONT)


@contextmanager
def _ours(ground: Ground) -> Iterator[Side]:
    with (
        project(ground, HOLDING) as mine,
        tempfile.TemporaryDirectory(dir=ground.folder) as folder,
        ground.database() as url,
        asking(url) as connection,
    ):
        mine.plan(url, topics([(0, 0)]))
        yield Side(
            lambda: mine.workers(url, 1, BENCH_HOLD=folder, PIPELINE_REAP="0.5"),
            lambda: number(connection, FINISHED),
            Path(folder),
        )


@contextmanager
def _theirs(ground: Ground, name: str) -> Iterator[Side]:
    with (
        tempfile.TemporaryDirectory(dir=ground.folder) as folder,
        peer(ground, name, PEER_HOLD=folder, PEER_LEASE=str(LEASE)) as other,
    ):
        other.enqueue([(0, 0)])

        @contextmanager
        def worker() -> Iterator["subprocess.Popen[bytes]"]:
            with other.workers(1) as started:
                yield started[0]

        yield Side(worker, other.finished, Path(folder))


def _began(hold: Path, known: set[int], name: str) -> int:
    """The process that has begun to run the job, and is not a known one."""

    def fresh() -> list[int]:
        return [pid for file in hold.glob("began.*") if (pid := int(file.suffix[1:])) not in known]

    _until(lambda: bool(fresh()), f"a run of {name} begins")
    return fresh()[0]


def _until(fact: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not fact():
        if time.monotonic() > end:
            raise RuntimeError(f"it did not come to this within {PATIENCE:g} s: {what}")
        time.sleep(0.02)
