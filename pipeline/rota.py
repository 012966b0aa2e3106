"""Whose turn it is to be asked for work: which prefixes, in which order, for how many jobs; engine room."""

import time
from collections import deque
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from pipeline.project.loading import Stages
from pipeline.service.work import BEGINNING, Floor, Key, Prefix, Seen, Work
from pipeline.stages import SiteStage
from pipeline.states import ASSEMBLE
from pipeline.views import Claim

SITES_A_CLAIM = 32
FLOOR = (BEGINNING, 0)
SHORT = timedelta(seconds=1)  # from when a job became due to its commit, mostly
LONG = timedelta(seconds=30)  # an open transaction is reckoned with for so long; one that takes longer, by
PART = 20  # a look at the whole, which takes no more than such a part of a worker's time,
SELDOM = 10.0  # but comes after so many seconds at the latest


class Rota:
    """What one worker knows of where work is.

    ``ready``: prefixes that may have something due. ``loners``: prefixes with a job that runs by itself.

    Claims begin at floors, for while some transaction keeps an old snapshot, all that was ever pending stays in the
    index. A floor is where the last claim of a prefix ended; after a look, what it saw first, or a time before which no
    open transaction can have planned anything.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self.ready: set[Key] = set()
        self.loners: list[Key] = []
        self._ends: dict[Key, Floor] = {}  # of the last claims since the look
        self._short: set[Key] = set()  # those that brought less than their share
        self._grounds: dict[Key, Floor] = {}  # before these there was nothing at the look, and will hardly be
        self._moments: deque[tuple[datetime, int]] = deque()  # of looks: when, and the next transaction then
        self._whole_at = float("-inf")
        self._turn = 0

    def look(self, work: Work, site_id: int | None) -> None:
        """Find what has become pending on the site, or on all, wherever claims would begin by now."""
        began = time.monotonic()
        whole = began >= self._whole_at
        known = self.ready | self._grounds.keys()
        seen = work.look(site_id, None if whole else {key: self._ground(key) for key in known})
        if whole:
            took = time.monotonic() - began
            self._whole_at = began + min(PART * took, SELDOM)
        self.ready |= seen.ready
        behind = (self._settled(seen), 0)
        for key in known | seen.first.keys():
            run_at, job_id = seen.first.get(key, behind)
            self._grounds[key] = min(behind, (run_at, job_id - 1))
        self._ends.clear()
        self._short.clear()

    def _settled(self, seen: Seen) -> datetime:
        """The time before which whatever became due is seen by now, unless a transaction is open for very long."""
        self._moments.append((seen.at, seen.next))
        earliest = seen.at - LONG
        while len(self._moments) > 1 and (self._moments[1][1] <= seen.oldest or self._moments[0][0] < earliest):
            self._moments.popleft()
        at, following = self._moments[0]
        return max(at - SHORT, earliest) if following <= seen.oldest else earliest

    def heed(self, work: Work, site_id: int | None) -> None:
        """Find where work has come just now."""
        known = self.ready | self._grounds.keys()
        self.ready |= work.look(site_id, {key: self._floor(key) for key in known}).ready

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
            Prefix(*key, share=share, lease=self._lease(key[1]), floor=self._floor(key))
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
                self._ends[key] = (c.run_at, c.job_id)
        for p in prefixes:
            key = (p.site_id, p.stage, p.priority)
            self._grounds.setdefault(key, FLOOR)
            self._short.discard(key)
            if got.get(key, 0) < p.share:
                self.ready.discard(key)  # empty; the next look, or a write of ours, names it again
                self._short.add(key)

    def _floor(self, key: Key) -> Floor:
        """Where the next claim is to begin."""
        ground = self._ground(key)
        if key not in self._ends:
            return ground
        run_at, job_id = self._ends[key]
        return max(ground, (run_at - SHORT, 0)) if key in self._short else (run_at, job_id)

    def _ground(self, key: Key) -> Floor:
        return self._grounds.get(key, FLOOR)

    def _lease(self, stage: str) -> timedelta:
        if stage == ASSEMBLE:
            return (self._stages.assemble or SiteStage()).lease
        return self._stages.pipeline[stage].lease
