"""Drain: no-op jobs at one unlimited stage, by worker processes, against the database's own ceiling and pgqueuer."""

from collections.abc import Sequence
from statistics import median

from bench.ceiling import ceiling
from bench.ground import Ground
from bench.measure import Ratio, Size, in_turns, ratio
from bench.ours import checkpoint, drain, project, settle, topics
from bench.peer import peer

PROCESSES = {Size.QUICK: (2,), Size.FULL: (2, 1, 4)}  # the first is what the ratios are of
LANES = 100
JOBS = {Size.QUICK: 10_000, Size.FULL: 40_000}
REPEATS = {Size.QUICK: 3, Size.FULL: 5}


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    count = JOBS[size]
    order = [(n % LANES, n // LANES) for n in range(count)]
    with project(ground) as mine, ground.database() as seed, peer(ground, "pgqueuer") as queued:
        mine.plan(seed, topics(order))
        settle(seed)
        queued.enqueue(order + order)  # the fastest: it would be done before it has been measured
        runs: list[dict[str, float]] = []
        ceilings: list[dict[str, float]] = []
        costs: list[dict[str, float]] = []

        def ours() -> float:
            with ground.database(like=seed) as url:
                checkpoint(ground)
                found = drain(ground, mine, url, count, processes)
                runs.append(found)
                return found["rate"]

        def alone() -> float:
            with ground.database(like=seed) as url:
                checkpoint(ground)
                found = ceiling(ground, url, count, max(round(runs[-1]["claimed"]), 1), processes)
                ceilings.append(found)
                return found["rate"]

        def pgqueuer() -> float:
            with ground.database(like=queued.url) as url:
                checkpoint(ground)
                other = queued.at(url)
                rate = other.drain(2 * count, processes)
                costs.append(other.cost)
                return rate

        rates: dict[int, dict[str, list[float]]] = {}
        for processes in PROCESSES[size]:
            found = in_turns(REPEATS[size], ours, alone, pgqueuer)
            rates[processes] = dict(zip(("ours", "pgbench", "pgqueuer"), found, strict=True))
    made_of = {"jobs": count, "ours": runs, "pgbench": ceilings, "pgqueuer": costs}
    at = rates[PROCESSES[size][0]]
    scaling = {who: {n: median(rates[n][who]) for n in rates} for who in at}
    return [
        Ratio(
            f"drain against {other}", ratio(at["ours"], at[other]), bar=bar, aim=aim,
            detail=made_of | {"ours_jobs_s": at["ours"], f"{other}_jobs_s": at[other]} | more,
        )
        for other, bar, aim, more in (
            ("pgbench", 0.5, 0.8, {"scaling": scaling} if len(rates) > 1 else {}),
            ("pgqueuer", 0.6, 1.0, {}),
        )
    ]  # fmt: skip
