"""What the model of one lane knows: jobs, workers, reapers, gates, and the bounds within which it is explored.

Everything is a tuple, so that two worlds that look alike are one. Positions are places in ``World.jobs``; a stage is
its index, which is its ordinal as well. Tokens are small numbers, and stand for fences too: a claim takes one job.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.states import JobState as S

NOBODY = 0  # the token of what is not reserved

WORKER = frozenset({"advance", "reject", "retry", "snooze", "hold", "fail", "repair", "release"})
"""What a worker says of a job that it holds."""

BY_ITSELF = frozenset({"claim", "renew", "expire", "crash", "look", "reap", "settle"}) | WORKER
"""What happens without a person."""

PEOPLE = frozenset({"cancel", "force", "requeue", "send back", "skip", "grant", "approve", "pause", "resume"})

EVERYTHING = BY_ITSELF | PEOPLE


class Job(NamedTuple):
    """One topic's pass. The last two are kept for the judge alone: no rule reads them."""

    state: S
    stage: int
    cleared: int  # the highest stage from which it was released; -1: none
    attempts: int  # charged at this stage
    permitted: int
    returned: int  # attempts that releases gave back
    rounds: int  # how often it may still be rejected
    gate: bool = False  # it takes its turn at the gate of its stage
    slot: bool = False
    hold: bool = False
    cancel: bool = False  # a cancel was asked for
    spent: bool = False  # rejected with no round left
    token: int = NOBODY
    over: bool = False  # the lease
    runs: int = 0  # reservations at this stage that nothing gave back
    completions: int = 0  # accepted Done of the last stage


class Worker(NamedTuple):
    """What one worker believes: the job that it holds, and the write whose answer it waits for."""

    job: int = -1
    token: int = NOBODY
    said: str = ""


class Candidate(NamedTuple):
    """What one reaper has read and not yet acted upon."""

    job: int = -1
    token: int = NOBODY


IDLE = Worker()
NOTHING = Candidate()


class World(NamedTuple):
    jobs: tuple[Job, ...]
    workers: tuple[Worker, ...]
    reapers: tuple[Candidate, ...]
    passed: tuple[int, ...]  # by stage: how many positions from the start are released or skipped; 0 without a gate
    active: bool  # the lane is not paused
    records: tuple[tuple[int, str], ...]  # ended reservations: token and outcome


class Step(NamedTuple):
    """What led from one world to the next."""

    verb: str
    job: int = -1
    worker: int = -1  # or the reaper
    reply: str = ""  # what the worker hears: written, lost; empty: the answer did not come
    again: bool = False  # a write whose answer did not come is sent once more

    @property
    def name(self) -> str:
        return "resend" if self.again else self.verb

    def __str__(self) -> str:
        who = f"worker {self.worker}: " if self.verb in WORKER | {"claim", "renew", "crash"} else ""
        of = f" job {self.job + 1}" if self.job >= 0 else ""
        heard = f" → {self.reply}" if self.reply else " (no answer)" if self.verb in WORKER else ""
        return f"{who}{'resend ' * self.again}{self.verb}{of}{heard}"


@dataclass(frozen=True, slots=True)
class Scope:
    """How large a lane is explored, and which verbs take part."""

    name: str
    workers: int
    jobs: int
    attempts: int  # that a stage permits
    most: int = 0  # attempts up to which people may grant more; 0: ``attempts``
    grant: int = 1
    rounds: int = 1
    reapers: int = 1
    strict: tuple[bool, ...] = (False, True)  # by stage: it is strict, or has no limit
    skips: bool = False  # on_failed = "skip"
    verbs: frozenset[str] = EVERYTHING
    unsure: frozenset[str] = frozenset({"advance"})  # verbs whose answer may be lost

    @property
    def last(self) -> int:
        return len(self.strict) - 1

    @property
    def gates(self) -> tuple[int, ...]:
        """The stages that have a strict gate."""
        return tuple(s for s, strict in enumerate(self.strict) if strict)


class Draft:
    """A world while a step changes it."""

    __slots__ = ("active", "jobs", "passed", "reapers", "records", "workers")

    def __init__(self, world: World) -> None:
        self.jobs = list(world.jobs)
        self.workers = list(world.workers)
        self.reapers = list(world.reapers)
        self.passed = list(world.passed)
        self.active = world.active
        self.records = dict(world.records)

    def world(self) -> World:
        return World(
            tuple(self.jobs), tuple(self.workers), tuple(self.reapers), tuple(self.passed), self.active,
            tuple(self.records.items()),
        )  # fmt: skip


def tokens(world: World) -> Iterator[int]:
    """Every token that anybody still knows."""
    for job in world.jobs:
        yield job.token
    for worker in world.workers:
        yield worker.token
    for reaper in world.reapers:
        yield reaper.token


def canonical(world: World, interned: dict[Job, Job]) -> World:
    """The same world with tokens named by where they stand, workers and reapers sorted, and forgotten records dropped.

    Sound, since tokens are compared and never ordered, and one worker is as good as another.
    """
    names = {NOBODY: NOBODY}
    jobs = []
    for job in world.jobs:
        if job.token:
            name = names.setdefault(job.token, len(names))
            if name != job.token:
                job = job._replace(token=name)
        jobs.append(interned.setdefault(job, job))
    # By whom else a reservation was ended makes no difference to its worker.
    outcomes = {token: "taken" if how in ("expired", "forced") else how for token, how in world.records}
    workers = world.workers
    if len(workers) > 1:
        keys = [(w.job, names.get(w.token, -1), w.said, outcomes.get(w.token, ""), w) for w in workers]
        workers = tuple([w for *_, w in sorted(keys)])
    named = tuple([_named(w, names) for w in workers])
    kept = tuple(sorted([(names[t], o) for t, o in outcomes.items() if t in names])) if outcomes else ()
    reapers = world.reapers
    if len(reapers) > 1:
        reapers = tuple(sorted(reapers, key=lambda r: (r.job, names.get(r.token, len(names)))))
    looked = tuple([Candidate(r.job, names.setdefault(r.token, len(names))) if r.job >= 0 else r for r in reapers])
    return World(tuple(jobs), named, looked, world.passed, world.active, kept)


def _named(worker: Worker, names: dict[int, int]) -> Worker:
    name = names.setdefault(worker.token, len(names))
    return worker if name == worker.token else Worker(worker.job, name, worker.said)
