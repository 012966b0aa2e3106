"""Walk every world of a scope, breadth first, and judge each world, each step, and what stays reachable."""

import gc
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.model.machine import Machine
from tests.model.properties import GOALS, OF_STEPS, OF_WORLDS
from tests.model.world import Job, Scope, Step, World, canonical


@dataclass(frozen=True, slots=True)
class Violation:
    """The property that was broken first, and the shortest way there."""

    rule: str
    way: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.rule}, after: {'; '.join(map(str, self.way))}"


@dataclass(slots=True)
class Explored:
    """What a walk over all worlds found."""

    scope: Scope
    states: int = 0
    edges: int = 0
    seconds: float = 0  # of a processor
    verbs: dict[str, int] = field(default_factory=dict)
    violation: Violation | None = None
    worlds: frozenset[World] = frozenset()  # kept on demand

    def __str__(self) -> str:
        return f"{self.scope.name}: {self.states:,} states, {self.edges:,} edges, {self.seconds:.1f} s"


def explore(scope: Scope, broken: Iterable[str] = (), *, keep: bool = False) -> Explored:
    """Visit each world once; stops at the first violation. Tokens and workers that differ by name alone are one."""
    gc.disable()  # millions of tuples, and no cycle among them
    try:
        return _explore(scope, broken, keep)
    finally:
        gc.enable()


def _explore(scope: Scope, broken: Iterable[str], keep: bool) -> Explored:
    began = time.process_time()
    machine = Machine(scope, broken)
    found = Explored(scope)
    interned: dict[Job, Job] = {}
    start = canonical(machine.start(), interned)
    index: dict[World, int] = {start: 0}
    order = [start]
    parents: list[tuple[int, Step | None]] = [(-1, None)]
    origins, goals = array("l"), array("l")
    verbs: list[str] = []

    def way(at: int, *last: Step) -> tuple[Step, ...]:
        steps = list(last)
        while (parent := parents[at])[1] is not None:
            steps.insert(0, parent[1])
            at = parent[0]
        return tuple(steps)

    def finish(violation: Violation | None) -> Explored:
        found.states, found.edges = len(order), len(verbs)
        found.seconds = time.process_time() - began
        found.violation = violation
        if keep:
            found.worlds = frozenset(order)
        return found

    at = 0
    while at < len(order):
        world = order[at]
        for rule in OF_WORLDS:
            if not rule(scope, world):
                return finish(Violation(rule.__name__, way(at)))
        for step, raw in machine.steps(world):
            for check in OF_STEPS[step.verb]:
                if not check(scope, world, step, raw):
                    return finish(Violation(check.__name__, way(at, step)))
            after = canonical(raw, interned)
            there = index.setdefault(after, len(order))
            if there == len(order):
                order.append(after)
                parents.append((at, step))
            origins.append(at)
            goals.append(there)
            verbs.append(step.name)
            found.verbs[step.name] = found.verbs.get(step.name, 0) + 1
        at += 1

    for name, (goal, allowed) in GOALS.items():
        lost = _unreachable([goal(scope, w) for w in order], origins, goals, verbs, allowed)
        if lost is not None:
            return finish(Violation(name, way(lost)))
    return finish(None)


def _unreachable(
    is_goal: list[bool], origins: "array[int]", goals: "array[int]", verbs: list[str], allowed: frozenset[str]
) -> int | None:
    """The first world from which no goal can be reached by the verbs allowed; None: from each it can."""
    into: list[list[int]] = [[] for _ in is_goal]
    for origin, goal, verb in zip(origins, goals, verbs, strict=True):
        if verb in allowed:
            into[goal].append(origin)
    reached = list(is_goal)
    ahead = [n for n, goal in enumerate(is_goal) if goal]
    while ahead:
        for origin in into[ahead.pop()]:
            if not reached[origin]:
                reached[origin] = True
                ahead.append(origin)
    return next((n for n, ok in enumerate(reached) if not ok), None)
