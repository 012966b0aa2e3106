"""What a worker has in hand: what it holds, what of it is done, and what of that is not committed yet; engine room."""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.heartbeat import Heartbeat
from pipeline.holding import Holding, now
from pipeline.pace import Pace
from pipeline.service.acknowledging import Ack, Fate, Settled, Verb

log = logging.getLogger("pipeline")

MISSES = 5  # flushes behind a busy gate before it is waited for
FEW = 8  # jobs


@dataclass(slots=True)
class Pending:
    """An acknowledgement that has not been committed yet."""

    ack: Ack
    misses: int = 0


class Holdings:
    """By their fences, with what is to be said of them.

    ``unsaid``: done, or to be given back, and not committed. ``finished`` and ``lost`` count.
    """

    def __init__(self, pace: Pace, heartbeat: Heartbeat) -> None:
        self._pace = pace
        self._heartbeat = heartbeat
        self._done: deque[tuple[Holding, Ack]] = deque()
        self._held: dict[int, Holding] = {}
        self.unsaid: dict[int, Pending] = {}
        self.finished = 0
        self.lost = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Holding]:
        return iter(self._held.values())

    def stages(self) -> list[str]:
        """That of each job in hand."""
        return [holding.claim.stage for holding in self]

    def take(self, holdings: list[Holding]) -> None:
        """They were claimed just now; to be kept alive by ``keep``."""
        jobs = {holding.claim.job_id for holding in holdings}
        for fence in [fence for fence, other in self._held.items() if other.claim.job_id in jobs]:
            self._held[fence].lost = True  # taken away from us, and ours once more
            self._lose(fence, "another worker has it")
        self._held.update((holding.claim.fence, holding) for holding in holdings)

    def keep(self, holdings: list[Holding]) -> None:
        """Renew their leases from now on."""
        self._heartbeat.hold(holdings)

    def came(self, holding: Holding, ack: Ack) -> None:
        """Its stage has ended; from any thread."""
        self._done.append((holding, ack))

    def collect(self) -> None:
        """Take the results that are there."""
        while self._done:
            holding, ack = self._done.popleft()
            fence = holding.claim.fence
            if holding.took is not None:
                self._pace.note(holding.claim.stage, holding.waited, holding.took)
            if not holding.ours():
                self._lose(fence, "its lease ran out here" if not holding.lost else "another worker has it")
            elif fence in self._held and fence not in self.unsaid:  # what is being given back stays given back
                self.unsaid[fence] = Pending(ack)

    def awaits(self) -> float:
        """Seconds for which more jobs may end, to be acknowledged together; none when a lane waits for one and there is
        little to come."""
        done = [holding for holding, _ in tuple(self._done)]
        if len(done) >= len(self) // 2 or (len(self) < FEW and any(holding.claim.gated for holding in done)):
            return 0.0
        return self._pace.company(self.stages())

    def ran_dry(self) -> bool:
        """Whether all that is in hand is done, and was quick."""
        return 0 < len(self) == len(self.unsaid) and all(map(self._pace.is_quick, self.stages()))

    def ready(self) -> tuple[list[Pending], list[Pending]]:
        """What is to be said: together; and each by itself and with patience, since its gate was busy again and again,
        or its lease is half over."""
        self.collect()
        for fence in [fence for fence in self.unsaid if not self._held[fence].ours()]:
            self._lose(fence, "its lease ran out here")
        moment = now()
        group: list[Pending] = []
        patient: list[Pending] = []
        for fence, pending in self.unsaid.items():
            late = pending.misses >= MISSES or self._held[fence].half_over(moment)
            (patient if late else group).append(pending)
        return group, patient

    def settle(self, group: Sequence[Pending], settled: Settled) -> None:
        """Let go what is written or lost; keep what is behind a busy gate, to be said again."""
        written = []
        for pending in group:
            fence = pending.ack.claim.fence
            match settled.fates[fence]:
                case Fate.BUSY:
                    pending.misses += 1
                case Fate.LOST:
                    self._lose(fence, "another worker has it")
                case Fate.WRITTEN:
                    written.append(fence)
                    self._held.pop(fence, None)
                    self.unsaid.pop(fence, None)
        self.finished += len(written)
        self._heartbeat.drop(written)

    def left(self, settled: Settled) -> list[str]:
        """The stage of each job that stays in hand once this is settled."""
        return [
            holding.claim.stage
            for fence, holding in self._held.items()
            if settled.fates.get(fence, Fate.BUSY) is Fate.BUSY
        ]

    def withdraw(self, why: str, lain: float = 0.0) -> list[Holding]:
        """Give back what has not begun to run though it lay here for so many seconds."""
        moment = now()
        idle = [
            holding
            for fence, holding in self._held.items()
            if fence not in self.unsaid and moment - holding.taken >= lain and holding.withdraw()
        ]
        self._release(idle, why)
        return idle

    def give_up(self, why: str) -> list[Holding]:
        """Give back all of which nothing is to be said yet."""
        self.collect()
        rest = [holding for fence, holding in self._held.items() if fence not in self.unsaid]
        self._release(rest, why)
        return rest

    def _release(self, holdings: list[Holding], why: str) -> None:
        for holding in holdings:
            self.unsaid[holding.claim.fence] = Pending(Ack(holding.claim, Verb.RELEASE, error=why))

    def _lose(self, fence: int, why: str) -> None:
        holding = self._held.pop(fence, None)
        self.unsaid.pop(fence, None)
        self._heartbeat.drop([fence])
        if holding is None:
            return
        self.lost += 1
        topic = holding.claim.topic
        of = f" ({topic.slug} at {holding.claim.stage})" if topic else f" ({holding.claim.stage})"
        log.warning("lost job %d%s: %s; its result is dropped", holding.claim.job_id, of, why)
