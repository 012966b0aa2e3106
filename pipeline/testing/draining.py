"""Run a project's own stages in this process until nothing is due; a door.

A real worker does the work, so order, retries and the ledger are what they are in production. When to end is decided by
what the database says, never by a pause. A job that is due later is not waited for.
"""

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from pipeline.build import Services, connect
from pipeline.db import parse_url
from pipeline.project.loading import Stages, load_stages
from pipeline.project.site import load_site
from pipeline.service.reading import SiteRow, SiteStatus, Trouble
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.testing.database import SCHEMA
from pipeline.upkeep import reap
from pipeline.views import JobView
from pipeline.worker import Worker

T = TypeVar("T")

LOOK = 0.01  # seconds between two looks at the database
GRACE = 2  # seconds that running stages get once the time is over
SHOWN = 20


class NotIdle(AssertionError):
    """The jobs did not come to rest in time."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What is left when nothing is due any more."""

    site: str
    finished: int  # reservations that ended, those of the site's own job included
    status: SiteStatus
    troubles: tuple[Trouble, ...]  # what needs a person
    later_seconds: float | None  # until the first job that is due later: a retry with a back-off, a snooze

    @property
    def all_done(self) -> bool:
        """Whether no job of the site is unfinished."""
        return not self.status.standing


def drain(
    database: str | Services,
    root: Path,
    site: str,
    *,
    timeout: float = 60,
    stages: Stages | None = None,
    concurrency: int = 4,
) -> Drained:
    """Work on a site in this process until nothing of it is due, reserved or to be promoted, or the site is paused.

    ``database`` is a URL, or services whose engine is connected to it; ``stages`` are those of ``root`` unless given.
    Stages that ask for a process run in a thread. Raises NotIdle, naming the jobs and their states, after ``timeout``
    seconds, and whatever the worker itself ends with.
    """
    load_site(root, site)  # a mistake in it is told before anything runs
    found = _in_threads(stages or load_stages(root))
    url, schema = (database, SCHEMA) if isinstance(database, str) else _address(database)
    # Not from the environment: a test runs alike wherever it runs.
    settings = Settings.model_construct(
        db_schema=schema, concurrency=concurrency, poll=timedelta(seconds=0.05), reap=timedelta(seconds=1),
        grace=timedelta(seconds=GRACE),
    )  # fmt: skip
    url = parse_url(url).render_as_string(hide_password=False)
    with connect(url, settings, name="pipeline drain") as services:
        row = services.reading.site(site)
        if row is None:
            raise NotIdle(f"the database knows no site {site!r}; plan it first: pipeline_project.plan()")
        reap(services, row.id)
        give_up = time.monotonic() + timeout
        finished = 0
        # Judged while nobody works, so nothing that a worker was about to do is missed. And a new worker looks at once
        # for what was mended here, a running one only after a while.
        while _stirs(services, row):
            worker = Worker(url, settings, root, found, site=site)
            with _working(worker) as thread:
                while _moves(services, row) and not thread.ended.wait(LOOK):
                    if time.monotonic() > give_up:
                        raise NotIdle(_report(services, row.id, timeout))
            finished += worker.finished
        return _drained(services, row.id, site, finished)


def _moves(services: Services, site: SiteRow) -> bool:
    """Whether something runs, or is due and may be taken."""
    standing = services.reading.standing(site.id)
    if any(s.state is JobState.RESERVED for s in standing):
        return True
    row = services.reading.site(site.slug)
    return any(s.due for s in standing) and row is not None and row.state == "active"


def _stirs(services: Services, site: SiteRow) -> bool:
    """Whether something is due once all that only needs a word has been given it."""
    services.operate.hasten(site.id)  # an assembly that waits for more pages: there are none to come
    services.work.heal(site.id)
    return _moves(services, site)


def _report(services: Services, site_id: int, timeout: float) -> str:
    jobs = services.reading.jobs(site_id, [JobState.RESERVED, JobState.PENDING, JobState.WAITING], SHOWN + 1)
    if not jobs:
        return f"the jobs came to rest just after {timeout:g} s; give drain() more time"
    lines = [_line(job) for job in jobs[:SHOWN]] + (["and more"] if len(jobs) > SHOWN else [])
    return "\n".join([f"still not idle after {timeout:g} s; these jobs are left:", *lines])


def _line(job: JobView) -> str:
    why = f"; last error: {job.error}" if job.error else ""
    tries = f"attempt {job.attempts} of {job.max_attempts}"
    return f"  job {job.id} ({job.topic or 'the site itself'}) at {job.stage}: {job.state}, {tries}{why}"


def _drained(services: Services, site_id: int, site: str, finished: int) -> Drained:
    status = services.reading.status(site_id, site)
    later = [s.next_seconds for s in status.standing if s.next_seconds is not None]
    return Drained(site, finished, status, tuple(services.reading.troubles(site_id)), min(later, default=None))


class _Thread:
    """The worker's thread; ``ended`` tells that it is over, ``error`` with what."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self.itself = threading.Thread(target=self._run, name="pipeline worker", daemon=True)

    def _run(self) -> None:
        try:
            self._worker.run()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


@contextmanager
def _working(worker: Worker) -> Iterator[_Thread]:
    """The worker at work in a thread; stopped at the end, and its own error raised if it had one."""
    thread = _Thread(worker)
    thread.itself.start()
    try:
        yield thread
    finally:
        worker.end()
        thread.itself.join()
    if thread.error is not None:
        raise thread.error


def _in_threads(stages: Stages) -> Stages:
    """The stages, those that ask for a process as copies that do not: no process is started in a test."""
    return Stages({name: _in_thread(stage) for name, stage in stages.pipeline.items()}, stages.assemble)


def _in_thread(stage: T) -> T:
    if getattr(stage, "executor", "thread") != "process":
        return stage
    twin = copy.copy(stage)
    setattr(twin, "executor", "thread")  # noqa: B010 - an instance's own, before the class's
    return twin


def _address(services: Services) -> tuple[str, str]:
    """URL and schema of an engine."""
    engine = services.engine
    schema = engine.get_execution_options().get("schema_translate_map", {}).get(None, SCHEMA)
    return engine.url.render_as_string(hide_password=False), str(schema)
