"""Prune: finished passes that others have followed go when they are old, a batch at a time; floor 2.

Each batch is a transaction of its own that leaves every promise whole, so it may be stopped at any moment, and run
beside the work. One event a site tells what is gone: it is written with the first batch and grows with each. It also
keeps the greatest fence that is known to nobody any more; the audit asks for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection

from pipeline.service.base import Service, clean
from pipeline.sql import prune
from pipeline.sql.batch import bound

ROWS = 1000
"""How many rows a transaction may take; a single pass that has more goes alone."""

WINDOW = 1000
"""How many topics are looked through at once."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How much of a site went, or would go."""

    passes: int = 0
    assemblies: int = 0
    attempts: int = 0
    events: int = 0
    findings: int = 0

    def __add__(self, other: "Pruned") -> "Pruned":
        mine = asdict(self)
        return Pruned(**{name: mine[name] + number for name, number in asdict(other).items()})


@dataclass(frozen=True, slots=True)
class _Run:
    """One prune of a site as far as it is committed."""

    site_id: int
    older: timedelta
    actor: str
    reason: str
    assemblies: bool = False
    after: int = 0
    up_to: int = 0
    done: Pruned = Pruned()
    fence: int | None = None
    event_id: int | None = None

    def values(self) -> dict[str, Any]:
        seconds = self.older.total_seconds()
        here = {"site_id": self.site_id, "older_seconds": seconds, "after": self.after, "up_to": self.up_to}
        return bound(**here, rows=ROWS, window=WINDOW)


class Prune(Service):
    """Takes away what is long over."""

    rouses = False

    def prune(
        self,
        site_id: int,
        older: timedelta,
        *,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
        progress: Callable[[Pruned], None] = lambda done: None,
    ) -> Pruned:
        """Delete finished passes of a site that ended longer ago than ``older``, with their attempts, findings and
        events; with ``dry_run`` only count them.

        A topic's newest pass stays, and a site's newest assembly; so does what lies beyond ``passed`` of a strict gate.
        """
        done = Pruned()
        for so_far in self.steps(site_id, older, actor=actor, reason=reason, dry_run=dry_run):
            if so_far != done and not dry_run:
                progress(so_far)
            done = so_far
        return done

    def steps(
        self, site_id: int, older: timedelta, *, actor: str, reason: str = "", dry_run: bool = False
    ) -> Iterator[Pruned]:
        """The same, a transaction at a time: after each, how much is gone so far."""
        run = _Run(site_id, older, clean(actor, 200), clean(reason))
        for assemblies in (False, True):
            run = replace(run, assemblies=assemblies, after=0)
            while (up_to := self._window(run)) is not None:
                run = replace(run, up_to=up_to)
                if dry_run:
                    run = self._count(run)
                else:
                    while (more := self._write(partial(self._batch, run=run))) is not None:
                        run = more
                        yield run.done
                run = replace(run, after=up_to)
                yield run.done

    def _window(self, run: _Run) -> int | None:
        with self._reading() as connection:
            found: int | None = connection.execute(prune.window(assemblies=run.assemblies), run.values()).scalar()
            return found

    def _count(self, run: _Run) -> _Run:
        with self._reading() as connection:
            statement = prune.count(self._clock, assemblies=run.assemblies)
            passes, attempts, events, findings = map(int, connection.execute(statement, run.values()).one())
        return replace(run, done=run.done + _pruned(run, passes, attempts, events, findings))

    def _batch(self, connection: Connection, run: _Run) -> _Run | None:
        if connection.execute(prune.site(), run.values()).one_or_none() is None:
            return None
        statement = prune.choose(self._clock, assemblies=run.assemblies)
        ids = list(connection.execute(statement, run.values()).scalars())
        if not ids:
            return None
        gone = bound(ids=ids)
        findings = connection.execute(prune.forget_findings(), gone).rowcount
        events = connection.execute(prune.forget_events(), gone).rowcount
        attempts, fence = connection.execute(prune.forget_attempts(), gone).one()
        passes = connection.execute(prune.forget_passes(), gone).rowcount
        done = run.done + _pruned(run, passes, attempts, events, findings)
        fence = max(filter(None, (run.fence, fence)), default=None)
        details = {**asdict(done), "older_than_seconds": run.older.total_seconds(), "fence": fence}
        event_id = run.event_id
        if event_id is None:
            said = bound(site_id=run.site_id, actor=run.actor, reason=run.reason, details=details)
            event_id = connection.execute(prune.note(), said).scalar_one()
        else:
            connection.execute(prune.add_up(), bound(event_id=event_id, details=details))
        return replace(run, done=done, fence=fence, event_id=event_id)


def _pruned(run: _Run, jobs: int, attempts: int, events: int, findings: int) -> Pruned:
    kind = {"assemblies" if run.assemblies else "passes": jobs}
    return Pruned(**kind, attempts=attempts, events=events, findings=findings)
