"""Strict order: many lanes of which each is to be done one at a time, in order, by two worker processes.

Each run is checked: by what the jobs noted themselves, and ours by its attempts as well. What each kept stands beside
its rate; ours counts for nothing when it did not keep the order.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bench.ground import Ground
from bench.measure import Ratio, Size
from bench.ours import Project, asking, checkpoint, drain, project, settle, topics
from bench.peer import Peer, peer
from bench.runs import Kept, Run, kept, read

PROCESSES = 2
LANES = 1000
PLACES = {Size.QUICK: 4, Size.FULL: 20}
SLOW_PLACES = {Size.QUICK: 2, Size.FULL: 4}  # for those who do a few hundred a second
TASK = "0.001"
FAST, SLOW = ("pgqueuer",), ("dbos", "procrastinate")

STRICT = f"""
import os
import time
from pathlib import Path

from pipeline import Done, Stage

LOG = os.open(Path(__file__).parents[1] / "runs.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


class Work(Stage):
    width = 1

    def run(self, topic, ctx):
        began = time.time()
        time.sleep({TASK})
        brief = topic.brief
        os.write(LOG, b"%d %d %.6f %.6f %d\\n" % (brief["key"], brief["seq"], began, time.time(), os.getpid()))
        return Done()


PIPELINE = (Work,)
"""
ATTEMPTS = (
    "SELECT j.lane_id, j.position, extract(epoch FROM a.reserved_at), extract(epoch FROM a.ended_at)"
    " FROM attempts AS a JOIN jobs AS j ON j.id = a.job_id"
)


def in_turn(lanes: int, places: int) -> list[tuple[int, int]]:
    """The lanes' first, then their second, and so on."""
    return [(lane, place) for place in range(places) for lane in range(lanes)]


def side_by_side(lanes: int, places: int) -> list[tuple[int, int]]:
    """All of the first lane, then all of the second: as a crawl of one site after another lays them."""
    return [(lane, place) for lane in range(lanes) for place in range(places)]


LAYOUTS = {"keys side by side": side_by_side, "keys in turn": in_turn}
TURNS = {  # of ours and the fast, of the slow
    (Size.QUICK, "keys side by side"): (3, 1),
    (Size.QUICK, "keys in turn"): (1, 0),
    (Size.FULL, "keys side by side"): (3, 3),
    (Size.FULL, "keys in turn"): (3, 3),
}


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    found = {layout: _layout(ground, size, layout) for layout in LAYOUTS}
    rows = []
    for name, bar, aim in (("pgqueuer", 2.5, 5.0), ("dbos", 8.0, 15.0), ("procrastinate", 8.0, 15.0)):
        for layout, runs in found.items():
            if not runs[name]:
                continue
            right = all(each["kept"].strictly and each["kept"].jobs == LANES * PLACES[size] for each in runs["ours"])
            value = _rate(runs["ours"]) / _rate(runs[name]) if right else 0.0  # fast and wrong counts for nothing
            detail = {who: _told(runs[who]) for who in ("ours", name)}
            rows.append(Ratio(f"order against {name}, {layout}", value, bar=bar, aim=aim, detail=detail))
    return rows


def _layout(ground: Ground, size: Size, layout: str) -> dict[str, list[dict[str, Any]]]:
    """Jobs a second and the order kept, of ours and each peer, in turns."""
    lay = LAYOUTS[layout]
    many, few = lay(LANES, PLACES[size]), lay(LANES, SLOW_PLACES[size])
    turns, slow_turns = TURNS[size, layout]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("ours", *FAST, *SLOW)}
    with ExitStack() as open_:
        mine = open_.enter_context(project(ground, STRICT))
        seed = open_.enter_context(ground.database())
        mine.plan(seed, topics(many))
        settle(seed)
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(dir=ground.folder)))
        others = {}
        for name in (*FAST, *SLOW) if slow_turns else FAST:
            log = folder / f"{name}.log"
            waiting = peer(ground, name, PEER_KEYS=str(LANES), PEER_TASK=TASK, PEER_LOG=str(log))
            others[name] = open_.enter_context(waiting)
            others[name].enqueue(many if name in FAST else few)
        for turn in range(turns):
            found["ours"].append(_ours(ground, mine, seed, len(many)))
            for name, other in others.items():
                if name in FAST or turn < slow_turns:
                    found[name].append(_theirs(ground, other, len(many if name in FAST else few)))
    return found


def _ours(ground: Ground, mine: Project, seed: str, count: int) -> dict[str, Any]:
    log = mine.root / "runs.log"
    log.unlink(missing_ok=True)
    with ground.database(like=seed) as url:
        checkpoint(ground)
        rate = drain(ground, mine, url, count, PROCESSES)["rate"]
        with asking(url) as connection:
            rows: Any = connection.execute(ATTEMPTS).fetchall()
    record = kept(Run(lane, position, float(began), float(ended)) for lane, position, began, ended in rows)
    noted = kept(read(log))
    both = Kept(
        min(record.jobs, noted.jobs),
        max(record.twice, noted.twice),
        max(record.inversions, noted.inversions),
        max(record.overlaps, noted.overlaps),
    )
    return {"rate": rate, "kept": both}


def _theirs(ground: Ground, other: Peer, count: int) -> dict[str, Any]:
    log = Path(other.variables["PEER_LOG"])
    log.unlink(missing_ok=True)
    with ground.database(like=other.url) as url:
        checkpoint(ground)
        rate = other.at(url).drain(count, PROCESSES)
    return {"rate": rate, "kept": kept(read(log))}


def _rate(runs: Sequence[Mapping[str, Any]]) -> float:
    return median(float(run["rate"]) for run in runs)


def _told(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"jobs_s": run["rate"], **asdict(run["kept"])} for run in runs]
