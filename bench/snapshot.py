"""Capacity while another transaction holds the oldest snapshot, so that nothing that is over can be cleaned away.

Jobs arrive at a steady rate and are worked off at once, by the product's own claim and acknowledgement with the floors
that workers keep. Now and then a burst comes on top, and how fast that is worked off is the capacity.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

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
LANES = 1_000
SECONDS = {Size.QUICK: 10.0, Size.FULL: 600.0}
BURSTS = {Size.QUICK: 3, Size.FULL: 10}
BURST = {Size.QUICK: 1_500, Size.FULL: 6_000}  # jobs
FREE = (StageSpec("generate", None, 5),)
STRICT = (*FREE, StageSpec("publish", 1, 5))


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    """Capacity at the end of the time that the snapshot is held, against that at its beginning: without order, and
    where each job is released in the order of its lane."""
    given = SECONDS[size], BURSTS[size], BURST[size]
    return [compare(ground, "no order", FREE, *given), compare(ground, "strict lanes", STRICT, *given)]


def compare(ground: Ground, name: str, stages: Sequence[StageSpec], seconds: float, bursts: int, burst: int) -> Ratio:
    """So many jobs a second arrive, be it at one stage or at two."""
    with ground.database() as url:
        engine = make_engine(url, schema=SCHEMA, connections=HANDS + 2, name="bench")
        ours = services(engine)
        (site_id,) = make_sites(ours, stages=stages)
        work = _Work(ours, site_id, len(stages))
        with work.going():
            work.burst(burst)  # plans are made, pages are there
            with plain(ground, url) as other:
                other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                other.execute("SELECT count(*) FROM sites")
                began, rates = time.monotonic(), []
                for n in range(bursts):
                    time.sleep(max(0.0, began + n * seconds / (bursts - 1) - time.monotonic()))
                    rates.append(work.burst(burst))
                held = time.monotonic() - began
                dead: Any = other.execute(
                    "SELECT sum(n_dead_tup)::int FROM pg_stat_user_tables WHERE schemaname = %s", [SCHEMA]
                ).fetchone()
                other.execute("ROLLBACK")
        engine.dispose()
    detail = {
        "arriving_a_second": ARRIVING,
        "held_seconds": round(held),
        "capacity_a_second": [round(rate) for rate in rates],
        "dead_rows": dead[0],
    }
    return Ratio(f"capacity under a held snapshot, {name}", rates[-1] / rates[0], bar=0.7, aim=0.95, detail=detail)


@dataclass(slots=True)
class _Work:
    """Hands that work, and somebody who plans for them."""

    ours: Services
    site_id: int
    stages: int
    _done: list[int] = field(default_factory=lambda: [0] * HANDS)
    _planned: int = 0
    _planning: threading.Lock = field(default_factory=threading.Lock)
    _told: list[bool] = field(default_factory=lambda: [False] * HANDS)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def going(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(HANDS)]
        threads.append(threading.Thread(target=self._arrive))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def burst(self, jobs: int) -> float:
        """Jobs a second of all hands together, while there are more than they can do."""
        self._plan(jobs // self.stages)
        began, before = time.monotonic(), sum(self._done)
        while (done := sum(self._done) - before) < 0.9 * jobs:
            time.sleep(0.005)
        return done / (time.monotonic() - began)

    def _work(self, number: int) -> None:
        hands = Hands(self.ours, [self.site_id], ROOM, f"hands {number}")
        while not self._stop.is_set():
            count = hands.step()
            self._done[number] += count
            if self._told[number]:  # as a worker is, and looks
                self._told[number] = False
                hands.rota.heed(self.ours.work, self.site_id)
            elif not count:
                time.sleep(0.005)

    def _arrive(self) -> None:
        """As in an application that has a few more now and then."""
        batch = ARRIVING // self.stages // 10
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            self._plan(batch)
            due += batch * self.stages / ARRIVING

    def _plan(self, count: int) -> None:
        with self._planning:
            numbers = range(self._planned, self._planned + count)
            self._planned += count
        topics = [pipeline.Topic(f"lane-{n % LANES}", f"page-{n}", f"Page {n}", "page", {"n": n}) for n in numbers]
        with self.ours.engine.begin() as connection:
            pipeline.plan(connection, "site-1", topics, SCHEMA)
        self._told[:] = [True] * HANDS
