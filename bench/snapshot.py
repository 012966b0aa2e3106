"""Capacity while another transaction holds the oldest snapshot, so that nothing that is over can be cleaned away.

Jobs arrive at a steady rate and are worked off at once, by the product's own claim and acknowledgement with the floors
that workers keep. What is measured is how many they could do: jobs a second of the time that they were busy.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import pipeline
from bench.filling import make_sites, plain
from bench.ground import Ground
from bench.hands import Hands
from bench.measure import Ratio, Size
from pipeline.build import Services, services
from pipeline.db import make_engine
from pipeline.service.planning import StageSpec
from pipeline.testing.database import SCHEMA

ARRIVING = 500  # jobs a second
HANDS = 2
ROOM = 50
LANES = 100
SECONDS = {Size.QUICK: 10.0, Size.FULL: 600.0}
WINDOW = {Size.QUICK: 2.0, Size.FULL: 60.0}
FREE = (StageSpec("generate", None, 5),)
STRICT = (*FREE, StageSpec("publish", 1, 5))


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    """Capacity in the last window of the time that the snapshot is held, against the first: without order, and where
    each job is released in the order of its lane."""
    return [
        compare(ground, "no order", FREE, SECONDS[size], WINDOW[size]),
        compare(ground, "strict lanes", STRICT, SECONDS[size], WINDOW[size]),
    ]


def compare(ground: Ground, name: str, stages: Sequence[StageSpec], seconds: float, window: float) -> Ratio:
    """So many jobs a second arrive, be it at one stage or at two."""
    with ground.database() as url:
        engine = make_engine(url, schema=SCHEMA, connections=HANDS + 1, name="bench")
        ours = services(engine)
        (site_id,) = make_sites(ours, stages=stages)
        work = _Work(ours, site_id, len(stages))
        with work.going():
            time.sleep(window / 2)  # plans are made, pages are there
            with plain(ground, url) as other:
                other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                other.execute("SELECT count(*) FROM sites")
                began = time.monotonic()
                time.sleep(seconds)
                ended = time.monotonic()
                dead = other.execute(
                    "SELECT sum(n_dead_tup)::int FROM pg_stat_user_tables WHERE schemaname = %s", [SCHEMA]
                ).fetchone()
                other.execute("ROLLBACK")
        engine.dispose()
    steps = int((ended - began) // window)
    rates = [work.capacity(began + n * window, began + (n + 1) * window) for n in range(steps)]
    detail = {
        "arriving_a_second": ARRIVING,
        "held_seconds": seconds,
        "capacity_a_second": [round(rate) for rate in rates],
        "window_seconds": window,
        "claim_p50_ms": [
            round(1000 * work.slowness(began + n * window, began + (n + 1) * window), 2) for n in (0, steps - 1)
        ],
        "dead_rows": dead[0] if dead else None,
        "behind": work.planned * len(stages) - sum(count for _, _, count in work.steps),
    }
    return Ratio(f"capacity under a held snapshot, {name}", rates[-1] / rates[0], bar=0.7, aim=0.95, detail=detail)


@dataclass(slots=True)
class _Work:
    """Hands that work, and somebody who plans for them."""

    ours: Services
    site_id: int
    stages: int
    planned: int = 0
    steps: list[tuple[float, float, int]] = field(default_factory=list)  # when a turn ended, how long it took, jobs
    claims: list[tuple[float, float]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def going(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._work, args=(f"hands {n}",)) for n in range(HANDS)]
        threads.append(threading.Thread(target=self._plan))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def capacity(self, since: float, until: float) -> float:
        """Jobs a second of all hands together, if they had been busy all the time."""
        mine = [(took, count) for at, took, count in self.steps if since <= at < until]
        return HANDS * sum(count for _, count in mine) / sum(took for took, _ in mine)

    def slowness(self, since: float, until: float) -> float:
        return median(took for at, took in self.claims if since <= at < until)

    def _work(self, name: str) -> None:
        hands = Hands(self.ours, [self.site_id], ROOM, name)
        while not self._stop.is_set():
            began = time.monotonic()
            count = hands.step()
            ended = time.monotonic()
            if count:
                self.steps.append((ended, ended - began, count))
                self.claims.append((ended, hands.claims[-1]))
            else:
                time.sleep(0.02)

    def _plan(self) -> None:
        """As an application does that has a few more for one lane, and then for the next."""
        began = time.monotonic()
        batch = ARRIVING // self.stages // 10
        while not self._stop.wait(max(0.0, began + self.planned * self.stages / ARRIVING - time.monotonic())):
            lane = f"lane-{self.planned // batch % LANES}"
            numbers = range(self.planned, self.planned + batch)
            topics = [pipeline.Topic(lane, f"page-{n}", f"Page {n}", "page", {"n": n}) for n in numbers]
            with self.ours.engine.begin() as connection:
                pipeline.plan(connection, "site-1", topics, SCHEMA)
            self.planned += batch
