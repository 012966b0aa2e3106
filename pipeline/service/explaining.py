"""Why a topic, a lane or a site does not move, and what of a site goes wrong; floor 2.

Each answer comes from one read-only transaction, hence from one moment. It reads facts and leaves the words to
``reasons``; it changes nothing, and asks no worker.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from pipeline.errors import NotFound
from pipeline.service.base import Service
from pipeline.service.reasons import Reason, Scene, Shut, ago, no_worker, of_job, shut_lane, shut_site
from pipeline.service.roster import Hand, hands
from pipeline.sql import explain, plan, reads, roster
from pipeline.sql.batch import bound
from pipeline.states import FINAL, JobState as S

SHOWN = 20  # lanes of a site, jobs of a symptom, holders of a gate


@dataclass(frozen=True, slots=True)
class Patience:
    """From when on things count as late: a worker unseen for ``seen``, a job due and unclaimed for ``overdue``."""

    seen: timedelta
    overdue: timedelta


@dataclass(frozen=True, slots=True)
class Live:
    """One page of a topic that readers can see."""

    target: str
    path: str
    since: datetime


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """Where a topic stands, and why. No job: nothing of it is kept or planned."""

    site: str
    topic: str
    lane: str
    position: int
    number: int
    job: int | None
    stage: str | None
    state: str | None
    since: datetime | None
    live: tuple[Live, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class GateLine:
    """One gate of a lane; ``head``: for whom it waits, where it is strict."""

    stage: str
    width: int | None
    passed: int
    used: int
    waiting: int
    head: Reason | None


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """Where a lane stands, and why."""

    site: str
    lane: str
    state: str
    on_failed: str
    gates: tuple[GateLine, ...]
    standing: tuple[tuple[str, str, int], ...]  # (stage, state, count) of what is unfinished
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class StillLane:
    """A lane that does not move, and why."""

    lane: str
    kind: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class SiteAnswer:
    """Where a site stands, and why."""

    site: str
    state: str
    hands: tuple[Hand, ...]
    counts: dict[str, int]  # unfinished jobs by state
    still: dict[str, int]  # lanes that do not move, by kind
    lanes: tuple[StillLane, ...]  # the first of them
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One of the three ways in which jobs go wrong unseen, and the jobs."""

    name: str
    count: int
    reasons: tuple[Reason, ...] = field(default=())


class Explaining(Service):
    """What people ask when something stands still."""

    def topic(self, site_id: int, slug: str, patience: Patience) -> TopicAnswer:
        """Raises NotFound when the site has no such topic."""
        with self._moment(site_id, patience) as look:
            row = look.one(explain.topic(), slug=slug)
            if row is None:
                raise NotFound(f"no topic {slug!r} in this site; see: pipeline topics list")
            job = look.job(row.job)
            live = tuple(
                Live(page.target, page.live_path, page.changed_at)
                for page in look.all(reads.topic_publications(), topic_id=row.id)
            )
            reasons = look.over(row, job, live) if job is None or S(job.state) in FINAL else look.why(job)
            return TopicAnswer(
                site=look.scene.site,
                topic=row.slug,
                lane=row.lane,
                position=row.position,
                number=row.number,
                job=row.job,
                stage=None if job is None else job.stage,
                state=None if job is None else str(job.state),
                since=None if job is None else job.since,
                live=live,
                reasons=tuple(reasons),
            )

    def lane(self, site_id: int, name: str, patience: Patience) -> LaneAnswer:
        """Raises NotFound when the site has no such lane."""
        with self._moment(site_id, patience) as look:
            row = look.one(explain.lane(), name=name)
            if row is None:
                raise NotFound(f"no lane {name!r} in this site; see: pipeline lanes list")
            found = look.all(explain.lane_gates(), lane_id=row.id)
            jobs = look.jobs(g.head for g in found)
            heads = {g.id: look.head(jobs[g.head]) for g in found if g.head in jobs}
            gates = tuple(GateLine(g.stage, g.width, g.passed, g.used, g.waiting, heads.get(g.id)) for g in found)
            standing = tuple(
                (s.stage, str(s.state), s.count) for s in look.all(explain.lane_standing(), lane_id=row.id)
            )
            reasons = shut_site(look.scene)
            if row.state != "active":
                look.note_lane(row.id)
                reasons += shut_lane(look.scene, row.id, row.name, row.state)
            if not standing:
                reasons.append(Reason("idle", "nothing of it is unfinished"))
            # The last strict gate's head is the lane's; an earlier gate with another is told as well.
            told = {head.job: head for head in heads.values()}
            reasons += told.values()
            return LaneAnswer(look.scene.site, row.name, row.state, row.on_failed, gates, standing, tuple(reasons))

    def site(self, site_id: int, patience: Patience) -> SiteAnswer:
        with self._moment(site_id, patience) as look:
            still = look.all(explain.still_lanes(self._clock))
            jobs = look.jobs(lane.head for lane in still[:SHOWN])
            lanes = []
            for lane in still[:SHOWN]:
                if lane.state != "active":
                    look.note_lane(lane.id)
                shut = shut_lane(look.scene, lane.id, lane.name, lane.state) if lane.state != "active" else []
                why = [look.head(jobs[lane.head])] if lane.head in jobs and not shut else []
                lanes.append(StillLane(lane.name, lane.kind, (*shut, *why)))
            counts: dict[str, int] = {}
            for row in look.all(reads.unfinished(self._clock)):
                counts[row.state] = counts.get(row.state, 0) + row[2]
            kinds: dict[str, int] = {}
            for lane in still:
                kinds[lane.kind] = kinds.get(lane.kind, 0) + 1
            scene = look.scene
            reasons = [*shut_site(scene), *look.stages_shut()]
            if counts and not scene.hands:
                reasons.append(no_worker(scene))
            reasons += look.assembly()
            if not counts:
                reasons.append(Reason("idle", "nothing of it is unfinished"))
            return SiteAnswer(scene.site, scene.state, tuple(scene.hands), counts, kinds, tuple(lanes), tuple(reasons))

    def symptoms(self, site_id: int, patience: Patience) -> tuple[Symptom, ...]:
        """The three: reserved without heartbeat; failing fast again and again; never leaves pending."""
        with self._moment(site_id, patience) as look:
            late = [row.id for row in look.all(explain.late(self._clock), limit=SHOWN)]
            fast = {row.id: row.times for row in look.all(explain.failing_fast(), limit=SHOWN)}
            due = look.all(explain.unclaimed(self._clock), overdue_seconds=patience.overdue.total_seconds())
            jobs = look.jobs([*late, *fast, *(row.example for row in due)])
            return (
                Symptom("reserved without heartbeat", len(late), tuple(of_job(jobs[i], look.scene)[0] for i in late)),
                Symptom(
                    "failing fast again and again", len(fast), tuple(_fast(jobs[i], fast[i], look.scene) for i in fast)
                ),
                Symptom(
                    "never leaves pending",
                    sum(row.count for row in due),
                    tuple(_unclaimed(row, jobs[row.example], look.scene) for row in due),
                ),
            )

    @contextmanager
    def _moment(self, site_id: int, patience: Patience) -> Iterator["_Look"]:
        with self._engine.connect() as connection, connection.begin():
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            yield _Look(self, connection, site_id, patience)


class _Look:
    """One moment of one site."""

    def __init__(self, service: Service, connection: Connection, site_id: int, patience: Patience) -> None:
        self._clock = service._clock
        self._connection = connection
        self._site_id = site_id
        site = self.one(explain.site(self._clock))
        if site is None:
            raise NotFound("the site is gone; see: pipeline sites list")
        self._assembly = site.assembly
        self._order = self.all(plan.known_stages())
        at_work = hands(self.all(roster.listing(self._clock)), patience.seen)
        self.scene = Scene(
            site=site.slug,
            state=site.state,
            now=site.now,
            hands=tuple(hand for hand in at_work if hand.works_on(site.slug)),
            first_stage=next((row.name for row in self._order if row.state != "retired"), None),
            overdue_seconds=patience.overdue.total_seconds(),
            site_shut=self._shut(explain.shut_site()) if site.state != "active" else Shut(),
            lanes_shut={},
            stages_shut={
                row.name: self._shut(explain.shut_stage(), stage=row.name)
                for row in self._order
                if row.state != "active"
            },
        )

    def all(self, statement: Any, **values: Any) -> Sequence[Any]:
        return self._connection.execute(statement, bound(site_id=self._site_id, **values)).all()

    def one(self, statement: Any, **values: Any) -> Any:
        return self._connection.execute(statement, bound(site_id=self._site_id, **values)).one_or_none()

    def jobs(self, ids: Iterable[int | None]) -> dict[int, Any]:
        wanted = sorted({i for i in ids if i is not None})
        return {row.id: row for row in self.all(explain.passes(self._clock), ids=wanted)} if wanted else {}

    def job(self, job_id: int | None) -> Any:
        return self.jobs([job_id]).get(job_id) if job_id is not None else None

    def _shut(self, statement: Any, **values: Any) -> Shut:
        row = self.one(statement, **values)
        return Shut() if row is None else Shut(row.actor, row.at, row.reason)

    def note_lane(self, lane_id: int) -> None:
        """Look up who shut a lane."""
        known = {**self.scene.lanes_shut, lane_id: self._shut(explain.shut_lane(), lane_id=lane_id)}
        self.scene = replace(self.scene, lanes_shut=known)

    def stages_shut(self) -> list[Reason]:
        return [
            Reason(
                "stage-paused",
                f"stage {row.name} is paused{self.scene.stages_shut[row.name]}",
                self.scene.stages_shut[row.name].at,
                details={"stage": row.name},
                commands=(f"pipeline stages resume {row.name} --site {self.scene.site}",),
            )
            for row in self._order
            if row.state == "paused"
        ]

    def why(self, job: Any) -> list[Reason]:
        """The reasons of an unfinished job, its gate's included."""
        if job.lane_id is not None and job.lane_state != "active":
            self.note_lane(job.lane_id)
        found = of_job(job, self.scene)
        if job.state != S.WAITING or job.gate_id is None:
            return found
        gate = self.one(explain.gate(), gate_id=job.gate_id)
        if gate.width == 1 and gate.head != job.id:
            return [*found, self._behind(job, gate)]
        if found:
            return found
        if gate.width is not None and gate.used >= gate.width:
            return [self._full(job, gate)]
        text = f"its turn at {job.stage} has come, and was not given yet: the next upkeep of a worker does"
        turn = Reason("promotable", text, job.since, job.id, job.topic)
        return [turn] if self.scene.hands else [turn, no_worker(self.scene)]

    def _behind(self, job: Any, gate: Any) -> Reason:
        head = self.job(gate.head)
        if head is None:  # nobody owes the gate a turn, so it is its own
            return Reason("promotable", f"its turn at {job.stage} has come", job.since, job.id, job.topic)
        ahead = self.head(head)
        text = f"waits at {job.stage} for its turn: the head of lane {job.lane} is {head.topic}, {_stands(head)}"
        details = {"lane": job.lane, "position": job.position, "head_position": head.position}
        return Reason("behind", text, job.since, head.id, head.topic, details, ahead.commands, ahead.because)

    def _full(self, job: Any, gate: Any) -> Reason:
        held = self.all(explain.holders(), gate_id=gate.id, limit=SHOWN)
        names = ", ".join(f"{row.topic} (job {row.id}, {row.state})" for row in held)
        text = f"waits at {job.stage} for one of the lane's {gate.width} places; they are taken by {names}"
        details = {"width": gate.width, "jobs": [row.id for row in held]}
        return Reason("gate-full", text, job.since, job.id, job.topic, details)

    def head(self, head: Any) -> Reason:
        """The head of a lane with its own reasons; what it waits for itself is named, and followed no further."""
        if head.lane_id is not None and head.lane_state != "active":
            self.note_lane(head.lane_id)
        because = of_job(head, self.scene)
        if not because and head.state == S.WAITING:
            gate = self.one(explain.gate(), gate_id=head.gate_id) if head.gate_id is not None else None
            if gate is not None and gate.head is not None and gate.head != head.id:
                because = [Reason("behind", f"waits at {head.stage} behind job {gate.head}", head.since, gate.head)]
            elif gate is not None and gate.width is not None and gate.used >= gate.width:
                because = [self._full(head, gate)]
            else:
                because = [Reason("promotable", f"its turn at {head.stage} has come", head.since, head.id, head.topic)]
        commands = tuple(dict.fromkeys(c for reason in because for c in reason.commands))
        details = {"position": head.position, "stage": head.stage, "state": str(head.state)}
        text = f"its head is {head.topic} (position {head.position}), {_stands(head)}"
        return Reason("head", text, head.since, head.id, head.topic, details, commands, tuple(because))

    def over(self, topic: Any, job: Any, live: Sequence[Live]) -> list[Reason]:
        """Of a topic whose newest pass has ended for good."""
        scene = self.scene
        if job is not None and job.state == S.SKIPPED:
            by = f" by {job.noted_actor}" if job.noted_verb == "skip" else ", as its lane goes on over what failed"
            why = job.noted_reason if job.noted_verb == "skip" else job.last_error
            text = f"skipped at {job.stage}, {ago((scene.now - job.since).total_seconds())} ago{by}"
            text += f": {why}" if why else ""
            found = [Reason("skipped", text, job.since, job.id, job.topic, {"by": job.noted_actor, "reason": why})]
        elif live:
            since = live[0].since
            text = f"live at {live[0].path} for {ago((scene.now - since).total_seconds())}; nothing is to be done"
            found = [Reason("live", text, since, topic.job, topic.slug)]
        else:
            found = [Reason("done", "its last pass is done, and nothing of it is live", None, topic.job, topic.slug)]
        return found + (self.assembly() if live else [])

    def assembly(self) -> list[Reason]:
        """The site's own job, while it is unfinished."""
        job = self.job(self._assembly)
        if job is None:
            return []
        why = of_job(job, self.scene)
        text = f"home, sitemap and feeds are still to be built: the site's own job is {job.state}"
        commands = tuple(c for reason in why for c in reason.commands)
        return [Reason("assembly", text, job.since, job.id, None, {}, commands, tuple(why))]


def _stands(job: Any) -> str:
    held = ", held" if job.hold is not None else ""
    return f"which is {job.state}{held} at {job.stage} (job {job.id})"


def _fast(job: Any, times: int, scene: Scene) -> Reason:
    tries = f"attempt {job.attempts} of {job.max_attempts}"
    text = f"{job.state} at {job.stage}, {tries}; {times} of its last attempts failed within seconds"
    text += f": {job.last_error}" if job.last_error else ""
    details = {"times": times, "attempts": job.attempts, "max_attempts": job.max_attempts, "error": job.last_error}
    show = [f"pipeline topics show {scene.site}/{job.topic}"] if job.topic is not None else []
    commands = (*show, f"pipeline jobs cancel {job.id}")
    return Reason("failing-fast", text, job.since, job.id, job.topic, details, commands)


def _unclaimed(row: Any, job: Any, scene: Scene) -> Reason:
    why = of_job(job, scene)
    due = ago((scene.now - row.since).total_seconds())
    text = f"{row.count} at {row.stage}, due for up to {due}, such as job {job.id}"
    commands = tuple(dict.fromkeys(c for reason in why for c in reason.commands))
    return Reason(
        "unclaimed", text, row.since, job.id, job.topic, {"stage": row.stage, "count": row.count}, commands, tuple(why)
    )
