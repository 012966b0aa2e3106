"""What a claim costs as tables grow, in pages that it touches and in time; and with it all that workers ask all day.

Each scene is measured against the same work without the mass around it. Pages are those of the real statements under
the plan that a prepared statement comes to; times are those of the product's own claim and acknowledgement.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any
from uuid import uuid4

from psycopg.sql import Literal
from psycopg.types.json import Json
from sqlalchemy import Connection, Executable, text
from sqlalchemy.dialects.postgresql import asyncpg

from bench.filling import Filled, fill, make_sites, plain
from bench.ground import Ground
from bench.hands import Hands
from bench.measure import Ratio, Size, in_turns, ratio
from pipeline.build import Services, services
from pipeline.clock import DatabaseClock
from pipeline.db import make_engine
from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.work import BEGINNING
from pipeline.sql import claim, gates, lanes, transitions
from pipeline.sql.batch import bound
from pipeline.sql.transitions import Reach
from pipeline.testing.database import SCHEMA
from pipeline.views import Claim

CLOCK = DatabaseClock()
SHARE = 8
ROUNDS = 60  # claims in each turn
REPEATS = 3
RUNS = 7  # of a prepared statement: from the sixth on the server keeps a plan
PAGES_BAR, TIME_BAR, AIM = 1.2, 1.3, 1.05
OTHERS_BAR = 1.5  # what else is asked all day may walk an index that is a level deeper, and no more


@dataclass(frozen=True, slots=True)
class Scene:
    """The same work twice: ``alone``, and with a mass around it that ought to cost nothing."""

    name: str
    alone: tuple[Filled, ...]
    among: tuple[Filled, ...]
    sites: int = 1


def scenes(size: Size) -> list[Scene]:
    """The three of the table; in small they are a fiftieth, a tenth and a twentieth of it."""
    full = size is Size.FULL
    topics, passes = (10_000, 10) if full else (1_000, 2)
    open_lanes = 10_000 if full else 1_000
    sites, big = (1_000, 1_000_000) if full else (50, 50_000)
    work = Filled(lanes=100, behind=3, fresh=200)
    lane = Filled(lanes=open_lanes, kind="open-", behind=1)
    still = [
        Filled(lanes=3 * open_lanes, kind="halted-", head="failed", behind=1),
        Filled(lanes=3 * open_lanes, kind="paused-", state="paused", head="waiting", behind=1),
        Filled(lanes=3 * open_lanes, kind="later-", due="1 day", behind=1),
    ]
    each = Filled(lanes=1, head=None, fresh=big // sites)
    one = Filled(lanes=1, sites="site-1", head=None, fresh=big)
    few = Filled(lanes=1, sites="site-_%", kind="few-", head=None, fresh=20)
    return [
        Scene(f"{100 * topics * passes:,} finished passes", (work,), (replace(work, finished=topics, passes=passes),)),
        Scene(f"{9 * open_lanes:,} lanes that stand still", (lane,), (lane, *still)),
        Scene(f"one site of {sites:,} with {big:,} pending", (each,), (one, few), sites),
    ]  # fmt: skip


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    """For each scene what a claim touches and takes, and what the other statements touch."""
    return [found for scene in scenes(size) for found in compare(ground, scene)]


def compare(ground: Ground, scene: Scene, rounds: int = ROUNDS) -> list[Ratio]:
    with _filled(ground, scene.sites, scene.alone) as alone, _filled(ground, scene.sites, scene.among) as among:
        touched = [_pages(alone), _pages(among)]
        sides = [Hands(s, ids, SHARE) for s, ids in (alone, among)]
        for side in sides:
            _turn(side, 10)  # warm
        claims = in_turns(REPEATS, *(lambda side=side: _turn(side, rounds) for side in sides))
        acks = [[median(side.acks)] for side in sides]
    times = {"alone_ms": round(1000 * median(claims[0]), 2), "among_ms": round(1000 * median(claims[1]), 2)}
    acked = {"alone_ms": round(1000 * acks[0][0], 2), "among_ms": round(1000 * acks[1][0], 2)}
    found = [
        Ratio(f"claim, p50: {scene.name}", ratio(claims[1], claims[0]), TIME_BAR, AIM, True, times),
        Ratio(f"acknowledgement, p50: {scene.name}", ratio(acks[1], acks[0]), TIME_BAR, AIM, True, acked),
    ]
    for name, pages in touched[0].items():
        detail = {"alone": pages, "among": touched[1][name]}
        value, bar = touched[1][name] / pages, PAGES_BAR if name == "claim" else OTHERS_BAR
        found.append(Ratio(f"{name}, pages: {scene.name}", value, bar, AIM, True, detail))
    return found


@contextmanager
def _filled(ground: Ground, sites: int, parts: tuple[Filled, ...]) -> Iterator[tuple[Services, list[int]]]:
    with ground.database() as url:
        engine = make_engine(url, schema=SCHEMA, connections=1, name="bench")
        ours = services(engine)
        ids = make_sites(ours, sites)
        with plain(ground, url) as connection:
            fill(connection, *parts)
        yield ours, ids
        engine.dispose()


def _turn(hands: Hands, rounds: int) -> float:
    """The median of the next claims, in seconds."""
    hands.claims.clear()
    for _ in range(rounds):
        hands.step()
    return median(hands.claims)


def _pages(at: tuple[Services, list[int]]) -> dict[str, int]:
    """How many pages each statement touches, by its name."""
    ours, sites = at
    hands = Hands(ours, sites, SHARE)
    hands.rota.ready |= set(ours.work.prefixes())
    asked = [
        {"n": n, "site_id": p.site_id, "stage": p.stage, "priority": p.priority, "share": p.share,
         "lease_seconds": p.lease.total_seconds(), "floor_at": BEGINNING.isoformat(), "floor_id": 0}
        for n, p in enumerate(hands.rota.shares(SHARE, sites))
    ]  # fmt: skip
    lot = ours.lanes.stretch(sites[0], "")  # upkeep looks at so many lanes in one go
    site = bound(site_id=sites[0])
    some = {**site, **bound(after=lot.after, end=lot.end)}
    questions: dict[str, tuple[Executable, dict[str, Any]]] = {
        "claim": (claim.claim(CLOCK, claim.Which.TOGETHER), {"prefixes": asked, **bound(token=uuid4(), worker="w")}),
        "prefixes": (claim.prefixes(CLOCK, one_site=False), {}),
        "loners": (claim.loners(CLOCK, one_site=False), {}),
        "expired": (transitions.expired(CLOCK, one_site=True), site),
        "strays": (lanes.strays(), some),
        "ready": (gates.ready(), some),
    }
    with _unprepared(ours) as connection:
        touched = {name: _touched(connection, *question) for name, question in questions.items()}
        connection.rollback()
        held = ours.work.claim(hands.rota.shares(SHARE, sites), "bench")
        touched["acknowledgement"] = _acknowledged(connection, held)
    ours.work.acknowledge([Ack(c, Verb.ADVANCE) for c in held], wait=True)
    return touched


@contextmanager
def _unprepared(ours: Services) -> Iterator[Connection]:
    """A connection whose driver prepares nothing, hence drops nothing that was prepared by hand."""
    engine = make_engine(ours.engine.url, schema=SCHEMA, connections=1, name="bench pages", prepare="never")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def _acknowledged(connection: Connection, held: Sequence[Claim]) -> int:
    """How many pages the statements of an acknowledgement touch, in their order."""
    acks = [{"job_id": c.job_id, "token": str(c.token)} for c in held]
    reach = transitions.gates_touched(Reach.NEXT)
    connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
    locked = sorted({gate for _, gate in connection.execute(reach, {"acks": acks})})
    given = {"acks": acks, "gates": locked}
    pages = _touched(connection, reach, given) + _touched(connection, gates.lock(wait=False), given)
    for write in (transitions.advance(CLOCK), gates.move_passed(), gates.promote(CLOCK)):
        pages += _touched(connection, write, given)
        connection.execute(write, given)
    connection.rollback()
    return pages


def _touched(connection: Connection, statement: Executable, values: dict[str, Any]) -> int:
    """How many pages the statement touches, once its plan is kept; whatever it writes is taken back."""
    compiled = statement.compile(dialect=asyncpg.dialect())  # type: ignore[attr-defined,no-untyped-call]
    given = [{**compiled.params, **values}[name] for name in compiled.positiontup]
    driver = connection.connection.dbapi_connection
    arguments = ", ".join(Literal(_plain(value)).as_string(driver) for value in given)  # type: ignore[arg-type]
    execute = f"EXECUTE asked{f'({arguments})' if arguments else ''}"
    connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
    connection.exec_driver_sql(f"PREPARE asked AS {compiled.string}".replace("%", "%%"))
    pages: list[int] = []
    for _ in range(RUNS):
        with connection.begin_nested() as step:
            asked = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}"
            found = connection.exec_driver_sql(asked.replace("%", "%%")).scalar_one()[0]["Plan"]
            pages.append(found["Shared Hit Blocks"] + found["Shared Read Blocks"])
            step.rollback()
    connection.exec_driver_sql("DEALLOCATE asked")
    return pages[-1]


def _plain(value: Any) -> Any:
    return Json(value, dumps=json.dumps) if isinstance(value, list) and value and isinstance(value[0], dict) else value
