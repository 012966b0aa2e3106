"""What workers do, in the model: claim, renew, say how it ended; and those who take back what they left."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.states import JobState as S
from tests.stateful.model import ASSEMBLE, Job, Record, Site, World

OUTCOMES = {
    "advance": {"done"},
    "reject": {"rejected"},
    "retry": {"retry", "failed"},
    "snooze": {"snoozed"},
    "hold": {"held"},
    "fail": {"failed"},
    "repair": {"repair"},
    "release": {"released"},
}
"""What a verb may be recorded as; or as ``cancelled``, where a cancel was asked for."""

TAKEN = ("expired", "forced")  # the errors of those who take a reservation away


@dataclass(frozen=True)
class Said:
    """One job's acknowledgement, as the model needs it."""

    job: int
    fence: int
    verb: str
    to_stage: str | None = None
    error: str | None = None
    draft: str | None = None  # the hash of a new draft
    made_from: int | None = None  # the version that the claim of a first stage has read
    touches: bool = False
    built: int | None = None  # of an assembly: the change that it read


def claim(site: Site, world: World, job: Job, fence: int) -> None:
    _moved(world, "claim", job, S.RESERVED)
    job.attempts += 1
    job.fence, job.over = fence, False


def renew(world: World, job_id: int, fence: int) -> tuple[str, bool] | None:
    """What the heartbeat hears; None: gone."""
    if (found := _held(world, job_id, fence)) is None:
        return None
    _moved(world, "renew", found[1], S.RESERVED)
    found[1].over = False
    return "renewed", found[1].cancel


def acknowledge(world: World, batch: Sequence[Said]) -> dict[int, tuple[str, str | None]]:
    """What becomes of each, by fence: its fate, and the outcome that was written."""
    told: dict[int, tuple[str, str | None]] = {}
    touched: list[tuple[Site, Job, Said]] = []
    verbs = list(dict.fromkeys(said.verb for said in batch))
    crowded: dict[str, set[int]] = {}
    for said in sorted(batch, key=lambda said: verbs.index(said.verb)):  # verb by verb, as in one look each
        if said.verb not in crowded:
            crowded[said.verb] = _crowded(world)
        if (found := _held(world, said.job, said.fence)) is None:
            told[said.fence] = (_fate(world, said), None)
            continue
        site, job = found
        _say(world, site, job, said)
        _keep_place(world, site, job, crowded[said.verb])
        outcome = world.records[said.fence].outcome
        touched.append((site, job, said))
        told[said.fence] = ("written", outcome)
    for site, job, _ in touched:
        _turns(world, site, job.lane)
    for site in world.sites.values():  # once, however many of its pages there were
        if any(said.touches and job.slug is not None for its, job, said in touched if its is site):
            site.look_again()
    for site, job, said in touched:
        if job.slug is None:
            if said.built is not None and job.state is S.DONE:
                site.built = min(max(site.built, said.built), site.changed)
            if site.changed > site.built:
                site.add_assembly()
    return told


def reap(world: World, job_id: int, fence: int, *, gone: bool) -> str | None:
    """Take the job back, if its lease is over now or its holder is gone; the outcome, None if it was kept."""
    found = _held(world, job_id, fence)
    if found is None or not (gone or found[1].over):
        return None
    site, job = found
    crowded = _crowded(world)
    outcome = _back(world, job, "reap", "expired", given=0, error="expired")
    _keep_place(world, site, job, crowded)
    _turns(world, site, job.lane)
    if job.stage != ASSEMBLE:
        site.look_again()
    return outcome


def _held(world: World, job_id: int, fence: int) -> tuple[Site, Job] | None:
    found = world.find(job_id)
    return found if found is not None and found[1].state is S.RESERVED and found[1].fence == fence else None


def _fate(world: World, said: Said) -> str:
    """Of what is no longer held: the first answer may have been lost on its way."""
    record = world.records.get(said.fence)
    if record is None or record.error in TAKEN:
        return "lost"
    return "written" if record.outcome in OUTCOMES[said.verb] | {"cancelled"} else "lost"


def _moved(world: World, verb: str, job: Job, to: S) -> None:
    world.moves.append((verb, job.state, to))
    job.state = to


def _turns(world: World, site: Site, lane: str | None) -> None:
    for _ in site.turns(lane):
        world.moves.append(("promote", S.WAITING, S.PENDING))


def _crowded(world: World) -> set[int]:
    """Who stands at a gate where more are in flight than it lets through: it was narrowed meanwhile."""
    crowded = set()
    for site, job in world.jobs():
        gate = site.gate(job)
        if job.slot and gate is not None and gate.width is not None:
            here = [j for j in site.of_lane(job.lane or "") if j.slot and j.stage == job.stage]
            crowded |= {job.id} if len(here) > gate.width else set()
    return crowded


def _keep_place(world: World, site: Site, job: Job, crowded: set[int]) -> None:
    """Slot and place are kept; but not at a gate that was narrowed meanwhile, if it is another's turn there."""
    gate = site.gate(job)
    if gate is None or gate.width is None or not job.slot or job.state is not S.PENDING:
        return
    if job.id in crowded if gate.width > 1 else site.head(job.lane or "", gate) is not job:
        site.arrive(job, job.stage)
        verb, source, _ = world.moves[-1]
        world.moves[-1] = (verb, source, job.state)


def _say(world: World, site: Site, job: Job, said: Said) -> None:
    none_left = job.attempts >= job.permitted
    skips = job.lane is not None and site.lanes[job.lane].on_failed == "skip"
    match said.verb:
        case "advance":
            _advance(world, site, job, said)
        case "reject":
            _reject(world, site, job, said)
        case "retry" if not none_left:
            if not _cancelled(world, job, said, "retry"):
                _end(world, job, said, "retry", S.PENDING)
                job.error, job.due = said.error, True
        case "retry" | "fail":
            if not _cancelled(world, job, said, "failed"):
                _end(world, job, said, "failed", S.SKIPPED if skips else S.FAILED)
                job.error, job.gate, job.slot = said.error, False, False
        case "snooze":
            if not _cancelled(world, job, said, "snoozed"):
                _end(world, job, said, "snoozed", S.PENDING, charged=False)
                job.attempts, job.snoozed, job.due = job.attempts - 1, job.snoozed + 1, True
        case "hold":
            if not _cancelled(world, job, said, "held"):
                _end(world, job, said, "held", S.WAITING, charged=False)
                job.attempts, job.hold, job.slot = job.attempts - 1, True, False
        case "repair":
            if not _cancelled(world, job, said, "repair"):
                _end(world, job, said, "repair", S.REPAIR)
                job.error, job.gate, job.slot = said.error, False, False
        case "release":
            given = int(job.returned < job.permitted)
            if not job.cancel:
                job.returned += given
            _back(world, job, "release", "released", given=given, error=said.error, charged=not given)


def _advance(world: World, site: Site, job: Job, said: Said) -> str:
    following = None if job.slug is None else site.after(job.stage)
    if following is not None and _cancelled(world, job, said, "done"):
        return "cancelled"
    if job.slug is not None:
        job.cleared = max(job.cleared, site.ordinal(job.stage))
    _end(world, job, said, "done", S.DONE)
    job.error, job.approved, job.gate, job.slot = None, None, False, False
    if following is not None:
        _arrive(world, site, job, following.name)
    if job.slug is not None:
        topic = site.topics[job.slug]
        topic.released = topic.released or following is None
        topic.made_from = topic.made_from if said.made_from is None else said.made_from
        topic.draft = said.draft or topic.draft
    return "done"


def _reject(world: World, site: Site, job: Job, said: Said) -> str:
    if _cancelled(world, job, said, "rejected"):
        return "cancelled"
    target = said.to_stage or site.open_stages()[0].name
    over = job.round >= job.rounds or target not in site.stages
    _end(world, job, said, "rejected", S.REPAIR)
    job.error, job.approved, job.gate, job.slot, job.spent = "rejected" if over else None, None, False, False, over
    if not over:
        job.round += 1
        _arrive(world, site, job, target)
    return "rejected"


def _arrive(world: World, site: Site, job: Job, stage: str) -> None:
    """To a stage with all that it permits, in the place of the end that was just noted."""
    assert job.lane is not None
    site.arrive(job, stage)
    job.attempts, job.permitted = 0, site.permitted(job.lane, stage)
    job.returned, job.snoozed = 0, 0
    verb, source, _ = world.moves[-1]
    world.moves[-1] = (verb, source, job.state)


def _back(
    world: World, job: Job, verb: str, outcome: str, *, given: int, error: str | None, charged: bool = True
) -> str:
    """Pending again at its place, or to repair when no attempt is left."""
    assert job.fence is not None
    said = Said(job.id, job.fence, verb, error=error)
    if _cancelled(world, job, said, outcome):
        return "cancelled"
    left = job.attempts - given
    over = left >= job.permitted
    _end(world, job, said, outcome, S.REPAIR if over else S.PENDING, charged=charged)
    job.attempts, job.due = left, True
    if over:
        job.error, job.gate, job.slot = error, False, False
    return outcome


def _cancelled(world: World, job: Job, said: Said, outcome: str) -> bool:
    """A cancel that was asked for wins, and gives nothing back."""
    if not job.cancel:
        return False
    _end(world, job, said, "cancelled", S.CANCELLED)
    job.gate = job.slot = False
    return True


def _end(world: World, job: Job, said: Said, outcome: str, state: S, *, charged: bool = True) -> None:
    assert job.fence is not None
    world.records[job.fence] = Record(job.id, outcome, charged, said.error)
    job.fence, job.over, job.cancel, job.spent = None, False, False, False
    _moved(world, said.verb, job, state)
