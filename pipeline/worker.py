"""One worker process: claim up to free capacity, run in threads, acknowledge in batches; engine room.

Claims are short transactions, stages run outside any, and capacity is free again only when an acknowledgement has been
committed. Three connections: this loop's, the heartbeat's, and one that the stages' ledger and questions share.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from pipeline.build import connect, services
from pipeline.db import is_passing, make_engine, reason
from pipeline.errors import DatabaseError, PipelineError
from pipeline.heartbeat import Heartbeat
from pipeline.holder import me
from pipeline.project.loading import Stages
from pipeline.project.site import Site, load_site
from pipeline.runner import Holding, Runner, now
from pipeline.service.work import BEGINNING, Ack, Fate, Prefix, Verb
from pipeline.settings import Settings
from pipeline.stages import SiteStage
from pipeline.states import ASSEMBLE
from pipeline.upkeep import Upkeep
from pipeline.views import Claim

log = logging.getLogger("pipeline")

SITES_A_CLAIM = 32
MISSES = 5  # flushes behind a busy gate before it is waited for
LOOK_AGAIN = 1.0  # seconds between two looks for prefixes, and for what lies before a floor


@dataclass(slots=True)
class _Pending:
    """An acknowledgement that has not been committed yet."""

    ack: Ack
    misses: int = 0


class Worker:
    """Works on one site, or on all, until ``stop`` is set.

    ``stop`` set: claims end at once, running stages may finish within ``settings.grace``, the rest is given back.
    """

    def __init__(self, url: str, settings: Settings, root: Path, stages: Stages, *, site: str | None = None) -> None:
        self._url = url
        self._settings = settings
        self._root = root
        self._stages = stages
        self._only = site
        self._name = me()
        self.stop = threading.Event()
        self._done: queue.SimpleQueue[tuple[Holding, Ack]] = queue.SimpleQueue()
        self._held: dict[int, Holding] = {}
        self._unsaid: dict[int, _Pending] = {}
        self._ready: set[tuple[int, str, int]] = set()
        self._floors: dict[tuple[int, str, int], tuple[datetime, int]] = {}
        self._looked_at = float("-inf")
        self._sites: dict[int, Site] = {}
        self._unreadable: set[str] = set()
        self._site_ids: list[int] = []
        self._turn = 0
        self._well = True
        self._idle = 0.0
        self.finished = 0
        self.lost = 0

    def run(self) -> None:
        """Work until stopped. Raises DatabaseError when the server cannot be used at the start."""
        with connect(self._url, self._settings, name="pipeline worker", connections=1) as mine:
            shared = make_engine(self._url, schema=self._settings.db_schema, connections=1, name="pipeline stages")
            self._services = mine
            self._runner = Runner(services(shared), self._stages)
            self._heartbeat = Heartbeat(self._url, self._settings.db_schema, "pipeline")
            self._upkeep = Upkeep(mine, lambda: self._site_ids, self._settings.reap)
            pool = ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="stage")
            self._heartbeat.start()
            try:
                while not self.stop.is_set():
                    self._guarded(lambda: self._step(pool))
                self._wind_down()
            finally:
                # A stage that does not heed cancelled() may run on; the process ends without it.
                pool.shutdown(wait=False, cancel_futures=True)
                self._heartbeat.stop()
                shared.dispose()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do a step; a database that is away is told once, and looked for again with growing patience."""
        try:
            step()
        except SQLAlchemyError as error:
            if not is_passing(error):
                raise DatabaseError(f"the database does not understand this release: {reason(error)}") from error
            if self._well:
                log.warning("the database is away, work stands still: %s", reason(error))
                self._well, self._idle = False, 0.1
            self._pause(self._idle)
            self._idle = min(self._idle * 2, 30.0)
        else:
            if not self._well:
                log.warning("the database is back")
                self._well, self._idle = True, 0.0

    def _pause(self, seconds: float) -> None:
        """Wait, but not for the event itself: a signal's handler sets it, and would wait for a lock that we hold."""
        until = time.monotonic() + seconds
        while not self.stop.is_set() and time.monotonic() < until:
            time.sleep(0.05)

    def _step(self, pool: ThreadPoolExecutor) -> None:
        if not self._heartbeat.alive:
            raise PipelineError("the heartbeat thread has died; this worker stops")
        self._look()
        self._flush()
        claimed = self._claim(pool)
        if claimed:
            self._idle = 0.0
            return
        # Something running: its result wakes us. Nothing: look again soon, and less and less often.
        self._idle = min(max(self._idle * 2, 0.01), self._settings.poll.total_seconds())
        self._collect(0.25 if self._held and not self._has_room() else self._idle)

    def _has_room(self) -> bool:
        return len(self._held) < self._settings.concurrency

    def _look(self) -> None:
        """Now and then: which prefixes have work, what others left, and forget the floors."""
        if time.monotonic() - self._looked_at < LOOK_AGAIN:
            return
        self._looked_at = time.monotonic()
        found = self._known_sites()
        site_id = found[0] if self._only is not None and found else None
        if self._only is not None and site_id is None:
            return
        if self._upkeep.due():
            self._ready |= self._upkeep.run()
        self._ready |= set(self._services.work.prefixes(site_id))
        self._floors.clear()

    def _known_sites(self) -> list[int]:
        """The sites to work on: those that the database has and whose folder here can be read.

        They are read before anything is claimed, so that a broken one stops no other.
        """
        for site_id, slug in self._services.reading.sites():
            if site_id in self._sites or (self._only is not None and slug != self._only):
                continue
            try:
                self._sites[site_id] = load_site(self._root, slug)
            except PipelineError as error:
                if slug not in self._unreadable:
                    log.warning("site %s is left to others: %s", slug, error)
                self._unreadable.add(slug)
        self._site_ids = sorted(self._sites)
        return self._site_ids

    def _claim(self, pool: ThreadPoolExecutor) -> bool:
        room = self._settings.concurrency - len(self._held)
        prefixes = self._shares(room)
        if not prefixes:
            return False
        asked_at = now()
        claims = self._services.work.claim(prefixes, self._name)
        got: dict[tuple[int, str, int], int] = {}
        for c in claims:
            key = (c.site_id, c.stage, c.priority)
            got[key] = got.get(key, 0) + 1
            if c.run_at is not None:
                self._floors[key] = (c.run_at, c.job_id)
        for p in prefixes:
            key = (p.site_id, p.stage, p.priority)
            if got.get(key, 0) < p.share:
                self._ready.discard(key)  # empty; the next look, or a write of ours, names it again
                self._floors.pop(key, None)
        holdings = [self._holding(c, asked_at) for c in claims]
        self._heartbeat.hold(holdings)
        for holding in holdings:
            self._held[holding.claim.fence] = holding
            future = pool.submit(self._run, holding)
            future.add_done_callback(_tell)
        return bool(claims)

    def _shares(self, room: int) -> list[Prefix]:
        """Which prefixes to ask, later stages first; shares sum to the room, sites take turns."""
        known = {name: place for place, name in enumerate(self._stages.pipeline)}
        known[ASSEMBLE] = len(known)  # without such a stage it is settled by the runner, or it would stand for ever
        mine = [key for key in self._ready if key[0] in self._sites and key[1] in known]
        if room <= 0 or not mine:
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
        share, rest = divmod(room, min(len(order), room))
        return [
            Prefix(*key, share=share + (place < rest), lease=self._lease(key[1]), floor=self._floors.get(key, FLOOR))
            for place, key in enumerate(order[:room])
        ]

    def _lease(self, stage: str) -> timedelta:
        if stage == ASSEMBLE:
            return (self._stages.assemble or SiteStage()).lease
        return self._stages.pipeline[stage].lease

    def _holding(self, claim: Claim, asked_at: float) -> Holding:
        holding = Holding(claim, 0.0, self._sites[claim.site_id])
        holding.extend(asked_at)
        return holding

    def _run(self, holding: Holding) -> None:
        if holding.stop:
            return
        holding.started = True
        self._done.put((holding, self._runner.run(holding)))

    def _collect(self, patience: float) -> None:
        """Take the results that are there; wait for the first at most ``patience`` seconds."""
        try:
            first = self._done.get(timeout=patience) if patience > 0 else self._done.get_nowait()
        except queue.Empty:
            return
        self._take(*first)
        while not self._done.empty():
            self._take(*self._done.get())

    def _take(self, holding: Holding, ack: Ack) -> None:
        fence = holding.claim.fence
        if not holding.ours():
            self._lose(fence, "its lease ran out here" if not holding.lost else "another worker has it")
        elif fence in self._held:
            self._unsaid[fence] = _Pending(ack)

    def _lose(self, fence: int, why: str) -> None:
        holding = self._held.pop(fence, None)
        self._unsaid.pop(fence, None)
        self._heartbeat.drop([fence])
        if holding is None:
            return
        self.lost += 1
        topic = holding.claim.topic
        of = f" ({topic.slug} at {holding.claim.stage})" if topic else f" ({holding.claim.stage})"
        log.warning("lost job %d%s: %s; its result is dropped", holding.claim.job_id, of, why)

    def _flush(self) -> None:
        """Commit what is done. Jobs behind busy gates come again, and are waited for when that lasts."""
        self._collect(0)
        for fence in [f for f in self._unsaid if not self._held[f].ours()]:
            self._lose(fence, "its lease ran out here")
        patient = [p for p in self._unsaid.values() if p.misses >= MISSES or self._half_over(p.ack.claim.fence)]
        self._say([p for p in self._unsaid.values() if p not in patient], wait=False)
        for pending in patient:
            self._say([pending], wait=pending.misses > 0)

    def _half_over(self, fence: int) -> bool:
        holding = self._held[fence]
        return holding.until - now() < holding.claim.lease.total_seconds() / 2

    def _say(self, group: list[_Pending], *, wait: bool) -> None:
        if not group:
            return
        settled = self._services.work.acknowledge([p.ack for p in group], wait=wait)
        self._ready |= settled.ready
        for pending in group:
            fence = pending.ack.claim.fence
            fate = settled.fates[fence]
            if fate is Fate.BUSY:
                pending.misses += 1
            elif fate is Fate.LOST:
                self._lose(fence, "another worker has it")
            else:
                self.finished += 1
                self._held.pop(fence, None)
                self._unsaid.pop(fence, None)
                self._heartbeat.drop([fence])

    def _wind_down(self) -> None:
        """Let running stages finish within the grace period, then give back what is left."""
        for holding in self._held.values():
            holding.stop = not holding.started
        give_up = time.monotonic() + self._settings.grace.total_seconds()
        while time.monotonic() < give_up and any(h.started for h in self._held.values()):
            self._collect(0.05)
            self._try_for(give_up, self._flush)
        for holding in self._held.values():
            holding.stop = True
        rest = [h for f, h in self._held.items() if f not in self._unsaid]
        for holding in rest:
            self._unsaid[holding.claim.fence] = _Pending(Ack(holding.claim, Verb.RELEASE, error="the worker stopped"))
        until = max(give_up, time.monotonic() + 5)
        while self._unsaid and time.monotonic() < until:
            self._try_for(until, self._flush)
        if rest:
            log.info("gave back %d job(s)", len(rest))

    def _try_for(self, until: float, step: Callable[[], None]) -> None:
        try:
            step()
        except SQLAlchemyError as error:
            if not is_passing(error):
                raise DatabaseError(f"jobs could not be given back: {reason(error)}") from error
            if self._well:
                log.warning("cannot give back yet: %s", reason(error))
            self._well = False
            time.sleep(min(0.5, max(until - time.monotonic(), 0)))


FLOOR = (BEGINNING, 0)


def _tell(future: "Future[None]") -> None:
    """A thread of the pool must not die in silence."""
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("a stage thread failed: %s: %s", type(error).__name__, error)
