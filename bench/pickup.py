"""Pickup: from the call that plans one job to its start, by workers that have nothing else to do; and the hand-over
inside a strict lane, from the end of one run to the start of the next.

Ours is planned by ``pipeline.plan`` in a transaction of the asker's, whose commit belongs to the time.

The workers of all stand by at the same time and are asked in turns, with pauses of uneven length in between, so that
each has been idle for a while and no poll is met at the same moment of its round again and again.
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from statistics import median

import psycopg

import pipeline
from bench.ground import Ground
from bench.install import RELEASES
from bench.measure import Ratio, Size
from bench.order import STRICT
from bench.ours import SITE, Project, drain, plain, project, topics
from bench.peer import peer
from bench.runs import kept, read

PEERS = {Size.QUICK: ("pgqueuer", "procrastinate"), Size.FULL: ("pgqueuer", "procrastinate", "oban")}
SAMPLES = {Size.QUICK: 30, Size.FULL: 200}
CHAIN = {Size.QUICK: 100, Size.FULL: 400}
WARM = 12  # first ones that do not count: until drivers and server have prepared what is said again and again
LANES = 3
PATIENCE = 20.0  # seconds to wait for one job

Ask = Callable[[int], tuple[float, float]]
"""Plans job ``n``; answers when it was asked to, and when it had done so."""

FREE = STRICT.replace("width = 1", "width = None")


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    waits, waits_after = _waits(ground, size)
    others = [name for name in waits if name != "ours"]
    rows = []
    for name, at in (("p50", 0.5), ("p99", 0.99)):
        best = min(others, key=lambda other: _quantile(waits[other], at))
        found = _quantile(waits["ours"], at) / _quantile(waits[best], at)
        detail = {
            "best": best,
            "samples": SAMPLES[size],
            "asked_to_started_ms": {who: round(_quantile(times, at), 2) for who, times in waits.items()},
            "done_asking_to_started_ms": {who: round(_quantile(times, at), 2) for who, times in waits_after.items()},
        }
        rows.append(Ratio(f"idle pickup, {name}, against {best}", found, bar=1.0, aim=0.7, lower=True, detail=detail))
    between = _hand_over(ground, CHAIN[size])
    detail = {"p99_ms": round(_quantile(between, 0.99), 2), "hand_overs": len(between)}
    rows.append(Ratio("hand-over in a strict lane, ms", median(between), bar=20, aim=6, lower=True, detail=detail))
    return rows


def _waits(ground: Ground, size: Size) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds to the start by who was asked: from when it was asked, and from when it had been done."""
    with ExitStack() as open_:
        asks: dict[str, Ask] = {}
        logs: dict[str, Path] = {}
        mine = open_.enter_context(project(ground, FREE))
        asks["ours"], logs["ours"] = _ours(ground, mine, open_), mine.root / "runs.log"
        for name in PEERS[size]:
            log = ground.folder / f"pickup-{name}.log"
            log.unlink(missing_ok=True)
            try:
                asks[name] = _theirs(ground, name, log, open_)
            except RuntimeError:
                if RELEASES[name].quick:
                    raise
                continue  # one that cannot be installed here
            logs[name] = log
        waits: dict[str, list[float]] = {name: [] for name in asks}
        after: dict[str, list[float]] = {name: [] for name in asks}
        for n in range(WARM + SAMPLES[size]):
            for name, ask in asks.items():
                asked, done = ask(n)
                began = _began(logs[name], n, name)
                if n >= WARM:
                    waits[name].append((began - asked) * 1000)
                    after[name].append((began - done) * 1000)
                time.sleep(0.02 + n * 7919 % 97 / 1000)
        return waits, after


def _ours(ground: Ground, mine: Project, open_: ExitStack) -> Ask:
    """By an application that plans in a transaction of its own, over a driver's connection, as the peers' askers do."""
    url = open_.enter_context(ground.database())
    mine.plan(url, [])
    open_.enter_context(mine.workers(url, 1))
    connection = open_.enter_context(psycopg.connect(plain(url)))

    def ask(n: int) -> tuple[float, float]:
        given = [pipeline.Topic(f"lane-{n % LANES}", f"asked-{n}", f"Asked {n}", "page", {"key": n, "seq": 0})]
        asked = time.time()
        pipeline.plan(connection, SITE, given, wake=True)
        connection.commit()
        return asked, time.time()

    return ask


def _theirs(ground: Ground, name: str, log: Path, open_: ExitStack) -> Ask:
    other = open_.enter_context(peer(ground, name, PEER_LOG=str(log)))
    open_.enter_context(other.workers(1))
    asker = open_.enter_context(other.asker())

    def ask(n: int) -> tuple[float, float]:
        return _answer(asker, f"{n} 0")

    return ask


def _answer(asker: "subprocess.Popen[str]", line: str) -> tuple[float, float]:
    assert asker.stdin is not None
    assert asker.stdout is not None
    print(line, file=asker.stdin, flush=True)
    before, after = asker.stdout.readline().split()
    return float(before), float(after)


def _began(log: Path, n: int, who: str) -> float:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for run in read(log)[-3:]:
            if run.key == n:
                return run.began
        time.sleep(0.002)
    raise RuntimeError(f"{who} did not start job {n} within {PATIENCE:g} s")


def _hand_over(ground: Ground, count: int) -> list[float]:
    """Milliseconds between the end of one run and the start of the next, in one lane."""
    with project(ground, STRICT) as mine, ground.database() as url:
        mine.plan(url, topics([(0, place) for place in range(count)]))
        drain(ground, mine, url, count, 1)
        runs = sorted(read(mine.root / "runs.log"), key=lambda run: run.began)
    if not kept(runs).strictly or len(runs) != count:
        raise RuntimeError("the lane did not keep its order")
    return [(later.began - run.ended) * 1000 for run, later in zip(runs[WARM:], runs[WARM + 1 :], strict=False)]


def _quantile(values: Sequence[float], at: float) -> float:
    return sorted(values)[max(ceil(len(values) * at) - 1, 0)]
