"""Whose turn it is to be asked for work: which prefixes, in which order, for how many jobs; engine room."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from pipeline.project.loading import Stages
from pipeline.service.work import BEGINNING, Prefix
from pipeline.stages import SiteStage
from pipeline.states import ASSEMBLE
from pipeline.views import Claim

Key = tuple[int, str, int]  # site, stage, priority

SITES_A_CLAIM = 32
FLOOR = (BEGINNING, 0)


class Rota:
    """What one worker knows of where work is.

    ``ready``: prefixes that may have something due. ``floors``: where the last claim of each ended. ``loners``:
    prefixes with a job that runs by itself.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self.ready: set[Key] = set()
        self.floors: dict[Key, tuple[datetime, int]] = {}
        self.loners: list[Key] = []
        self._turn = 0

    def note_loners(self, found: Sequence[Key], readable: Collection[int]) -> None:
        """Note where a job waits which runs by itself, of what this worker can do."""
        known = {*self._stages.pipeline, ASSEMBLE}
        self.loners = [key for key in found if key[0] in readable and key[1] in known]

    def loner(self) -> list[Prefix]:
        """The prefix that has waited longest with a job which runs by itself, to ask for that one; or none."""
        if not self.loners:
            return []
        key = self.loners.pop(0)  # the next look names it again
        return [Prefix(*key, share=1, lease=self._lease(key[1]))]

    def shares(self, room: int, readable: Collection[int], ahead: int = 0, quick: Collection[str] = ()) -> list[Prefix]:
        """Which prefixes of the ``readable`` sites to ask, later stages first; shares sum to the room, sites take
        turns. Stages that are ``quick`` share ``ahead`` jobs more, unless something else is ready: that would wait for
        them."""
        known = {name: place for place, name in enumerate(self._stages.pipeline)}
        known[ASSEMBLE] = len(known)  # without such a stage it is settled by the runner, or it would stand for ever
        mine = [key for key in self.ready if key[0] in readable and key[1] in known]
        if any(key[1] not in quick for key in mine):
            ahead = 0
        if not mine or room + ahead <= 0:
            return []
        sites = sorted({key[0] for key in mine})
        self._turn += 1
        start = self._turn % len(sites)
        chosen = (sites[start:] + sites[:start])[:SITES_A_CLAIM]
        # One claim in eight goes without regard to priority, so that none starves.
        ageing = self._turn % 8 == 0
        order = sorted(
            (key for key in mine if key[0] in chosen),
            key=lambda key: (0 if ageing else key[2], -known[key[1]], chosen.index(key[0])),
        )
        shares = dict.fromkeys(order, 0)
        for keys, jobs in ((order, room), ([key for key in order if key[1] in quick], ahead)):
            for place, key in enumerate(keys[:jobs]):
                share, rest = divmod(jobs, min(len(keys), jobs))
                shares[key] += share + (place < rest)
        return [
            Prefix(*key, share=share, lease=self._lease(key[1]), floor=self.floors.get(key, FLOOR))
            for key, share in shares.items()
            if share
        ]

    def took(self, prefixes: Sequence[Prefix], claims: Sequence[Claim]) -> None:
        """Note what a claim brought: where to begin next time, and which prefixes are empty."""
        got: dict[Key, int] = {}
        for c in claims:
            key = (c.site_id, c.stage, c.priority)
            got[key] = got.get(key, 0) + 1
            if c.run_at is not None:
                self.floors[key] = (c.run_at, c.job_id)
        for p in prefixes:
            key = (p.site_id, p.stage, p.priority)
            if got.get(key, 0) < p.share:
                self.ready.discard(key)  # empty; the next look, or a write of ours, names it again
                self.floors.pop(key, None)

    def _lease(self, stage: str) -> timedelta:
        if stage == ASSEMBLE:
            return (self._stages.assemble or SiteStage()).lease
        return self._stages.pipeline[stage].lease
