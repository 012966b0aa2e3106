"""From facts to reasons: what a job waits for, in words, with the command that helps; floor 2. Asks nothing itself.

Each reason has a stable ``code``; the words around it may change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.service.roster import Hand
from pipeline.states import ASSEMBLE, HALTING, JobState as S

HALF = 0.5  # of a lease: who renews in time never lets it come to that


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, since when it holds, whom it names, and what helps. ``because``: that one's own reasons."""

    code: str
    text: str
    since: datetime | None = None
    job: int | None = None
    topic: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    because: tuple["Reason", ...] = ()


@dataclass(frozen=True, slots=True)
class Shut:
    """Who paused, closed or retired something, when and why; all None where nobody noted it."""

    by: str | None = None
    at: datetime | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.by is None:
            return ""
        return f" by {self.by}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Scene:
    """What holds for a whole site at the moment of the answer."""

    site: str
    state: str
    now: datetime
    hands: Sequence[Hand]  # seen lately
    first_stage: str | None
    overdue_seconds: float
    site_shut: Shut
    lanes_shut: Mapping[int, Shut]
    stages_shut: Mapping[str, Shut]

    @property
    def run(self) -> str:
        return f"pipeline run --site {self.site}"


def ago(seconds: float) -> str:
    """A length of time, as people say it."""
    seconds = max(seconds, 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def who(holder: str) -> str:
    """A worker's name, short: its process and machine."""
    parts = holder.split("/")
    return f"process {parts[3]} on {parts[0]}" if len(parts) == 5 else holder


def of_job(job: Any, scene: Scene) -> list[Reason]:
    """Why a job stands where it does, the weightiest first; what it waits for at its gate is added by the caller."""
    state = S(job.state)
    if state in HALTING:
        return [_halted(job, scene)]
    if state is S.RESERVED:
        return _reserved(job, scene)
    found = _shut(job, scene)
    if state is S.WAITING and job.hold is not None:
        found.insert(0, _held(job, scene))
    if state is S.PENDING:
        found += _pending(job, scene, shut=bool(found))
    return found


def is_rejected(job: Any) -> bool:
    return bool(job.error_class == "rejected")


def _name(job: Any) -> str:
    return f"{job.topic}" if job.topic is not None else "the site's own job"


def _reason(job: Any, code: str, text: str, *, commands: Sequence[str] = (), **details: Any) -> Reason:
    since = details.pop("since", job.since)
    return Reason(code, text, since, job.id, job.topic, details, tuple(commands))


def _halted(job: Any, scene: Scene) -> Reason:
    at = f" --stage {scene.first_stage}" if is_rejected(job) and scene.first_stage else ""
    commands = [f"pipeline jobs requeue {job.id}{at}", f"pipeline jobs skip {job.id}"]
    ago_text = ago((scene.now - job.since).total_seconds())
    text = f"{job.state} at {job.stage}, {ago_text} ago, until a person decides"
    if job.state == S.CANCELLED and job.noted_verb == "cancel":
        text += f"; cancelled by {job.noted_actor}" + (f": {job.noted_reason}" if job.noted_reason else "")
    elif job.last_error or job.error_class:
        prefix = "rejected, " if is_rejected(job) and job.last_error else ""
        text += f"; {prefix}{job.last_error or job.error_class}"
    return _reason(job, str(job.state), text, commands=commands, error_class=job.error_class, error=job.last_error)


def _held(job: Any, scene: Scene) -> Reason:
    since = ago((scene.now - job.since).total_seconds())
    text = f"held for a person's approval for {since}: {job.hold}"
    return _reason(job, "held", text, commands=[f"pipeline jobs approve {job.id}"], hold=job.hold)


def _reserved(job: Any, scene: Scene) -> list[Reason]:
    left, lease = float(job.lease_left), job.lease_seconds
    by = who(job.reserved_by)
    facts = {"worker": job.reserved_by, "lease_left_seconds": round(left, 1), "lease_seconds": lease}
    found = []
    if left <= 0:
        text = f"held by {by}, whose lease is over since {ago(-left)}: any worker takes it back within seconds"
        found.append(_reason(job, "lease-over", text, commands=[scene.run], **facts))
        found += _nobody(job, scene, knowing=False)
    elif lease is not None and left < lease * HALF:
        text = (
            f"held by {by}, whose heartbeat is late: {ago(left)} of its lease of {ago(lease)} are left;"
            " unless it renews, it is taken back then"
        )
        found.append(_reason(job, "heartbeat-late", text, **facts))
    else:
        took = ago((scene.now - job.reserved_at).total_seconds())
        text = f"running at {job.stage} for {took}, attempt {job.attempts} of {job.max_attempts}, held by {by}"
        found.append(_reason(job, "running", f"{text}; {ago(left)} of its lease are left", **facts))
    if job.cancel_requested:
        asker = f" by {job.noted_actor}" if job.noted_verb == "cancel" else ""
        text = f"its cancel was asked{asker}, and not heeded yet: a stage is told at its next heartbeat"
        found.append(_reason(job, "cancel-asked", text))
    return found


def _shut(job: Any, scene: Scene) -> list[Reason]:
    """What a person shut: the site, the lane, the stage."""
    found = shut_site(scene)
    if job.lane_id is not None and job.lane_state != "active":
        found += shut_lane(scene, job.lane_id, job.lane, job.lane_state)
    if job.stage_state in ("paused", "retired"):
        shut = scene.stages_shut.get(job.stage, Shut())
        details = {"by": shut.by, "reason": shut.reason, "stage": job.stage}
        if job.stage_state == "paused":
            text = f"stage {job.stage} is paused{shut}"
            resume = (f"pipeline stages resume {job.stage} --site {scene.site}",)
            found.append(Reason("stage-paused", text, shut.at, None, None, details, resume))
        else:
            text = f"stage {job.stage} is retired{shut}; the next upkeep moves it on"
            found.append(Reason("stage-retired", text, shut.at, None, None, details, (scene.run,)))
    return found


def shut_site(scene: Scene) -> list[Reason]:
    if scene.state == "active":
        return []
    shut = scene.site_shut
    details = {"by": shut.by, "reason": shut.reason}
    text = f"site {scene.site} is {scene.state}{shut}"
    return [Reason("site-paused", text, shut.at, None, None, details, (f"pipeline sites resume {scene.site}",))]


def shut_lane(scene: Scene, lane_id: int, lane: str, state: str) -> list[Reason]:
    shut = scene.lanes_shut.get(lane_id, Shut())
    verb = "open" if state == "closed" else "resume"
    details = {"by": shut.by, "reason": shut.reason, "lane": lane}
    text = f"lane {lane} is {state}{shut}"
    command = f"pipeline lanes {verb} {scene.site}/{lane}"
    return [Reason(f"lane-{state}", text, shut.at, None, None, details, (command,))]


def _pending(job: Any, scene: Scene, *, shut: bool) -> list[Reason]:
    due = float(job.due_seconds)
    if job.too_late:
        text = "its window is over; the next is found when its lane's schedule is looked at again"
        return [_reason(job, "window-over", text, since=job.run_until, until=job.run_until)]
    if due < 0:
        return [_later(job, scene, -due)]
    if shut:
        return []
    nobody = _nobody(job, scene)
    if nobody:
        return nobody
    if job.alone:
        text = f"due at {job.stage} for {ago(due)}; it was lost with its worker, so only one with empty hands takes it"
        return [_reason(job, "alone", text, since=job.run_at)]
    if due > scene.overdue_seconds:
        text = f"due at {job.stage} for {ago(due)}, and no worker took it: all may be busy; see: pipeline status"
        return [_reason(job, "overdue", text, since=job.run_at, commands=[f"pipeline status --site {scene.site}"])]
    return [
        _reason(job, "ready", f"due at {job.stage} for {ago(due)}: the next free worker takes it", since=job.run_at)
    ]


def _later(job: Any, scene: Scene, seconds: float) -> Reason:
    at, wait = f"{job.run_at.astimezone():%Y-%m-%d %H:%M:%S}", ago(seconds)
    facts = {"until": job.run_at, "seconds": round(seconds, 1)}
    patient = [f"{scene.run} --wait {int(seconds) + 60}"]
    if job.release_at is not None and (job.retry_at is None or job.retry_at < job.release_at):
        return _reason(job, "release", f"not before {at} (in {wait}), by its lane's schedule", **facts)
    if job.retry_at is not None and job.last_outcome == "snoozed":
        return _reason(job, "snoozed", f"asked to be left until {at} (in {wait})", commands=patient, **facts)
    if job.retry_at is not None:
        text = f"tried again at {at} (in {wait}), after {job.attempts} of {job.max_attempts} attempts"
        text += f"; {job.last_error}" if job.last_error else ""
        tries = {"attempts": job.attempts, "max_attempts": job.max_attempts, "error": job.last_error}
        return _reason(job, "retry", text, commands=patient, **facts, **tries)
    return _reason(job, "later", f"not due before {at} (in {wait})", commands=patient, **facts)


def _nobody(job: Any, scene: Scene, *, knowing: bool = True) -> list[Reason]:
    """Whether there is nobody who could take it; ``knowing``: who knows its stage."""
    if not scene.hands:
        return [no_worker(scene)]
    if not knowing or any(job.stage in hand.leases or job.stage == ASSEMBLE for hand in scene.hands):
        return []
    known = sorted({stage for hand in scene.hands for stage in hand.leases} - {ASSEMBLE})
    text = (
        f"no worker at work knows stage {job.stage} (they know {', '.join(known) or 'none'}):"
        " start workers of the release that has it, or take it out"
    )
    command = f"pipeline stages retire {job.stage} --site {scene.site}"
    return [_reason(job, "no-worker-for-stage", text, commands=[command], stage=job.stage, known=known)]


def no_worker(scene: Scene) -> Reason:
    return Reason("no-worker", f"nobody works on site {scene.site}", commands=(scene.run,))
