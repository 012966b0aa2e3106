"""What stages and jobs noted of their runs, ours and the peers' alike: did each lane keep its order, one at a time?"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one job; times in seconds."""

    key: int
    seq: int
    began: float
    ended: float
    process: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """How well the order was kept, over all lanes."""

    jobs: int  # different ones
    twice: int  # runs of a job that had run before
    inversions: int  # that began after a later one of their lane
    overlaps: int  # that began before one that had begun earlier in their lane was over

    @property
    def strictly(self) -> bool:
        return not (self.twice or self.inversions or self.overlaps)


def read(file: Path) -> list[Run]:
    """The runs in a log of lines ``key seq began ended process``."""
    if not file.exists():
        return []
    fields = (line.split() for line in file.read_text().splitlines())
    return [Run(int(key), int(seq), float(began), float(ended), int(pid)) for key, seq, began, ended, pid in fields]


def kept(runs: Iterable[Run]) -> Kept:
    lanes: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        lanes[run.key].append(run)
    twice = inversions = overlaps = jobs = 0
    for lane in lanes.values():
        lane.sort(key=lambda run: run.began)
        seen: set[int] = set()
        highest, busy_until = -1, 0.0
        for run in lane:
            twice += run.seq in seen
            inversions += run.seq < highest
            overlaps += run.began < busy_until
            seen.add(run.seq)
            highest, busy_until = max(highest, run.seq), max(busy_until, run.ended)
        jobs += len(seen)
    return Kept(jobs, twice, inversions, overlaps)
