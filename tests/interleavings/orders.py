"""The runner: every order in which the steps of two or three actors can follow each other, on real connections.

An actor's verb is cut into steps by the statements before which it stands still, each the first time that it comes
there. From one and the same ground all orders are run: whoever is to move goes on to its next stop, to its end, or into
a lock; then the server says who holds it up, and another moves. What waits for a lock goes on by itself when it has it.
Orders that waiting makes the same are run once. Nothing sleeps to decide: an actor stands, has ended, or is blocked by
one who stands, or there is a failure at the deadline.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import factorial, prod
from typing import Any, TypeAlias

from sqlalchemy import Executable
from sqlalchemy.exc import DBAPIError

from pipeline.build import Services
from pipeline.errors import PipelineError
from tests.concurrency.stage import DEADLINE, Act, Actor, Door, Missed, Play, Stop, door_to_jobs
from tests.factories import Factory
from tests.interleavings.ground import Ground

PAUSE = 0.0005  # between two looks
LEVELS = ("read committed", "repeatable read", "serializable")
COMMIT = None
"""The stop before the commit."""


Place: TypeAlias = Executable | tuple[Executable | None, int] | None
"""Before which statement; the second item says before which run of it."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one actor does, and the statements before which he stands still."""

    name: str
    verb: Callable[["Hand"], Any]
    stops: Sequence["Place"] = (COMMIT,)
    door: bool = False  # he also stands between the snapshot of his first statement on jobs and the locks on its rows

    def standing(self, *stops: "Place") -> "Part":
        """The same, with other places to stand."""
        return replace(self, stops=stops)


@dataclass(frozen=True, slots=True)
class Hand:
    """What an actor's verb works with: his services, and himself, for transactions of his own."""

    services: Services
    actor: Actor
    level: str  # the default of his role


@dataclass(slots=True)
class Ended:
    """How one order ended: by actor, what he answered, or the refusal that he was told."""

    answers: Mapping[str, Any]
    make: Factory
    order: str

    def __getitem__(self, name: str) -> Any:
        """What the actor answered. Fails when he was refused."""
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise AssertionError(f"{name} was refused: {answer}")
        return answer

    def refused(self, name: str, *words: str) -> bool:
        """Whether the actor was told that it cannot be done, in these words."""
        answer = self.answers[name]
        return isinstance(answer, PipelineError) and all(word in str(answer) for word in words)


Judge: TypeAlias = Callable[[Ended], object]


@dataclass(frozen=True, slots=True)
class Staged:
    """A scene that is set, who plays, and what must be true at the end of every order."""

    parts: Sequence[Part]
    judge: Judge
    allows: frozenset[str] = frozenset()  # SQLSTATEs that belong to it
    waits: bool | None = True  # somebody waits for a lock in some order; False: nobody in any; None: who knows
    outcomes: int = 2  # how many ends the judge must have told apart, at least


Scene: TypeAlias = Callable[[Factory, str], Staged]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scene under its name."""

    name: str
    scene: Scene
    of_callers: bool  # somebody plans in a transaction of his own, at the level of his role
    long: bool = False


SCENARIOS: dict[str, Scenario] = {}


def scenario(scene: Scene) -> Scene:
    """Enter a scene. It is given the factory and the level, and set once for all orders."""
    SCENARIOS[scene.__name__] = Scenario(scene.__name__, scene, of_callers=False)
    return scene


def long(scene: Scene) -> Scene:
    """Say of a scene that its orders take too long for every day."""
    SCENARIOS[scene.__name__] = replace(SCENARIOS[scene.__name__], long=True)
    return scene


def of_callers(scene: Scene) -> Scene:
    """Enter a scene in which somebody plans in a transaction of his own."""
    SCENARIOS[scene.__name__] = Scenario(scene.__name__, scene, of_callers=True)
    return scene


@dataclass(slots=True)
class Count:
    """What was run."""

    scenarios: int = 0
    orders: int = 0  # of the steps as they are written
    runs: int = 0  # of those that are different when waiting is heeded
    waits: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.scenarios + other.scenarios, self.orders + other.orders, self.runs + other.runs,
            self.waits + other.waits, self.outcomes + other.outcomes,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.orders} orders, {self.runs} of them different, {self.waits} waits"


class _Player:
    """One part in one order."""

    def __init__(self, part: Part, actor: Actor, level: str, door: Door | None) -> None:
        self.part = part
        self.actor = actor
        self._hand = Hand(actor.services, actor, level)
        self._door = door
        self._act: Act[Any] | None = None
        self.blocked_by: list[int] = []
        actor.anew()
        self._stops: list[Stop] = []
        for place in part.stops:
            statement, nth = place if isinstance(place, tuple) else (place, 1)
            stop = actor.before_commit(nth=nth) if statement is COMMIT else actor.before(statement, nth=nth)
            self._stops.append(stop)
        self.at = "his beginning"

    @property
    def over(self) -> bool:
        return self._act is not None and self._act.over

    @property
    def ready(self) -> bool:
        """It is his to move: he has not begun, or stands."""
        return self._act is None or any(stop.stands for stop in self._stops) or self.at_door

    @property
    def at_door(self) -> bool:
        return self._door is not None and self._door.pid in self.blocked_by

    def moves(self) -> None:
        self.blocked_by, at_door = [], self.at_door
        if self._act is None:
            if self._door is not None:
                self._door.shut()
            self._act = self.actor.does(lambda _: self.part.verb(self._hand))
        elif at_door:
            assert self._door is not None
            self._door.open()
        else:
            next(stop for stop in self._stops if stop.stands).go()

    def where(self) -> str:
        if self.over:
            return "ended"
        if self._act is None:
            return "not begun"
        if self.at_door:
            return "at the door"
        return next((stop.what for stop in self._stops if stop.stands), f"blocked by {self.blocked_by}")

    def answer(self) -> Any:
        assert self._act is not None
        try:
            return self._act.result()
        except (PipelineError, DBAPIError) as error:
            return error

    def lets_go(self) -> None:
        """Whatever happened, the thread ends."""
        if self._door is not None:
            self._door.open()
        for stop in self._stops:
            stop.go()
        if self._act is not None:
            self._act._thread.join(DEADLINE)


class Orders:
    """All orders of one scenario at one level."""

    def __init__(self, name: str, staged: Staged, make: Factory, ground: Ground, level: str) -> None:
        self._name, self._staged, self._make, self._ground, self._level = name, staged, make, ground, level
        self._count = Count(scenarios=1)
        self._actors: list[Actor] = []
        self._doors: list[Door | None] = []

    def run(self, url: str, owner_url: str) -> Count:
        """Every order; raises AssertionError with the order that broke something."""
        with Play(url) as play, ExitStack() as stack:
            self._actors = [play.actor(part.name) for part in self._staged.parts]
            for part, actor in zip(self._staged.parts, self._actors, strict=True):
                self._doors.append(stack.enter_context(door_to_jobs(owner_url, actor)) if part.door else None)
            self._ground.keep()
            left: list[tuple[int, ...]] = [()]
            lengths = [1] * len(self._actors)
            while left:
                prefix = left.pop()
                trace = self._one(prefix)
                chosen = [mover for mover, _ in trace]
                lengths = [max(a, chosen.count(i)) for i, a in enumerate(lengths)]
                for n in range(len(prefix), len(trace)):
                    left.extend((*chosen[:n], other) for other in trace[n][1] if other != chosen[n])
            self._ground.restore()
        self._count.orders = factorial(sum(lengths)) // prod(map(factorial, lengths))
        self._witness()
        return self._count

    def _witness(self) -> None:
        count = self._count
        if self._staged.waits not in (None, bool(count.waits)):
            raise Missed(f"{self._name}: {count.waits} waits in {count.runs} orders")
        if len(count.outcomes) < self._staged.outcomes:
            raise Missed(f"{self._name}: {count.runs} orders had but these ends: {dict(count.outcomes)}")

    def _one(self, prefix: Sequence[int]) -> list[tuple[int, list[int]]]:
        """One order, which begins with the moves of ``prefix``; the moves, each with whose it could have been."""
        self._ground.restore()
        players = [
            _Player(part, actor, self._level, door)
            for part, actor, door in zip(self._staged.parts, self._actors, self._doors, strict=True)
        ]
        trace: list[tuple[int, list[int]]] = []
        told: list[str] = []
        try:
            while not all(player.over for player in players):
                able = [i for i, player in enumerate(players) if not player.over and player.ready]
                mover = prefix[len(trace)] if len(trace) < len(prefix) else able[0]
                if mover not in able:
                    raise Missed(f"the same order did not come again: {prefix}")
                trace.append((mover, able))
                was = {p.part.name: bool(p.blocked_by) for p in players}
                players[mover].moves()
                self._settle(players)
                for player in sorted(players, key=lambda p: p is not players[mover]):
                    if player is players[mover] or was[player.part.name]:
                        told.append(f"{player.part.name}: {player.where()}")
                self._count.waits += bool(players[mover].blocked_by) and not players[mover].at_door
            self._judge(players, "\n  ".join(told))
        except BaseException as error:
            error.add_note(f"{self._name} at {self._level}, in this order:\n  " + "\n  ".join(told))
            raise
        finally:
            for player in players:
                player.lets_go()
        self._count.runs += 1
        return trace

    def _settle(self, players: Sequence[_Player]) -> None:
        """Return when each actor has ended, stands, or is blocked by one who stands."""
        doors = {door.pid for door in self._doors if door is not None}
        deadline = time.monotonic() + DEADLINE
        looks = 0
        while True:
            running = [p for p in players if p._act is not None and not p.over and not self._stands(p)]
            if not running:
                return
            if (looks := looks + 1) == 1:  # most are there in a moment: the server need not be asked
                time.sleep(PAUSE)
                continue
            # Only now, that it is known who stands: those are not told to go, so what they hold up stays held up.
            found = self._ground.blockers([p.actor.pid for p in running])
            standing = doors | {p.actor.pid for p in players if p not in running and not p.over}
            grown = True
            while grown:
                more = {p.actor.pid for p in running if standing & set(found[p.actor.pid])} - standing
                grown = bool(more)
                standing |= more
            if all(p.actor.pid in standing for p in running):
                for p in running:
                    p.blocked_by = found[p.actor.pid]
                return
            if time.monotonic() > deadline:
                raise Missed(f"nobody stands, yet {[p.part.name for p in running]} go nowhere: {found}")
            time.sleep(PAUSE)

    def _stands(self, player: _Player) -> bool:
        if any(stop.stands for stop in player._stops):
            player.blocked_by = []
            return True
        return False

    def _judge(self, players: Sequence[_Player], order: str) -> None:
        answers = {p.part.name: p.answer() for p in players}
        for player in players:
            strange = [state for state in player.actor.sqlstates if state not in self._staged.allows]
            assert not strange, f"the server refused {player.part.name} with {strange}: {answers[player.part.name]}"
        assert (found := self._ground.violations()) == [], found
        outcome = self._staged.judge(Ended(answers, self._make, order))
        assert outcome is not False
        self._count.outcomes[str(outcome)] += 1
