"""Reads the three logs of a chaos run once it is over."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Select, select

from pipeline.sql.tables import attempts, events, jobs, lanes, publications, sites, topics
from tests.chaos.history import read
from tests.chaos.records import Attempt, Death, Event, Job, Page, Records, Run, Topic
from tests.chaos.work import EFFECTS


def load(
    engine: Engine, root: Path, history: Path, *, deaths: Sequence[Death], outages: Sequence[tuple[float, float]],
    bound: float,
) -> Records:  # fmt: skip
    runs, double = _runs(root)
    return Records(
        calls=read(history),
        topics={t.id: t for t in _topics(engine)},
        jobs={j.id: j for j in _jobs(engine)},
        attempts={a.fence: a for a in _attempts(engine)},
        events=list(_events(engine)),
        runs=runs,
        pages=list(_pages(engine)),
        files=_files(root),
        deaths=deaths,
        outages=outages,
        bound=bound,
        double_runs=double,
    )


def _rows(engine: Engine, statement: Select[Any]) -> Iterator[Any]:
    with engine.connect() as connection, connection.begin():
        yield from connection.execution_options(stream_results=True).execute(statement)


def _wall(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _topics(engine: Engine) -> Iterator[Topic]:
    t = topics.c
    statement = select(t.id, sites.c.slug.label("site"), lanes.c.name.label("lane"), t.slug, t.position, t.placed_at)
    joined = topics.join(sites, sites.c.id == t.site_id).join(lanes, lanes.c.id == t.lane_id)
    for row in _rows(engine, statement.select_from(joined)):
        yield Topic(row.id, row.site, row.lane, row.slug, row.position, row.placed_at.timestamp())


def _jobs(engine: Engine) -> Iterator[Job]:
    for j in _rows(engine, select(jobs)):
        number = j._mapping["pass"]
        finished = _wall(j.finished_at)
        yield Job(
            j.id, j.topic_id, number, j.stage, j.round, j.state, j.attempts, j.max_attempts, finished, j.error_class
        )


def _attempts(engine: Engine) -> Iterator[Attempt]:
    for a in _rows(engine, select(attempts)):
        yield Attempt(
            a.fence, a.job_id, a.stage, a.round, a.outcome, a.charged, a.reserved_at.timestamp(),
            a.ended_at.timestamp(), int(a.worker.rsplit("/", 2)[1]), a.error_class,
        )  # fmt: skip


def _events(engine: Engine) -> Iterator[Event]:
    for e in _rows(engine, select(events).order_by(events.c.id)):
        yield Event(e.job_id, e.verb, e.from_state, e.to_state, e.reason, e.at.timestamp())


def _pages(engine: Engine) -> Iterator[Page]:
    p = publications.c
    statement = select(sites.c.slug, p.live_path, p.live_hash, p.topic_id, p.live_fence)
    joined = publications.join(sites, sites.c.id == p.site_id)
    for row in _rows(engine, statement.select_from(joined).where(p.live_path.is_not(None))):
        yield Page(row.slug, row.live_path, row.live_hash, row.topic_id, row.live_fence)


def _files(root: Path) -> dict[tuple[str, str], str]:
    """The pages that stand there. What a killed process had not yet put in its place is no page."""
    found = {}
    for site in sorted((root / "public").glob("*")):
        for path in site.rglob("*"):
            if path.is_file() and not path.name.startswith(".pipeline-"):
                found[site.name, str(path.relative_to(site))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def lines(root: Path) -> Iterator[Mapping[str, Any]]:
    """What stages wrote, file by file. A last line may be cut: its process was killed in the middle of it."""
    for path in sorted((root / EFFECTS).glob("*.jsonl")):
        *whole, rest = path.read_text().split("\n")
        assert not rest or not rest.endswith("}"), f"{path}: a whole line without its end"
        for line in whole:
            yield json.loads(line)


def _runs(root: Path) -> tuple[dict[int, Run], list[int]]:
    """By fence; and the fences under which a stage began more than once."""
    begun: dict[int, Mapping[str, Any]] = {}
    ended: dict[int, Mapping[str, Any]] = {}
    wrote: dict[int, list[str]] = {}
    double = []
    for line in lines(root):
        fence = line["fence"]
        match line["e"]:
            case "start":
                if fence in begun:
                    double.append(fence)
                begun[fence] = line
            case "end":
                ended[fence] = line
            case "act":
                wrote.setdefault(fence, []).append(line["key"])
    runs = {}
    for fence, line in begun.items():
        end = ended.get(fence, {})
        runs[fence] = Run(
            fence, line["topic"], line["stage"], line["pid"], line["boot"], line["wall"], end.get("boot"),
            end.get("wall"), tuple(wrote.get(fence, ())),
        )  # fmt: skip
    return runs, double


def suicides(root: Path) -> set[int]:
    """The processes that a stage of their own killed."""
    return {line["pid"] for line in lines(root) if line["e"] == "suicide"}
