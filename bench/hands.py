"""The hands of a worker without its stages: the product's own claim, floors and acknowledgement, one after another."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from pipeline.build import Services
from pipeline.project.loading import Stages
from pipeline.rota import Rota
from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.planning import StageSpec
from pipeline.sql.claim import Which
from pipeline.stages import Done, Outcome, Stage, StageContext
from pipeline.views import TopicView
from pipeline.worker import LOOK_AGAIN


class _Nothing(Stage):
    lease = timedelta(minutes=5)

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        return Done()


STAGES = (StageSpec("generate", None, 5), StageSpec("validate", None, 5), StageSpec("publish", 1, 5))


@dataclass(slots=True)
class Hands:
    """Claims up to ``room`` jobs and acknowledges them, as a worker's loop does, and notes how long each took."""

    services: Services
    sites: list[int]
    room: int
    name: str = "hands"
    claims: list[float] = field(default_factory=list)  # seconds
    acks: list[float] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    rota: Rota = field(init=False)
    _looked_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.rota = Rota(Stages({spec.name: _Nothing() for spec in STAGES}, None))

    def step(self, stage: Callable[[], None] | None = None) -> int:
        """One turn: look, claim, do what all stages at once take, acknowledge; how many jobs it moved on."""
        began = time.perf_counter()
        if began - self._looked_at >= LOOK_AGAIN:
            self._looked_at = began
            self.rota.look(self.services.work, self.sites[0] if len(self.sites) == 1 else None)
            self.looks.append(time.perf_counter() - began)
        prefixes = self.rota.shares(self.room, self.sites)
        if not prefixes:
            return 0
        began = time.perf_counter()
        held = self.services.work.claim(prefixes, self.name, Which.TOGETHER)
        claimed = time.perf_counter()
        self.rota.took(prefixes, held)
        self.claims.append(claimed - began)
        if not held:
            return 0
        if stage is not None:
            stage()
        claimed = time.perf_counter()
        settled = self.services.work.acknowledge([Ack(claim, Verb.ADVANCE) for claim in held], wait=True)
        self.acks.append(time.perf_counter() - claimed)
        self.rota.ready |= settled.ready
        return len(settled.outcomes)
