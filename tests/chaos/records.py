"""The three logs of a chaos run as plain records: what clients were told, what the database says, what stages did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import Call

STRICT = "publish"


@dataclass(frozen=True, slots=True)
class Topic:
    id: int
    site: str
    lane: str
    slug: str
    position: int
    placed_at: float  # wall


@dataclass(frozen=True, slots=True)
class Job:
    id: int
    topic: int | None  # None: a site's own
    number: int  # of the pass
    stage: str
    round: int
    state: str
    attempts: int
    max_attempts: int
    finished_at: float | None  # wall
    error_class: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    fence: int
    job: int
    stage: str
    round: int
    outcome: str
    charged: bool
    reserved_at: float  # wall, the server's
    ended_at: float
    pid: int
    error_class: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    job: int | None
    verb: str
    from_state: str | None
    to_state: str | None
    reason: str
    at: float  # wall


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a stage, as the stage wrote it down. ``end`` is missing when its process was killed."""

    fence: int
    topic: int
    stage: str
    pid: int
    start: float  # seconds since boot
    wall: float  # the same moment
    end: float | None
    end_wall: float | None = None
    wrote: tuple[str, ...] = ()  # keys of pages


@dataclass(frozen=True, slots=True)
class Page:
    """What the ledger calls live."""

    site: str
    key: str
    hash: str
    topic: int | None
    fence: int


@dataclass(frozen=True, slots=True)
class Death:
    """A worker process that was killed, or stood still, beyond its lease."""

    pid: int
    at: float  # wall
    still: bool  # it only stood still


@dataclass(frozen=True, slots=True)
class Records:
    """All of it, after the end."""

    calls: Sequence[Call]
    topics: Mapping[int, Topic]
    jobs: Mapping[int, Job]
    attempts: Mapping[int, Attempt]  # by fence
    events: Sequence[Event]
    runs: Mapping[int, Run]  # by fence
    pages: Sequence[Page]
    files: Mapping[tuple[str, str], str]  # by site and key: the hash of its bytes
    deaths: Sequence[Death] = ()
    outages: Sequence[tuple[float, float]] = ()  # wall: the server was away, or locks stood still
    bound: float = 3.5  # lease + reap + 1 s
    double_runs: Sequence[int] = field(default=())  # fences under which a stage ran more than once


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was not kept. ``point`` is the number of the history checker's list."""

    point: int
    what: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        more = ", ".join(f"{key} {value}" for key, value in self.details.items())
        return f"({self.point}) {self.what}" + (f": {more}" if more else "")
