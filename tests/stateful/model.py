"""The reference model: what the database should hold, and how order follows from it, as parts 3 to 5 of the design say.

It shares the names of the states with the product and nothing else. Time is left out: whatever is tried again is due at
once, and a lease is over when the test says so. ``saying.py`` has what workers say, ``asking.py`` what people ask of
jobs, ``house.py`` what they do to lanes and stages.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.states import FINAL, JobState as S

EVERYWHERE = 2**31 - 1  # cleared: the topic was released before, and owes no gate anything
ASSEMBLE = "assemble"
ASSEMBLE_ATTEMPTS = 10
ROUNDS = 3


class Refusal(Exception):
    """What the product should refuse; the text is the name of its error."""


@dataclass
class Stage:
    name: str
    ordinal: int
    width: int | None
    attempts: int
    state: str = "active"


@dataclass
class Gate:
    """One lane at one stage that is, or once was, limited."""

    stage: str
    ordinal: int
    width: int | None
    passed: int = 0
    late: bool = False  # somebody was planned in a caller's own transaction: who has a turn may still wait for upkeep


@dataclass
class Lane:
    name: str
    state: str = "active"
    on_failed: str = "halt"
    next: int = 1
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # by stage: width, max_attempts
    gates: dict[str, Gate] = field(default_factory=dict)


@dataclass
class Topic:
    slug: str
    lane: str
    position: int
    version: int  # of its brief
    number: int = 1  # of its newest pass
    made_from: int | None = None
    released: bool = False
    draft: str | None = None  # the hash of its content


@dataclass
class Job:
    """One pass of a topic, or one assembly of a site: then it has no topic and no lane."""

    slug: str | None
    number: int
    lane: str | None
    position: int | None
    stage: str
    permitted: int
    state: S = S.PENDING
    cleared: int = -1
    attempts: int = 0
    returned: int = 0
    snoozed: int = 0
    round: int = 0
    rounds: int = ROUNDS
    gate: bool = False  # it takes its turn at the gate of its lane and stage
    slot: bool = False
    hold: bool = False
    cancel: bool = False
    spent: bool = False  # rejected with no round left
    error: str | None = None
    approved: str | None = None
    fence: int | None = None
    over: bool = False  # the lease
    due: bool = True
    id: int = 0  # what the database calls it; 0 until that is known


@dataclass
class Record:
    """A reservation that has ended."""

    job: int
    outcome: str
    charged: bool
    error: str | None


@dataclass
class Site:
    slug: str
    id: int
    state: str = "active"
    changed: int = 0
    built: int = 0
    stages: dict[str, Stage] = field(default_factory=dict)  # in their order
    lanes: dict[str, Lane] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)

    # Stages.

    def open_stages(self) -> list[Stage]:
        return [s for s in self.stages.values() if s.state != "retired"]

    def ordinal(self, stage: str) -> int:
        return self.stages[stage].ordinal

    def after(self, stage: str) -> Stage | None:
        """The stage that follows."""
        return next((s for s in self.open_stages() if s.ordinal > self.ordinal(stage)), None)

    def permitted(self, lane: str, stage: str) -> int:
        own: int | None = self.lanes[lane].own.get(stage, {}).get("max_attempts")
        return self.stages[stage].attempts if own is None else own

    # Jobs.

    def of_lane(self, lane: str) -> list[Job]:
        return [j for j in self.jobs if j.lane == lane]

    def unfinished(self, slug: str | None) -> Job | None:
        return next((j for j in self.jobs if j.slug == slug and j.state not in FINAL), None)

    def gate(self, job: Job) -> Gate | None:
        return self.lanes[job.lane].gates.get(job.stage) if job.lane is not None else None

    def claimable(self, stage: str) -> list[Job]:
        if self.state != "active" or (stage in self.stages and self.stages[stage].state == "paused"):
            return []
        return [
            j for j in self.jobs
            if j.stage == stage and j.state is S.PENDING and j.due and j.attempts < j.permitted
            and (j.lane is None or self.lanes[j.lane].state == "active")
        ]  # fmt: skip

    def add_assembly(self) -> None:
        """One that waits some seconds for more pages, unless there is one."""
        if self.unfinished(None) is None:
            self.jobs.append(Job(None, 1, None, None, ASSEMBLE, ASSEMBLE_ATTEMPTS, due=False))

    def look_again(self) -> None:
        self.changed += 1
        self.add_assembly()

    # Order.

    def arrive(self, job: Job, stage: str) -> None:
        """Bring a job to a stage: whether it takes its turn at a gate there, or may be worked on at once."""
        job.stage = stage
        gate = self.gate(job)
        turn = False
        if gate is not None and gate.width is not None and job.position is not None:
            turn = gate.width > 1 or (job.position > gate.passed and job.cleared < gate.ordinal)
        job.state, job.gate, job.slot, job.hold = S.WAITING if turn else S.PENDING, turn, False, False

    def head(self, lane: str, gate: Gate) -> Job | None:
        """Who stands lowest beyond ``passed`` and owes this strict gate its turn, whatever its stage and state."""
        owing = [j for j in self.of_lane(lane) if _place(j) > gate.passed and j.cleared < gate.ordinal]
        return min((j for j in owing if j.state not in FINAL), key=_place, default=None)

    def next_in_turn(self, lane: str, gate: Gate) -> list[Job]:
        """Who should be promoted at the gate."""
        if self.lanes[lane].state != "active" or gate.width is None:
            return []
        here = [j for j in self.of_lane(lane) if j.gate and j.stage == gate.stage]
        free = max(gate.width - sum(j.slot for j in here), 0)
        ready = sorted((j for j in here if j.state is S.WAITING and not j.hold), key=_place)
        if gate.width == 1:
            head = self.head(lane, gate)
            ready = [j for j in ready if j is head]
        return ready[:free]

    def promote(self, lane: str, gate: Gate) -> list[Job]:
        promoted = self.next_in_turn(lane, gate)
        for job in promoted:
            job.state, job.slot = S.PENDING, True
        gate.late = False
        return promoted

    def turns(self, lane: str | None, *, every: bool = False) -> list[Job]:
        """After a write: move ``passed`` of the lane's gates and promote; who was promoted.

        Nobody but who touches a late gate promotes there: ``every`` says that this verb touches all gates of the lane.
        """
        promoted = []
        for gate in self.lanes[lane].gates.values() if lane is not None else ():
            if gate.width == 1:
                head = self.head(lane or "", gate)
                reached = [_place(j) for j in self.of_lane(lane or "") if head is None or _place(j) < _place(head)]
                gate.passed = max((p for p in reached if p > gate.passed), default=gate.passed)
            if every or not gate.late:
                promoted += self.promote(lane or "", gate)
            elif not self.next_in_turn(lane or "", gate):
                gate.late = False
        return promoted

    def demote(self, lane: str) -> list[Job]:
        """Take the turn from whoever is pending in the lane."""
        return [self.wait(j) for j in self.of_lane(lane) if j.state is S.PENDING]

    def wait(self, job: Job) -> Job:
        job.state, job.slot = S.WAITING, False
        return job

    def make_gates(self) -> None:
        """Those that are missing; each begins behind what is over."""
        for lane in self.lanes.values():
            for stage in self.stages.values():
                width = lane.own.get(stage.name, {}).get("width", stage.width)
                if width is not None and stage.name not in lane.gates:
                    lane.gates[stage.name] = Gate(stage.name, stage.ordinal, width)
                    self.turns(lane.name)

    # Planning.

    def lane(self, name: str) -> Lane:
        """The lane, made if it is missing."""
        if name not in self.lanes:
            self.lanes[name] = Lane(name)
            self.make_gates()
        return self.lanes[name]

    def plan(self, rows: Iterable[tuple[str, str, int]]) -> dict[str, Any]:
        """Topics of a file as (lane, slug, version); the answer's numbers by name."""
        rows = list(rows)
        for name in sorted({lane for lane, _, _ in rows}):
            self.lane(name)
        if any(slug in self.topics and self.topics[slug].lane != lane for lane, slug, _ in rows):
            raise Refusal("ProjectError")
        told: dict[str, Any] = {"new": 0, "changed": 0, "unchanged": 0, "busy": 0, "closed": []}
        for lane, slug, version in rows:
            topic = self.topics.get(slug)
            same = topic is not None and topic.version == version and topic.made_from in (None, version)
            if same:
                told["unchanged"] += 1
            elif self.lanes[lane].state == "closed":
                told["closed"].append(slug)
            elif topic is None:
                told["new"] += 1
                job = self.begin(self.add_topic(lane, slug, version))
                if self.lanes[lane].state != "active":
                    self.wait(job)
            elif self.unfinished(slug) is not None:
                told["busy"] += 1
                topic.version = version
            else:
                told["changed"] += 1
                topic.version, topic.number = version, topic.number + 1
                self.begin(topic)
        told["absent"] = sorted(self.topics.keys() - {slug for _, slug, _ in rows})
        told["closed"].sort()
        for here in self.lanes.values():
            self.turns(here.name)
        return told

    def add_topic(self, lane: str, slug: str, version: int) -> Topic:
        here = self.lanes[lane]
        topic = self.topics[slug] = Topic(slug, lane, here.next, version)
        here.next += 1
        return topic

    def begin(self, topic: Topic) -> Job:
        """The topic's next pass, at the first stage."""
        first = self.open_stages()[0].name
        job = Job(topic.slug, topic.number, topic.lane, topic.position, first, self.permitted(topic.lane, first))
        job.cleared = EVERYWHERE if topic.released else -1
        self.jobs.append(job)
        self.arrive(job, first)
        return job

    def plan_inside(self, rows: Iterable[tuple[str, str, int]]) -> list[tuple[str, int, bool]]:
        """Topics planned in a caller's own transaction: ``(slug, position, new)`` of each."""
        rows = list(rows)
        for name in sorted({lane for lane, _, _ in rows}):
            if self.lane(name).state == "closed":
                raise Refusal("Refused")
        told = []
        for lane, slug, version in rows:
            topic = self.topics.get(slug)
            if topic is not None and (topic.lane, topic.version) != (lane, version):
                raise Refusal("Conflict")
            if new := topic is None:
                topic = self.add_topic(lane, slug, version)
                job = self.begin(topic)
                if self.lanes[lane].state != "active":
                    self.wait(job)
                elif job.gate:
                    self.lanes[lane].gates[job.stage].late = True
            told.append((slug, topic.position, new))
        for name in {lane for lane, _, _ in rows}:
            self.turns(name)
        return told

    def prune(self) -> tuple[int, int, set[int]]:
        """Take away finished passes that others have followed; how many, how many assemblies, and the ids of all."""
        gone: list[Job] = []
        for job in self.jobs:
            if job.state not in FINAL:
                continue
            if job.slug is None:
                newest = [j for j in self.jobs if j.slug is None][-1]
                gone += [job] if job is not newest else []
            elif job.number < self.topics[job.slug].number:
                gates = self.lanes[job.lane or ""].gates.values()
                beyond = any(g.width == 1 and _place(job) > g.passed for g in gates)
                gone += [] if beyond else [job]
        self.jobs = [j for j in self.jobs if not any(j is g for g in gone)]
        passes = sum(j.slug is not None for j in gone)
        return passes, len(gone) - passes, {j.id for j in gone}


def _place(job: Job) -> int:
    return job.position or 0


@dataclass
class World:
    """Everything; and each move that was made, for those who count."""

    sites: dict[str, Site] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)  # by fence
    moves: list[tuple[str, S, S]] = field(default_factory=list)  # verb, from, to

    def copy(self) -> "World":
        twin: World = pickle.loads(pickle.dumps(self))
        return twin

    def jobs(self) -> Iterator[tuple[Site, Job]]:
        for site in self.sites.values():
            for job in site.jobs:
                yield site, job

    def find(self, job_id: int) -> tuple[Site, Job] | None:
        return next(((site, job) for site, job in self.jobs() if job.id == job_id), None)

    def late(self) -> bool:
        return any(g.late for s in self.sites.values() for lane in s.lanes.values() for g in lane.gates.values())
