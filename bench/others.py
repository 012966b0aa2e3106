"""All peers side by side: the drain of no-op jobs by two worker processes. Only in full."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from bench.ground import Ground
from bench.install import RELEASES, install
from bench.measure import Ratio, Size, in_turns
from bench.ours import Project, checkpoint, drain, project, settle, topics
from bench.peer import Peer, peer

PROCESSES = 2
REPEATS = 3
# As many as each does in a few seconds.
JOBS = {
    "pgqueuer": 40_000,
    "awa": 10_000,
    "chancy": 10_000,
    "oban": 10_000,
    "absurd": 1_500,
    "dbos": 1_500,
    "procrastinate": 1_500,
}
OURS = 20_000


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    if size is Size.QUICK:
        return []
    said = install()
    there = [name for name in JOBS if RELEASES[name].installed]
    with project(ground) as mine, ground.database() as seed:
        mine.plan(seed, topics([(n % 100, n // 100) for n in range(OURS)]))
        settle(seed)
        asks: list[Callable[[], float]] = [partial(_ours, ground, mine, seed)]
        asks += [partial(_theirs, ground, name) for name in there]
        found = in_turns(REPEATS, *asks)
    rates = {name: median(values) for name, values in zip(["ours", *there], found, strict=True)}
    missing = {name: said[name] for name in JOBS if name not in there}
    detail = {"jobs_s": dict(zip(rates, found, strict=True)), "not_measured": missing}
    best = max(there, key=lambda name: rates[name])
    name = f"drain against {best}, the fastest of {len(there)} peers"
    return [Ratio(name, rates["ours"] / rates[best], detail=detail)]


def _ours(ground: Ground, mine: Project, seed: str) -> float:
    with ground.database(like=seed) as url:
        checkpoint(ground)
        return drain(ground, mine, url, OURS, PROCESSES)["rate"]


def _theirs(ground: Ground, name: str) -> float:
    with peer(ground, name) as other:
        return _drained(ground, other, JOBS[name])


def _drained(ground: Ground, other: Peer, count: int) -> float:
    other.enqueue([(n, 0) for n in range(count)])
    checkpoint(ground)
    return other.drain(count, PROCESSES)
