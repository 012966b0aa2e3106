"""What people do to lanes, stages and sites, and where topics stand, in the model."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.states import FINAL, LIVE, JobState as S
from tests.stateful.model import Gate, Job, Refusal, Site, Topic, World

IDLE = frozenset({S.WAITING, S.PENDING})
TURNS = {
    "pause": ({"active"}, "paused"),
    "resume": ({"paused"}, "active"),
    "close": ({"active", "paused"}, "closed"),
    "open": ({"closed"}, "active"),
}


def _note(world: World, verb: str, before: S, after: S) -> None:
    if before is not after or verb not in ("promote", "demote"):
        world.moves.append((verb, before, after))


def _flips(world: World, site: Site, before: Mapping[int, S]) -> int:
    """Note who was promoted and demoted since; how many they are."""
    changed = [(before[id(j)], j.state) for j in site.jobs if id(j) in before and before[id(j)] is not j.state]
    for was, now in changed:
        _note(world, "promote" if now is S.PENDING else "demote", was, now)
    return len(changed)


def _states(site: Site) -> dict[int, S]:
    return {id(j): j.state for j in site.jobs}


# Lanes and sites.


def turn_lane(world: World, site: Site, verb: str, name: str) -> tuple[str, str, int, int]:
    """From which state, to which; how many jobs it moved, and how many run."""
    if name not in site.lanes:
        raise Refusal("NotFound")
    lane, before = site.lanes[name], _states(site)
    sources, after = TURNS[verb]
    if lane.state not in sources:
        raise Refusal("Refused")
    was, lane.state = lane.state, after
    if after == "active":
        free(site, name)
        site.turns(name, every=True)
    else:
        site.demote(name)
    running = sum(j.state is S.RESERVED for j in site.of_lane(name))
    return was, after, _flips(world, site, before), running


def free(site: Site, lane: str) -> None:
    """Let go what waits for no gate and no person."""
    for job in site.of_lane(lane):
        if job.state is S.WAITING and not job.gate and not job.hold:
            job.state = S.PENDING


def turn_site(site: Site, verb: str) -> tuple[str, str]:
    sources, after = TURNS[verb]
    if site.state not in sources:
        raise Refusal("Refused")
    was, site.state = site.state, after
    return was, after


def settle(world: World, site: Site) -> int:
    """Upkeep: what became pending in lanes that are not active waits."""
    before = _states(site)
    for lane in site.lanes.values():
        if lane.state != "active":
            site.demote(lane.name)
    return _flips(world, site, before)


def heal(world: World, site: Site) -> int:
    """Upkeep: promote what could be promoted and was not."""
    before = _states(site)
    for lane in site.lanes.values():
        site.turns(lane.name, every=True)
    return _flips(world, site, before)


# Stages.


def turn_stage(site: Site, verb: str, name: str) -> None:
    if name not in site.stages:
        raise Refusal("NotFound")
    sources, after = TURNS[verb]
    if site.stages[name].state not in sources:
        raise Refusal("Refused")
    site.stages[name].state = after


def retire(world: World, site: Site, name: str) -> tuple[str | None, int]:
    """The stage that follows, and how many jobs moved on."""
    if name not in site.stages:
        raise Refusal("NotFound")
    stage = site.stages[name]
    others = [s for s in site.open_stages() if s is not stage]
    following = site.after(name)
    live = [j for j in site.jobs if j.stage == name and j.state in LIVE]
    if stage.state != "retired" and (not others or (following is None and live)):
        raise Refusal("Refused")
    stage.state = "retired"
    return following.name if following is not None else None, move_on(world, site)


def move_on(world: World, site: Site) -> int:
    """Move idle jobs from retired stages to those that follow; a hold is kept."""
    moved = [
        j for j in site.jobs
        if j.state in IDLE and j.slug is not None and site.stages[j.stage].state == "retired" and site.after(j.stage)
    ]  # fmt: skip
    for job in moved:
        was, held = job.state, job.hold
        following = site.after(job.stage)
        assert following is not None
        assert job.lane is not None
        site.arrive(job, following.name)
        if held:
            job.state, job.hold = S.WAITING, True
        job.attempts, job.permitted = 0, site.permitted(job.lane, following.name)
        job.returned, job.snoozed, job.approved, job.error = 0, 0, None, None
        _note(world, "retire", was, job.state)
    before = _states(site)
    for lane in {j.lane for j in moved}:
        site.turns(lane)
    _flips(world, site, before)
    return len(moved)


def restore(site: Site, name: str) -> None:
    if name not in site.stages:
        raise Refusal("NotFound")
    if site.stages[name].state != "retired":
        raise Refusal("Refused")
    site.stages[name].state = "active"


# Widths.


def set_lane(
    world: World, site: Site, name: str, stage: str, changes: Mapping[str, Any], default: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """What the lane had otherwise at this stage, what it has now, and how many jobs were judged anew."""
    if name not in site.lanes or stage not in site.stages:
        raise Refusal("NotFound")
    if site.stages[stage].state == "retired":
        raise Refusal("Refused")
    lane = site.lanes[name]
    was = dict(lane.own.get(stage, {}))
    now = {key: value for key, value in {**was, **changes}.items() if key not in default}
    lane.own[stage] = now
    if not now:
        del lane.own[stage]
    judged = 0
    if "width" in changes or "width" in default:
        judged = _set_width(world, site, stage, now.get("width", site.stages[stage].width), [name])
    return was, now, judged


def set_stage(world: World, site: Site, stage: str, width: int | None) -> tuple[int | None, int]:
    if stage not in site.stages:
        raise Refusal("NotFound")
    if site.stages[stage].state == "retired":
        raise Refusal("Refused")
    was, site.stages[stage].width = site.stages[stage].width, width
    mine = [lane.name for lane in site.lanes.values() if "width" not in lane.own.get(stage, {})]
    return was, _set_width(world, site, stage, width, mine)


def _set_width(world: World, site: Site, stage: str, width: int | None, names: Sequence[str]) -> int:
    before = _states(site)
    judged = 0
    for name in names:
        lane = site.lanes[name]
        gate = lane.gates.get(stage)
        if (gate.width if gate is not None else None) == width:
            continue
        here = [j for j in site.of_lane(name) if j.stage == stage]
        elsewhere: list[Job] = []
        if gate is None or gate.width is None:  # nobody may be on the way to a gate that is made
            if lane.state == "active" and site.state == "active":
                raise Refusal("Refused")
            if any(j.state is S.RESERVED for j in site.of_lane(name)):
                raise Refusal("Refused")
            elsewhere = [j for j in site.demote(name) if j.stage != stage and j.gate]
            gate = lane.gates.setdefault(stage, Gate(stage, site.ordinal(stage), None))
        if width == 1 and sum(j.gate and j.state is S.RESERVED for j in here) > 1:
            raise Refusal("Refused")
        gate.width = width
        if width == 1:
            gate.passed = 0
        if width is None:
            for job in here:
                if job.state is S.RESERVED:
                    job.gate = job.slot = False
        idle = [j for j in here if j.state in IDLE]
        for job in idle:
            site.wait(job)
            job.gate = False
        site.turns(name, every=True)  # passed is known now; nobody of the idle can be promoted yet
        for job in idle:
            held = job.hold
            site.arrive(job, stage)
            if held or lane.state != "active":
                job.state, job.hold = S.WAITING, held
        if lane.state == "active":
            free(site, name)
        site.turns(name, every=True)
        judged += len(idle) + sum(j.state is S.PENDING for j in elsewhere)
    _flips(world, site, before)
    return judged


def set_on_failed(site: Site, name: str, policy: str) -> str:
    if name not in site.lanes:
        raise Refusal("NotFound")
    was, site.lanes[name].on_failed = site.lanes[name].on_failed, policy
    return was


# Places.


def move(world: World, site: Site, slug: str, mate: str, *, before: bool) -> tuple[int, int]:
    """From which position, to which."""
    topic = _topic(site, slug)
    job = _unfinished(site, slug)
    other = _topic(site, mate)
    if other.lane != topic.lane or other is topic:
        raise Refusal("Refused")
    was = topic.position
    to = other.position
    if before and to > was:
        to -= 1
    if not before and to < was:
        to += 1
    if to == was:
        return was, to
    left = job.state
    _turn(world, site, topic, to)
    if left is S.RESERVED:
        raise Refusal("Refused")
    _settle_turns(world, site, [topic.lane])
    _note(world, "move", left, job.state)
    return was, to


def insert(world: World, site: Site, lane: str, slug: str, version: int, mate: str) -> int:
    """A new topic right before another; its position."""
    if lane not in site.lanes:
        raise Refusal("NotFound")
    if site.lanes[lane].state == "closed":
        raise Refusal("Refused")
    to = _topic(site, mate).position
    if site.topics[mate].lane != lane or slug in site.topics:
        raise Refusal("Refused")
    topic = site.add_topic(lane, slug, version)
    site.begin(topic)
    _turn(world, site, topic, to)
    _settle_turns(world, site, [lane])
    return to


def move_to_lane(world: World, site: Site, slug: str, name: str) -> tuple[tuple[str, int], tuple[str, int]]:
    """From which place, to which."""
    topic = _topic(site, slug)
    if topic.lane == name:
        raise Refusal("Refused")
    if name not in site.lanes:
        raise Refusal("NotFound")
    lane = site.lanes[name]
    if lane.state == "closed":
        raise Refusal("Refused")
    job = _unfinished(site, slug)
    if job.state is S.RESERVED:
        raise Refusal("Refused")
    was, left = (topic.lane, topic.position), job.state
    topic.lane, topic.position = name, lane.next
    lane.next += 1
    for one in site.jobs:
        if one.slug == slug:
            one.lane, one.position = name, topic.position
    if job.state in IDLE:
        held = job.hold
        site.arrive(job, job.stage)
        if held or lane.state != "active":
            job.state, job.hold = S.WAITING, held
    _settle_turns(world, site, [was[0], name])
    _note(world, "move", left, job.state)
    return was, (topic.lane, topic.position)


def _topic(site: Site, slug: str) -> Topic:
    if slug not in site.topics:
        raise Refusal("NotFound")
    return site.topics[slug]


def _unfinished(site: Site, slug: str) -> Job:
    job = site.unfinished(slug)
    if job is None or job.state in FINAL:
        raise Refusal("Refused")
    return job


def _turn(world: World, site: Site, topic: Topic, to: int) -> None:
    """Bring the topic to a position of its lane; all between make room."""
    first, last = sorted((topic.position, to))
    strict = [g for g in site.lanes[topic.lane].gates.values() if g.width == 1]
    if any(g.passed >= first for g in strict):
        raise Refusal("Refused")
    names = {g.stage for g in strict}
    stretch = [j for j in site.of_lane(topic.lane) if first <= (j.position or 0) <= last]
    here = [j for j in stretch if j.gate and j.stage in names]
    if any(j.state is S.RESERVED for j in here):
        raise Refusal("Refused")
    before = _states(site)
    for job in here:
        if job.state is S.PENDING:
            site.wait(job)
    _flips(world, site, before)
    back = 1 if to < topic.position else -1
    places = {p: p + back for p in range(first, last + 1)} | {topic.position: to}
    for job in stretch:
        job.position = places[job.position or 0]
    for other in site.topics.values():
        if other.lane == topic.lane:
            other.position = places.get(other.position, other.position)


def _settle_turns(world: World, site: Site, lanes: Sequence[str]) -> None:
    before = _states(site)
    for name in lanes:
        site.turns(name, every=True)
    _flips(world, site, before)
