"""One worker process: claim up to free capacity, have stages run, acknowledge in batches; engine room.

Claims are short transactions, stages run outside any, and capacity is free again only when an acknowledgement has been
committed. Three connections: this loop's, the heartbeat's, and one that the stages' ledger and questions share.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from pipeline.bell import Bell
from pipeline.build import connect, services
from pipeline.db import AT_WORK, is_passing, make_engine, reason, refusal
from pipeline.errors import DatabaseError, PipelineError
from pipeline.executors import Executors
from pipeline.folders import Folders
from pipeline.heartbeat import Heartbeat
from pipeline.holder import me
from pipeline.holding import Holding, now
from pipeline.holdings import Holdings, Pending
from pipeline.pace import Pace
from pipeline.project.loading import Stages
from pipeline.rota import Rota
from pipeline.runner import Runner
from pipeline.service.acknowledging import Ack, Settled
from pipeline.service.work import Prefix
from pipeline.settings import Settings
from pipeline.sql.claim import Which
from pipeline.upkeep import Upkeep
from pipeline.views import Claim

log = logging.getLogger("pipeline")

LONELY = 30.0  # seconds after which full hands are emptied for a job that runs by itself
LOOK_AGAIN = 1.0  # seconds between two looks for prefixes, and for what lies before a floor
WORDS = 0.02  # seconds between two words to others, at least
LAIN = 3.0  # seconds after which a job that has not begun is given back: whatever has all hands may have them for long
STOPPED = "the worker stopped"
LAST_WORDS = 3.0  # seconds beyond the grace period in which jobs are given back


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
        self._bell = Bell()
        self._pace = Pace(settings.concurrency)
        self._heartbeat = Heartbeat(url, settings.db_schema, "pipeline", prepare=settings.prepare)
        self._holdings = Holdings(self._pace, self._heartbeat)
        self._rota = Rota(stages)
        self._looked_at = float("-inf")
        self._folders = Folders(root, site)
        self._alone = False  # what is in hand runs by itself
        self._waited_since = time.monotonic()  # with full hands, for something that wants to run by itself
        self._well = True
        self._idle = 0.0
        self._told_at = float("-inf")
        self._pause_between = WORDS

    @property
    def finished(self) -> int:
        """How many jobs it has done."""
        return self._holdings.finished

    def run(self) -> None:
        """Work until stopped. Raises DatabaseError when the server cannot be used at the start."""
        with connect(
            self._url,
            self._settings,
            name="pipeline worker",
            connections=1,
            patience=AT_WORK,
            steady=True,
            listen=self._bell.hear,
        ) as mine:
            shared = make_engine(
                self._url,
                schema=self._settings.db_schema,
                connections=1,
                name="pipeline stages",
                prepare=self._settings.prepare,
                steady=True,
            )
            self._services = mine
            runner = Runner(services(shared), self._stages)
            self._upkeep = Upkeep(mine, lambda: self._folders.ids, self._settings.reap, self._settings.prune_after)
            self._executors = Executors(runner, self._root, self._settings.concurrency, self._came)
            self._heartbeat.start()
            try:
                while not self.stop.is_set():
                    self._guarded(self._step)
                self._wind_down()
                with suppress(SQLAlchemyError):  # for human eyes; what stays is forgotten after an hour
                    mine.roster.leave(self._name)
            finally:
                self._executors.close()
                self._heartbeat.stop()
                shared.dispose()

    def end(self) -> None:
        """Let ``run`` come to its end; a signal's handler may say so."""
        self.stop.set()
        self._bell.ring()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do a step; a database that is away is told once, and looked for again with growing patience."""
        try:
            step()
        except SQLAlchemyError as error:
            if not is_passing(error):
                role = make_url(self._url).username
                raise DatabaseError(
                    f"the database refused: {refusal(error, schema=self._settings.db_schema, role=role)}"
                ) from error
            if self._well:
                log.warning("the database is away, work stands still: %s", reason(error))
                self._well, self._idle = False, 0.1
            # What failed may have been a write, and a step that has nothing to write proves nothing: upkeep has.
            self._looked_at = float("-inf")
            self._upkeep.hasten()
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

    def _step(self) -> None:
        if not self._heartbeat.alive:
            raise PipelineError("the heartbeat thread has died; this worker stops")
        self._look()
        if self._turn_over():
            self._idle = 0.0
            self._pass_on()
            return
        # Its result wakes us, if something runs, and so does the server. Else look again soon, and less and less often.
        self._idle = min(max(self._idle * 2, 0.01), self._settings.poll.total_seconds())
        self._bell.wait(self._idle if self._has_room() else 0.25, self._services.engine)

    def _has_room(self) -> bool:
        return len(self._holdings) < self._pace.most(self._holdings.stages()) and not self._alone

    def _pass_on(self) -> None:
        """Tell others of work that there are no hands free for here; less and less often, as long as that lasts."""
        if self._has_room() or not self._rota.ready:
            self._pause_between = WORDS
        elif time.monotonic() - self._told_at > self._pause_between:
            self._told_at = time.monotonic()
            self._pause_between = min(self._pause_between * 2, LOOK_AGAIN)
            self._services.work.wake()

    def _look(self) -> None:
        """Now and then, but once after what others named: which prefixes have work, and what others left."""
        if time.monotonic() - self._looked_at < (2 * LOOK_AGAIN if self._bell.named else LOOK_AGAIN):
            self._heed()
            return
        self._looked_at = time.monotonic()
        if self._holdings.withdraw("no hand was free for it", LAIN):
            self._pace.clogged()  # what was quick is not any more
        self._folders.look(self._services.reading.sites())
        if self._only is not None and not self._folders.ids:
            return
        site_id = self._one_site()
        if self._upkeep.due():
            self._services.roster.see(self._name, os.getpid(), self._only, self._stages.leases())
            self._rota.ready |= self._upkeep.run()
        self._rota.look(self._services.work, site_id)
        self._rota.note_loners(self._services.work.loners(site_id), self._folders.sites)
        if not self._rota.loners or not self._holdings:
            self._waited_since = time.monotonic()

    def _heed(self) -> None:
        """Take up what another told of when there is room for it: where he named it, else look for prefixes."""
        if (self._bell.told or self._bell.named) and self._has_room() and self._folders.ids:
            told, named = self._bell.take()
            self._rota.ready |= {key for key in named if key[0] in self._folders.sites}
            if told:
                self._rota.heed(self._services.work, self._one_site())

    def _one_site(self) -> int | None:
        """The site to ask about; None for all."""
        return self._folders.ids[0] if self._only is not None else None

    def _claim(self) -> bool:
        """Reserve what there is room for. Who was lost with its worker again and again may be what kills: it is taken
        when nothing else is in hand, and nothing beside it."""
        if not self._holdings:
            self._alone = self._take_up(self._rota.loner(), Which.ALONE)
            if self._alone:
                return True
        if self._waits_for_loners():
            return False
        return self._take_up(self._shares(self._holdings.stages()), Which.TOGETHER)

    def _shares(self, stages: Sequence[str]) -> list[Prefix]:
        """What to ask for beside the jobs in hand at these ``stages``; nothing once this worker is told to stop."""
        if self.stop.is_set():
            return []
        room = max(self._settings.concurrency - len(stages), 0)
        ahead = self._pace.most(stages) - len(stages) - room
        quick = [stage for stage in self._stages.pipeline if self._pace.is_quick(stage)]
        return self._rota.shares(room, self._folders.sites, max(ahead, 0), quick)

    def _waits_for_loners(self) -> bool:
        """Whether hands are to become empty first."""
        return self._alone or time.monotonic() - self._waited_since > LONELY

    def _take_up(self, prefixes: list[Prefix], which: Which) -> bool:
        if not prefixes:
            return False
        asked_at = now()
        return self._start(prefixes, self._services.work.claim(prefixes, self._name, which), which, asked_at)

    def _start(self, prefixes: Sequence[Prefix], claims: Sequence[Claim], which: Which, asked_at: float) -> bool:
        if which is Which.TOGETHER:
            self._rota.took(prefixes, claims)
        holdings = [self._holding(c, asked_at) for c in claims]
        self._holdings.take(holdings)
        for holding in holdings:
            self._executors.start(holding)
        time.sleep(0)  # the first of the threads may have the interpreter, before we look for more to do
        self._holdings.keep(holdings)
        return bool(claims)

    def _holding(self, claim: Claim, asked_at: float) -> Holding:
        holding = Holding(claim, 0.0, self._folders.sites[claim.site_id])
        holding.extend(asked_at)
        return holding

    def _came(self, holding: Holding, ack: Ack) -> None:
        self._holdings.came(holding, ack)
        self._bell.ring()

    def _turn_over(self) -> bool:
        """Commit what is done and reserve what there is room for then, in one transaction where that may be."""
        time.sleep(self._holdings.awaits())
        group = self._ready()
        if self._holdings.ran_dry():
            self._pace.ran_dry()
        emptied = len(group) == len(self._holdings) and bool(self._rota.loners)
        whole = any(p.ack.claim.topic is None for p in group)
        if not group or whole or emptied or self._waits_for_loners():
            self._say(group, wait=False)
            return self._claim()
        chosen: list[Prefix] = []

        def choose(settled: Settled) -> list[Prefix]:
            self._rota.ready |= settled.ready
            chosen[:] = self._shares(self._holdings.left(settled))
            return chosen

        asked_at = now()
        settled, claims = self._services.work.turn_over([p.ack for p in group], choose, self._name)
        self._settle(group, settled)
        return self._start(chosen, claims, Which.TOGETHER, asked_at)

    def _flush(self) -> None:
        """Commit what is done."""
        self._say(self._ready(), wait=False)

    def _ready(self) -> list[Pending]:
        """What is done and not committed yet. Jobs behind busy gates come again, and are waited for when that lasts."""
        group, patient = self._holdings.ready()
        for pending in patient:
            self._say([pending], wait=pending.misses > 0)
        return group

    def _say(self, group: list[Pending], *, wait: bool) -> None:
        if group:
            self._settle(group, self._services.work.acknowledge([p.ack for p in group], wait=wait))

    def _settle(self, group: list[Pending], settled: Settled) -> None:
        self._rota.ready |= settled.ready
        self._holdings.settle(group, settled)

    def _wind_down(self) -> None:
        """Let running stages finish within the grace period, then give back what is left."""
        given = self._holdings.withdraw(STOPPED)
        give_up = time.monotonic() + self._settings.grace.total_seconds()
        while time.monotonic() < give_up and any(holding.started for holding in self._holdings):
            self._bell.wait(0.05)
            self._try_for(give_up, self._flush)
        for holding in self._holdings:
            holding.stop = True
        # First, so that nothing runs any more of what others may take up.
        self._executors.cut()
        given += self._holdings.give_up(STOPPED)
        unsaid = self._holdings.unsaid
        until = give_up + LAST_WORDS
        while unsaid and time.monotonic() < until:
            self._try_for(until, self._flush)
        if count := sum(holding.claim.fence not in unsaid for holding in given):
            log.info("gave back %d job(s)", count)
        if unsaid:
            raise DatabaseError(f"{len(unsaid)} job(s) could not be given back; other workers take them over")

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
