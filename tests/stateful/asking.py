"""What people ask of jobs, in the model: cancel, requeue, approve, skip, grant; by number, or by filter."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.states import HALTING, LIVE, JobState as S
from tests.stateful.model import ASSEMBLE, ROUNDS, Job, Record, Refusal, Site, World

SOURCES = {
    "cancel": LIVE,
    "requeue": HALTING,
    "approve": frozenset({S.WAITING}),
    "skip": HALTING | {S.WAITING, S.PENDING},
    "grant": LIVE,
}


@dataclass(frozen=True)
class Order:
    """What a person asks for."""

    verb: str
    force: bool = False
    stage: str | None = None
    grant: int = 0

    @property
    def sources(self) -> frozenset[S]:
        return SOURCES[self.verb] | ({S.RESERVED} if self.force else frozenset())


@dataclass(frozen=True)
class Picked:
    """A filter; what is None, or empty, lets all pass."""

    site: str
    lane: str | None = None
    stage: str | None = None
    states: frozenset[S] = frozenset()
    error: str | None = None

    def takes(self, job: Job) -> bool:
        return (
            self.lane in (None, job.lane)
            and self.stage in (None, job.stage)
            and self.error in (None, job.error)
            and (not self.states or job.state in self.states)
        )


Moves = list[tuple[int, S, Job]]
"""By id: the state that was left, and the job as it is in the end."""


def by_number(world: World, order: Order, ids: Sequence[int]) -> Moves:
    """All of them, or none; by force a site's own job by itself alone."""
    chosen: list[tuple[Site, Job]] = []
    known = [found[1] for job_id in ids if (found := world.find(job_id)) is not None]
    if order.force and len({job.stage == ASSEMBLE for job in known}) > 1:
        raise Refusal("Refused")
    for job_id in sorted(set(ids)):
        if (found := world.find(job_id)) is None:
            raise Refusal("NotFound")
        if not allowed(order, *found):
            raise Refusal("Refused")
        chosen.append(found)
    return _do(world, order, chosen)


def by_filter(world: World, order: Order, picked: Picked) -> Moves:
    """Those that it takes and the verb allows."""
    site = world.sites[picked.site]
    if picked.lane is not None and picked.lane not in site.lanes:
        raise Refusal("NotFound")
    chosen = [j for j in site.jobs if picked.takes(j) and allowed(order, site, j)]
    return _do(world, order, [(site, job) for job in sorted(chosen, key=lambda j: j.id)])


def allowed(order: Order, site: Site, job: Job) -> bool:
    if job.state not in order.sources:
        return False
    if order.verb == "approve":
        return job.hold
    if order.verb == "requeue" and job.stage != ASSEMBLE:
        if order.stage is None:
            return not job.spent and _goal(site, job) is not None
        return order.stage in {s.name for s in site.open_stages()}
    return True


def _goal(site: Site, job: Job) -> str | None:
    """Where it stood, or the next stage when that was retired."""
    stood = site.stages[job.stage]
    if stood.state != "retired":
        return stood.name
    following = site.after(job.stage)
    return following.name if following is not None else None


def _do(world: World, order: Order, chosen: list[tuple[Site, Job]]) -> Moves:
    moved: Moves = [(job.id, job.state, job) for _, job in chosen]
    taken = {site.slug for site, job in chosen if job.state is S.RESERVED and order.force and job.stage != ASSEMBLE}
    for site, job in chosen:
        before = job.state
        _order(world, order, site, job)
        world.moves.append((f"{order.verb} force" if before is S.RESERVED and order.force else order.verb, before,
                            job.state))  # fmt: skip
    for site in world.sites.values():
        for lane in {job.lane for its, job in chosen if its is site and job.lane is not None}:
            for _ in site.turns(lane, every=order.verb == "skip"):
                world.moves.append(("promote", S.WAITING, S.PENDING))
        if site.slug in taken:
            site.look_again()
    return moved


def _order(world: World, order: Order, site: Site, job: Job) -> None:
    match order.verb:
        case "cancel" if job.state is S.RESERVED and not order.force:
            job.cancel = True
        case "cancel" | "skip":
            if job.fence is not None:
                world.records[job.fence] = Record(job.id, "cancelled", True, "forced")
                job.cancel = False
            job.state = S.CANCELLED if order.verb == "cancel" else S.SKIPPED
            job.fence, job.over, job.hold, job.gate, job.slot = None, False, False, False, False
        case "grant":
            job.permitted += order.grant
        case "approve":
            job.approved = site.topics[job.slug].draft or "" if job.slug is not None else ""
            site.arrive(job, job.stage)
        case "requeue":
            _requeue(order, site, job)


def _requeue(order: Order, site: Site, job: Job) -> None:
    job.error, job.cancel, job.due, job.spent = None, False, True, False
    if job.stage == ASSEMBLE:
        job.state, job.permitted = S.PENDING, job.attempts + order.grant
        return
    goal = order.stage or _goal(site, job)
    assert goal is not None
    if order.stage is not None:
        job.round += 1
        job.rounds = job.round + ROUNDS
    if order.stage is not None or goal != job.stage:
        job.attempts, job.approved = 0, None
    job.permitted = job.attempts + order.grant
    site.arrive(job, goal)
