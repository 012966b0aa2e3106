"""Why a claim skips what is locked: workers with a short stage, by the naive claim, by SKIP LOCKED, and by our own.

The naive claim holds its row's lock while the stage runs, so that each worker waits for the one before it. Data for a
plot; no bar.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import psycopg
from sqlalchemy import Engine, make_url

import pipeline
from bench.filling import make_sites
from bench.ground import Ground
from bench.hands import Hands
from bench.measure import Ratio, Size, in_turns, ratio
from pipeline.build import services
from pipeline.db import make_engine
from pipeline.testing.database import SCHEMA

STAGE = 0.005  # seconds
WORKERS = (1, 2, 5, 10, 20)
SECONDS = {Size.QUICK: 0.3, Size.FULL: 4.0}
ROWS = 200_000
REPEATS = 3

TABLE = (
    "CREATE TABLE job (id bigint PRIMARY KEY, state smallint NOT NULL DEFAULT 0)",
    f"INSERT INTO job (id) SELECT generate_series(1, {ROWS})",
    "CREATE INDEX ON job (id) WHERE state = 0",
    "VACUUM ANALYZE job",
)
NAIVE = "SELECT id FROM job WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE"
DONE = "UPDATE job SET state = 2 WHERE id = %s"

Rate = Callable[[int, float], float]
"""Jobs a second of so many workers in so many seconds."""


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    """Jobs a second by the number of workers; the value is 20 workers' against that of one, for each way."""
    with ground.database(ours=False) as url, ground.database() as own:
        address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            for statement in TABLE:
                connection.execute(statement.encode())
        engine = make_engine(own, schema=SCHEMA, connections=1, name="bench")
        ours = services(engine)
        (site_id,) = make_sites(ours)
        _plan(engine, round(SECONDS[size] * 40_000))
        ways: dict[str, Rate] = {
            "naive": lambda workers, seconds: _by_hand(address, NAIVE, workers, seconds),
            "skip locked": lambda workers, seconds: _by_hand(address, f"{NAIVE} SKIP LOCKED", workers, seconds),
            "ours": lambda workers, seconds: _by_ours(Hands(ours, [site_id], workers), seconds),
        }
        cells = [(way, workers) for workers in WORKERS for way in ways]
        rates = in_turns(REPEATS, *(partial(ways[way], workers, SECONDS[size]) for way, workers in cells))
        engine.dispose()
    found = dict(zip(cells, rates, strict=True))
    return [
        Ratio(
            f"{WORKERS[-1]} workers against one: {way}",
            ratio(found[way, WORKERS[-1]], found[way, 1]),
            detail={
                "stage_ms": 1000 * STAGE,
                "jobs_a_second": {str(workers): round(median(found[way, workers])) for workers in WORKERS},
            },
        )
        for way in ways
    ]


def _plan(engine: Engine, count: int) -> None:
    topics = [pipeline.Topic(f"lane-{n % 500}", f"page-{n}", "A page", "page") for n in range(count)]
    with engine.begin() as connection:
        pipeline.plan(connection, "site-1", topics, SCHEMA)


def _by_ours(hands: Hands, seconds: float) -> float:
    """One process whose hands hold as many jobs at once as there are workers."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        done += hands.step(lambda: time.sleep(STAGE))
    return done / (time.perf_counter() - began)


def _by_hand(address: str, sql: str, workers: int, seconds: float) -> float:
    """So many workers, each with a connection of its own."""
    stop = threading.Event()
    done: list[int] = []
    threads = [threading.Thread(target=lambda: done.append(_locked(address, sql, stop))) for _ in range(workers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def _locked(address: str, sql: str, stop: threading.Event) -> int:
    done = 0
    with psycopg.connect(address, autocommit=True) as connection:
        while not stop.is_set():
            with connection.transaction():
                row: Any = connection.execute(sql.encode()).fetchone()
                if row is not None:
                    time.sleep(STAGE)
                    connection.execute(DONE, row)
                    done += 1
    return done
