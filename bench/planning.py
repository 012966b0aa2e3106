"""Planning in bulk, against COPY of the very same rows into the very same tables, indexes and foreign keys included.

COPY is what the database itself allows: nobody asks it what is there already, it counts no positions and gives no
answer. Both doors are measured: the file's plan, all or nothing, and the plan in a caller's own transaction.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from sqlalchemy import Engine, make_url

import pipeline
from bench.ground import Ground
from bench.measure import Ratio, Size, in_turns, ratio
from pipeline.build import services
from pipeline.db import make_engine
from pipeline.project.site import Site
from pipeline.service.planning import StageSpec
from pipeline.testing.database import SCHEMA
from pipeline.views import TopicRow

TOPICS = {Size.QUICK: 100_000, Size.FULL: 1_000_000}
LANES = 250
REPEATS = 3
STAGES = (StageSpec("generate", None, 5), StageSpec("validate", None, 5), StageSpec("publish", 1, 5))
KEPT = ("sites", "stages", "lanes", "gates")  # there before the rows are copied
COPIED = ("topics", "jobs")


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    """Topics a second by each of the two doors, as a share of what COPY does."""
    return compare(ground, TOPICS[size])


def compare(ground: Ground, count: int, repeats: int = REPEATS) -> list[Ratio]:
    """The same for ``count`` topics."""
    given = _topics(count)
    described = [
        TopicRow(t.lane, t.slug, t.title, t.type, f"{t.lane}/{t.slug}/", n, t.brief, n, f"{n:064x}")
        for n, t in enumerate(given, start=2)
    ]

    def by_file(engine: Engine, site_id: int) -> None:
        assert services(engine).planning.plan(site_id, described).new == count

    def in_a_transaction(engine: Engine, site_id: int) -> None:
        with engine.begin() as connection:
            assert len(pipeline.plan(connection, "acme", given, SCHEMA)) == count

    folder = ground.folder / "rows"
    folder.mkdir()
    _planned(ground, by_file, folder)  # the rows that are copied
    copied, filed, appended = in_turns(
        repeats,
        lambda: count / _copied(ground, folder),
        lambda: count / _planned(ground, by_file),
        lambda: count / _planned(ground, in_a_transaction),
    )
    found = []
    for name, mine in (("planning, a file", filed), ("planning, in a caller's transaction", appended)):
        detail = {"topics": count, "lanes": LANES, "topics_a_second": median(mine), "copied_a_second": median(copied)}
        found.append(Ratio(name, ratio(mine, copied), bar=0.3, aim=0.6, detail=detail))
    return found


def _topics(count: int) -> list[pipeline.Topic]:
    """Places in countries, described as by a row of a table."""
    lanes = [f"country-{n}" for n in range(LANES)]
    return [
        pipeline.Topic(
            lanes[n * LANES // count], f"place-{n}", f"Place {n}", "city",
            {"name": f"Place {n}", "people": n * 7, "latitude": n % 180 / 2, "longitude": n % 360 / 3, "region": "E"},
        )
        for n in range(count)
    ]  # fmt: skip


def _planned(ground: Ground, plan: Callable[[Engine, int], None], keep: Path | None = None) -> float:
    """How many seconds the plan took in a database of its own, of whose rows files are kept when asked for."""
    with ground.database() as url:
        engine = make_engine(url, schema=SCHEMA, connections=2, name="bench")
        site = Site(slug="acme", folder=Path("."), output=Path("."), name="acme", base_url="https://example.com")
        site_id = services(engine).planning.register(site, STAGES)
        began = time.perf_counter()
        plan(engine, site_id)
        took = time.perf_counter() - began
        engine.dispose()
        if keep is not None:
            with _plain(url) as connection:
                for table in (*KEPT, *COPIED):
                    _copy_out(connection, table, keep / table)
    return took


def _copied(ground: Ground, folder: Path) -> float:
    """How many seconds COPY took for the same rows, in one transaction."""
    with ground.database() as url, _plain(url) as connection:
        for table in KEPT:
            _copy_in(connection, table, folder / table)
        connection.commit()
        began = time.perf_counter()
        for table in COPIED:
            _copy_in(connection, table, folder / table)
        connection.commit()
        return time.perf_counter() - began


def _plain(url: str) -> "psycopg.Connection[Any]":
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(address, options=f"-c search_path={SCHEMA}")


def _copy_out(connection: "psycopg.Connection[Any]", table: str, path: Path) -> None:
    with path.open("wb") as file, connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy:
        for block in copy:
            file.write(block)


def _copy_in(connection: "psycopg.Connection[Any]", table: str, path: Path) -> None:
    with path.open("rb") as file, connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
        while block := file.read(1 << 16):
            copy.write(block)
