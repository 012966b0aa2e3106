"""What must hold of every world and of every step of the model; and what must stay reachable.

Each property is a function of that name. They judge by what is seen, never by how the machine came to it, and share no
code with it: the head of a gate, say, is found here in another way.
"""

from collections.abc import Callable, Iterator

from pipeline.states import ENDED, FINAL, HALTING, LIVE, JobState as S
from tests.model.machine import OUTCOMES
from tests.model.world import EVERYTHING, WORKER, Job, Scope, Step, World

TURN = (S.PENDING, S.RESERVED)

# Part 3 of the design: which states a verb leaves, and which it may reach.
_STANDING = frozenset({S.WAITING, S.PENDING})
_HELD = frozenset({S.RESERVED})
MOVES: dict[str, tuple[frozenset[S], frozenset[S]]] = {
    "claim": (frozenset({S.PENDING}), _HELD),
    "advance": (_HELD, _STANDING | {S.DONE, S.CANCELLED}),
    "reject": (_HELD, _STANDING | {S.REPAIR, S.CANCELLED}),
    "retry": (_HELD, frozenset({S.PENDING, S.FAILED, S.SKIPPED, S.CANCELLED})),
    "snooze": (_HELD, frozenset({S.PENDING, S.CANCELLED})),
    "hold": (_HELD, frozenset({S.WAITING, S.CANCELLED})),
    "fail": (_HELD, frozenset({S.FAILED, S.SKIPPED, S.CANCELLED})),
    "repair": (_HELD, frozenset({S.REPAIR, S.CANCELLED})),
    "release": (_HELD, frozenset({S.PENDING, S.REPAIR, S.CANCELLED})),
    "reap": (_HELD, frozenset({S.PENDING, S.REPAIR, S.CANCELLED})),
    "cancel": (LIVE, frozenset({S.CANCELLED})),
    "force": (_HELD, frozenset({S.CANCELLED})),
    "requeue": (HALTING, _STANDING),
    "send back": (HALTING, _STANDING),
    "skip": (_STANDING | HALTING, frozenset({S.SKIPPED})),
    "approve": (frozenset({S.WAITING}), _STANDING),
}


def released(job: Job, stage: int) -> bool:
    """It owes the gate of this stage nothing any more."""
    return job.cleared >= stage or job.state in FINAL


# Of a world.


def one_live_reservation(scope: Scope, world: World) -> bool:
    """A job has a token exactly when it is reserved, no two share one, and at most one worker holds it."""
    live = [j.token for j in world.jobs if j.token]
    return (
        all((j.token != 0) == (j.state is S.RESERVED) for j in world.jobs)
        and len(live) == len(set(live))
        and all(sum(w.token == token for w in world.workers) <= 1 for token in live)
    )


def one_holder_of_a_gate(scope: Scope, world: World) -> bool:
    """At most one job of a strict gate is pending or reserved there."""
    return all(sum(j.gate and j.stage == s and j.state in TURN for j in world.jobs) <= 1 for s in scope.gates)


def slot_exactly_when_due(scope: Scope, world: World) -> bool:
    """A slot is set exactly when a job has a gate and is pending or reserved; a gate only while it is alive."""
    return all(
        j.slot == (j.gate and j.state in TURN) and not (j.gate and (j.state in ENDED or not scope.strict[j.stage]))
        for j in world.jobs
    )


def attempts_within_permitted(scope: Scope, world: World) -> bool:
    """Attempts, and runs that nobody gave back, stay within what is permitted."""
    return all(0 <= j.attempts <= j.permitted and j.runs <= j.permitted for j in world.jobs)


def attempts_are_those_begun(scope: Scope, world: World) -> bool:
    """The attempts charged are the reservations that began at this stage and that nothing gave back."""
    return all(j.attempts == j.runs for j in world.jobs)


def pending_has_attempts(scope: Scope, world: World) -> bool:
    """No job is pending without an attempt left: nobody could ever claim it."""
    return all(j.attempts < j.permitted for j in world.jobs if j.state is S.PENDING)


def done_is_one_completion(scope: Scope, world: World) -> bool:
    """A job is done exactly if one completion of the last stage was accepted; never more than one is."""
    return all(j.completions == (j.state is S.DONE) for j in world.jobs)


def passed_is_right(scope: Scope, world: World) -> bool:
    """``passed`` of a strict gate is the highest position with nothing unreleased at or below it."""
    return all(
        all(released(j, s) for j in world.jobs[: world.passed[s]])
        and (world.passed[s] == len(world.jobs) or not released(world.jobs[world.passed[s]], s))
        for s in scope.gates
    )


def nothing_waits_in_vain(scope: Scope, world: World) -> bool:
    """A job waits for a person, or in a paused lane, or at a gate behind another that owes it a turn."""
    for n, job in enumerate(world.jobs):
        if job.state is not S.WAITING or job.hold or not world.active:
            continue
        if not job.gate or job.cleared >= job.stage or all(released(j, job.stage) for j in world.jobs[:n]):
            return False
    return True


def live_or_recorded(scope: Scope, world: World) -> bool:
    """Every fence that a worker knows is live on a job or recorded, never both, never neither."""
    live = {j.token for j in world.jobs if j.token}
    recorded = {token for token, _ in world.records}
    return all((w.token in live) != (w.token in recorded) for w in world.workers if w.job >= 0)


# Of a step.


def written_under_the_token(scope: Scope, before: World, step: Step, after: World) -> bool:
    """A worker's write changes its job only while that is reserved under the very token that the worker has."""
    job = before.jobs[step.job]
    current = job.state is S.RESERVED and job.token == before.workers[step.worker].token
    return current or before.jobs == after.jobs


def live_lease_is_kept(scope: Scope, before: World, step: Step, after: World) -> bool:
    """Nobody but its holder or a person who forces it ends a reservation whose lease is not over."""
    pairs = zip(before.jobs, after.jobs, strict=True)
    return all(old.over or old.token == new.token for old, new in pairs if old.token)


def order_at_the_strict_stage(scope: Scope, before: World, step: Step, after: World) -> bool:
    """A job begins its turn at a strict stage only when each lower position is released or skipped."""
    job = before.jobs[step.job]
    if not scope.strict[job.stage] or job.cleared >= job.stage:
        return True
    return all(released(j, job.stage) for j in before.jobs[: step.job])


def ended_fences_are_recorded(scope: Scope, before: World, step: Step, after: World) -> bool:
    """The step that takes a token away records it, once; nothing else is recorded."""
    live = {j.token for j in after.jobs}
    taken = {j.token for j in before.jobs if j.token} - live
    return {t for t, _ in after.records} - {t for t, _ in before.records} == taken


def moves_are_in_the_table(scope: Scope, before: World, step: Step, after: World) -> bool:
    """The job that a verb is about moves as part 3 of the design says; all others are promoted or demoted."""
    for n, (old, new) in enumerate(zip(before.jobs, after.jobs, strict=True)):
        if old.state is new.state:
            continue
        if n == step.job:
            sources, targets = MOVES[step.verb]
            if old.state not in sources or new.state not in targets:
                return False
        elif (old.state, new.state) not in ((S.WAITING, S.PENDING), (S.PENDING, S.WAITING)):
            return False
    return True


def final_is_final(scope: Scope, before: World, step: Step, after: World) -> bool:
    """Nothing of a job that is done or skipped ever changes."""
    return all(old == new for old, new in zip(before.jobs, after.jobs, strict=True) if old.state in FINAL)


def cancel_is_not_forgotten(scope: Scope, before: World, step: Step, after: World) -> bool:
    """A reserved job that was asked to stop ends cancelled, unless its last stage was done."""
    pairs = zip(before.jobs, after.jobs, strict=True)
    return all(
        new.state is S.CANCELLED or (new.state is S.RESERVED and new.cancel) or (new.completions > old.completions)
        for old, new in pairs
        if old.state is S.RESERVED and old.cancel
    )


def releases_are_bounded(scope: Scope, before: World, step: Step, after: World) -> bool:
    """A release gives an attempt back at most as often as attempts are permitted."""
    old, new = before.jobs[step.job], after.jobs[step.job]
    return new.runs == old.runs or old.returned < old.permitted


def halted_waits_for_a_person(scope: Scope, before: World, step: Step, after: World) -> bool:
    """What failed, needs repair, was cancelled or is on hold stays so until a person acts."""
    pairs = zip(before.jobs, after.jobs, strict=True)
    return all(old.state is new.state for old, new in pairs if old.state in HALTING or old.hold)


def paused_begins_nothing(scope: Scope, before: World, step: Step, after: World) -> bool:
    """Nothing is claimed in a paused lane."""
    return before.active


def answers_are_true(scope: Scope, before: World, step: Step, after: World) -> bool:
    """A worker hears ``written`` exactly if its reservation ended as it said, or by the cancel that it met."""
    if not step.reply:
        return True
    token = before.workers[step.worker].token
    recorded = dict(after.records).get(token)
    return (step.reply == "written") == (recorded in OUTCOMES[step.verb] | {"cancelled"})


OF_WORLDS: tuple[Callable[[Scope, World], bool], ...] = (
    one_live_reservation,
    one_holder_of_a_gate,
    slot_exactly_when_due,
    attempts_within_permitted,
    attempts_are_those_begun,
    pending_has_attempts,
    done_is_one_completion,
    passed_is_right,
    nothing_waits_in_vain,
    live_or_recorded,
)

StepRule = Callable[[Scope, World, Step, World], bool]

_OF_STEPS: dict[StepRule, frozenset[str]] = {
    written_under_the_token: WORKER | {"renew"},
    live_lease_is_kept: EVERYTHING - WORKER - {"force"},
    order_at_the_strict_stage: frozenset({"claim"}),
    ended_fences_are_recorded: EVERYTHING,
    moves_are_in_the_table: EVERYTHING,
    final_is_final: EVERYTHING,
    cancel_is_not_forgotten: EVERYTHING,
    releases_are_bounded: frozenset({"release"}),
    halted_waits_for_a_person: EVERYTHING - {"requeue", "send back", "skip", "approve", "cancel"},
    paused_begins_nothing: frozenset({"claim"}),
    answers_are_true: WORKER,
}

OF_STEPS: dict[str, tuple[StepRule, ...]] = {
    verb: tuple(rule for rule, verbs in _OF_STEPS.items() if verb in verbs) for verb in EVERYTHING | {"unsent"}
}
"""By verb: what its steps are judged by."""

# Of the whole: judged by backward reachability.

STEADY = frozenset({"claim", "renew", "advance", "resend", "expire", "look", "reap", "settle"})
"""What goes on by itself when nothing fails: by these alone a lane must come to rest."""


def at_rest(scope: Scope, world: World) -> bool:
    """No worker is busy, and whatever is unfinished waits for a person, visibly."""
    return all(w.job < 0 for w in world.workers) and all(
        j.state in ENDED or j.hold or not world.active or (j.state is S.WAITING and _halted(world, j))
        for j in world.jobs
    )


def settled(scope: Scope, world: World) -> bool:
    """Everything is done or skipped, and nobody is busy."""
    return all(w.job < 0 for w in world.workers) and all(j.state in FINAL for j in world.jobs)


def _halted(world: World, job: Job) -> bool:
    """The gate where the job waits has a head that only a person can move."""
    owing: Iterator[Job] = (j for j in world.jobs if not released(j, job.stage))
    first = next(owing, None)
    return first is not None and (first.state in HALTING or first.hold)


HELPED = STEADY | {"skip", "resume"}
"""With a person who gives up what does not go on, everything must come to an end."""

GOALS: dict[str, tuple[Callable[[Scope, World], bool], frozenset[str]]] = {
    "comes_to_rest_by_itself": (at_rest, STEADY),
    "can_be_settled": (settled, HELPED),
}
"""By name: a world that must be reachable from every other, and the verbs that must suffice."""
