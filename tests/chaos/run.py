"""One chaos run: load, faults and auditor beside one another, then calm, then the history checker."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.db import make_engine
from pipeline.testing.database import SCHEMA
from tests.chaos import checker
from tests.chaos.auditor import Auditor
from tests.chaos.faults import Faults, Witnessed, plan
from tests.chaos.history import History
from tests.chaos.load import Load
from tests.chaos.loading import load, suicides
from tests.chaos.proxy import Loop, Proxy
from tests.chaos.records import Broken, Death, Records
from tests.chaos.scene import DURABLE, REAP, SETTINGS, Database, Fleet, register, wait_for_workers, write_project
from tests.chaos.work import LEASE

BOUND = LEASE.total_seconds() + REAP + 1
DRAIN = 120.0  # seconds that the end may take
LONGER = 2.5
LINES = 1.0  # that a worker may write to its log, a second


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    seconds: float
    workers: int
    sites: int
    backlog: int  # unfinished topics of a site at which planners wait
    pace: float  # seconds between two calls of a client
    faults: Mapping[str, int]
    jobs: int = 0  # that there are to be at least, if that comes within ``LONGER`` times the seconds
    durable: bool = True  # the server keeps what it committed through a power failure, not only through its own end


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    version: str
    seconds: float
    records: Records
    witnessed: list[Witnessed]
    missed: Counter[str]
    samples: int
    reads: int
    stall: float
    codes: dict[str, int]
    codes_of_workers: Counter[int]
    broken: list[Broken] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        return sum(job.topic is not None for job in self.records.jobs.values())

    def summary(self) -> str:
        kinds = Counter(fault.kind for fault in self.witnessed)
        took, _ = checker.recoveries(self.records)
        took.sort()
        worst = f"p99 {took[int(len(took) * 0.99)]:.2f} s, worst {took[-1]:.2f} s" if took else "none"
        answers = Counter(call.answer for call in self.records.calls)
        states = Counter(job.state for job in self.records.jobs.values() if job.topic is not None)
        outcomes = Counter(a.outcome for a in self.records.attempts.values())
        lines = [
            f"seed {self.seed}, PostgreSQL {self.version}, {self.seconds:.0f} s",
            f"{self.jobs} jobs, {len(self.witnessed)} injected and witnessed faults of {len(kinds)} kinds,"
            f" {len(self.broken)} violations;"
            + (
                f" with 95 % confidence fewer than {300 / max(len(self.witnessed), 1):.2f} % of such faults lead to a"
                " violation that the checker can see"
                if not self.broken
                else ""
            ),
            "faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())),
            "did not bite: " + (", ".join(f"{kind} {n}" for kind, n in sorted(self.missed.items())) or "none"),
            f"reservations: {sum(outcomes.values())} ({_counts(outcomes)}); jobs: {_counts(states)}",
            f"calls: {_counts(answers)}; {self.samples} audits, {self.reads} rounds of reading",
            f"overlapping executions: {checker.overlaps(self.records)[0]}, each after its lease was lost",
            f"recoveries without an outage: {len(took)}, {worst} (bound {BOUND:g} s; this machine stood still for up"
            f" to {self.stall:.2f} s)",
            f"workers ended with: {_counts(self.codes_of_workers)}; SQLSTATEs told: {_counts(self.codes)}",
        ]
        return "\n".join([*lines, *(f"VIOLATION {broken}" for broken in self.broken[:50])])


def _counts(counted: Mapping[Any, int]) -> str:
    return ", ".join(f"{key} {count}" for key, count in sorted(counted.items(), key=lambda item: str(item[0])))


def run(
    folder: Path, size: Size, seed: int, *, binaries: Path | None = None, say: Callable[[str], None] = print
) -> Outcome:
    """Do it; the outcome names every promise that was broken."""
    planned = plan(seed, size.seconds, size.faults)
    say(f"seed {seed}; plan: " + ", ".join(f"{fault.at:g} {fault.kind}" for fault in planned[:400]))
    with ExitStack() as last:
        settings = SETTINGS | (DURABLE if size.durable else {})
        database = Database(folder / "server", settings, binaries)
        last.callback(database.stop)
        sites = [f"site-{number}" for number in range(size.sites)]
        root = folder / "project"
        write_project(root, sites)
        ids = register(database, root, sites)
        loop = Loop()
        last.callback(loop.stop)
        proxies = [Proxy(loop, database.scratch.address, database.scratch.port) for _ in range(2)]
        fleet = Fleet(root, database, loop, size.workers, seed)
        fleet.start()
        last.callback(fleet.stop)
        urls = [database.url(), *(database.url(proxy.port) for proxy in proxies)]
        history = folder / "history.jsonl"
        clients = Load(History(history), ids, urls, seed, size.backlog, pace=size.pace)
        auditor = Auditor(database)
        faults = Faults(database, fleet, proxies, random.Random(f"{seed}/victims"))
        clients.start()
        wait_for_workers(database, size.workers)
        auditor.start()

        began = time.monotonic()
        faults.run(planned)
        while time.monotonic() < began + size.seconds * (LONGER if clients.planned < size.jobs else 1):
            time.sleep(0.1)
        clients.planning.set()
        clients.stop()
        say(f"calm after {time.monotonic() - began:.0f} s")
        drained = clients.drain(root, database.url(), DRAIN)
        seconds = time.monotonic() - began
        sessions = database.ask(
            "SELECT application_name, state FROM pg_stat_activity WHERE usename = 'pipeline'"
            " AND state LIKE 'idle in transaction%' AND state_change < now() - interval '1 second'"
        )
        auditor.stop()
        fleet.stop()
        violations = [*auditor.found, *auditor.last()]

        engine = make_engine(database.url(), schema=SCHEMA, connections=1, name="chaos records")
        killed = suicides(root)
        records = load(
            engine,
            root,
            history,
            deaths=_deaths(fleet, faults.done, killed),
            outages=[*faults.outages, *auditor.stuck],
            bound=BOUND + 2 * auditor.stall,
        )
        engine.dispose()
        broken = checker.check(records)
        told = {f"{v.invariant}{v.row}": v for v in violations}  # once, however often it was seen
        broken += [Broken(9, f"{v.invariant}: {v.meaning}", v.row) for v in told.values()]
        if not drained:
            broken.append(Broken(10, f"work did not end within {DRAIN:g} s of calm"))
        broken += [Broken(10, "a session idle in transaction", {"session": session}) for session in sessions]
        broken += _workers(fleet, killed, seconds)
        broken += [Broken(0, error) for error in (*clients.errors, *faults.errors)]
        codes = database.codes()
        version = database.version()
    return Outcome(
        seed, version, seconds, records, faults.done, faults.missed, auditor.samples, clients.read, auditor.stall,
        codes, Counter(ended.code for ended in fleet.ended), broken,
    )  # fmt: skip


def _deaths(fleet: Fleet, witnessed: Sequence[Witnessed], killed: set[int]) -> list[Death]:
    """Processes that could do nothing any more for what they held."""
    gone = [
        Death(e.pid, e.at, still=False)
        for e in fleet.ended
        if e.code == -signal.SIGKILL and (e.pid in killed or e.because == "SIGKILL")
    ]
    return gone + [
        Death(fault.pid, fault.began, still=True)
        for fault in witnessed
        if fault.kind == "pause-long" and fault.pid is not None
    ]


def _workers(fleet: Fleet, killed: set[int], seconds: float) -> list[Broken]:
    """(11) Workers end as they were told to, tell no tracebacks, and are not talkative."""
    broken = []
    for ended in fleet.ended:
        # 3: the server was away, or refused, at its very start. 1: it could not give back what it held in time.
        expected = {"SIGKILL": {-9}, "SIGTERM": {0, 1, 3}, "the end": {0}}.get(ended.because, {3})
        if ended.code not in expected | ({-9} if ended.pid in killed else set()):
            broken.append(
                Broken(
                    11,
                    "a worker ended by itself",
                    {"pid": ended.pid, "code": ended.code, "because": ended.because or "nothing"},
                )
            )
    for name, lines in fleet.logs().items():
        if any("Traceback" in line for line in lines):
            broken.append(Broken(11, "a traceback in a log", {"log": name}))
        told = [line for line in lines if "lost job" not in line]  # one for each job, once
        if len(told) > LINES * seconds:
            broken.append(Broken(11, "too many lines in a log", {"log": name, "lines": len(told)}))
    return broken
