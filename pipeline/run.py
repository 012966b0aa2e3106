"""The main job: plan what is missing, work until the site is idle, tell what came of it; engine room."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from pipeline import migrate
from pipeline.build import Services, connect, is_embedded, open_database
from pipeline.crew import Crew
from pipeline.db import reason
from pipeline.errors import DatabaseError
from pipeline.project.loading import Stages, load_stages
from pipeline.project.site import Site, load_site
from pipeline.project.topics import load_topics
from pipeline.service.planning import StageSpec
from pipeline.service.reading import SiteStatus, Standing, Trouble
from pipeline.settings import Settings
from pipeline.stages import stage_name
from pipeline.states import HALTING, JobState
from pipeline.upkeep import reap
from pipeline.views import Planned, TopicRow, content_hash

TICK = 0.1
AWAY_FOR = 60.0  # seconds that the database may be away before a run gives up


@dataclass(frozen=True, slots=True)
class Progress:
    """What a display shows while the work goes on."""

    site: str
    seconds: float
    total: int  # passes that this run found or made
    standing: tuple[Standing, ...]
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What one run did, and what is left."""

    site: str
    planned: Planned
    status: SiteStatus
    troubles: tuple[Trouble, ...]
    later_seconds: float | None  # until the first job that this run did not wait for
    passes: int  # how many ended
    seconds: float
    output: Path
    embedded: bool
    held: int = 0
    waiting: int = 0
    notes: tuple[str, ...] = field(default=())
    stages: tuple[str, ...] = ()  # in their order

    @property
    def exit_code(self) -> int:
        """0: everything is live; 1: something needs a person, or a longer retry."""
        return 1 if self.troubles or self.later_seconds is not None or self.held or self.waiting else 0


class Run:
    """One ``pipeline run --site``."""

    def __init__(
        self,
        root: Path,
        slug: str,
        settings: Settings,
        *,
        workers: int | None = None,
        wait: timedelta = timedelta(minutes=2),
        show: Callable[[Progress], None] = lambda progress: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._root = root
        self._slug = slug
        self._settings = settings
        self._size = workers or os.cpu_count() or 1
        self._wait = wait.total_seconds()
        self._show = show
        self._say = say

    def run(self) -> Report:
        """Do it. Raises PipelineError for what cannot be begun; KeyboardInterrupt after giving back what was held."""
        began = time.monotonic()
        # The project's files first: a mistake in them is told before any server is started.
        site = load_site(self._root, self._slug)
        stages = load_stages(self._root)
        topics = hashed(site, stages, load_topics(site))
        with open_database(self._settings, self._root) as url:
            prepare_schema(url, self._settings, self._say)
            with connect(url, self._settings, name=f"pipeline run {self._slug}") as services:
                migrate.check_schema(services.engine, self._settings.db_schema)
                site_id = services.planning.register(site, specs(stages))
                planned = services.planning.plan(site_id, topics)
                passes = self._work(services, site, site_id, stages, topics)
                return self._report(services, site, site_id, planned, passes, time.monotonic() - began)

    def _work(self, services: Services, site: Site, site_id: int, stages: Stages, topics: Sequence[TopicRow]) -> int:
        reap(services, site_id)
        self._check_target(services, site, site_id, stages)
        standing = services.reading.standing(site_id)
        total = _unfinished(standing)
        if not self._moving(standing) and not services.work.heal(site_id):
            return 0
        ended = 0
        crew = Crew(self._root, self._size, site=self._slug, grace=self._settings.grace)
        began = time.monotonic()
        try:
            while True:
                standing = self._until_idle(services, site_id, crew, stages, total, began)
                ended += total - _unfinished(standing)
                # A topic whose row changed while its pass was under way gets its new pass now.
                again = services.planning.plan(site_id, topics)
                if not again.changed and not self._moving(services.reading.standing(site_id)):
                    return ended
                total = _unfinished(services.reading.standing(site_id))
        finally:
            crew.stop()

    def _until_idle(
        self, services: Services, site_id: int, crew: Crew, stages: Stages, total: int, began: float
    ) -> tuple[Standing, ...]:
        """Watch until nothing moves any more; returns the last standing."""
        away_since: float | None = None
        while True:
            if crew.watch():
                reap(services, site_id)
            try:
                standing = services.reading.standing(site_id)
                if not any(s.state is JobState.RESERVED or s.due for s in standing):
                    services.operate.hasten(site_id)
                    if not self._moving(standing) and not services.work.heal(site_id):
                        return standing
            except SQLAlchemyError as error:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > AWAY_FOR:
                    raise DatabaseError(f"the database went away and did not come back: {reason(error)}") from error
                time.sleep(1)
                continue
            away_since = None
            names = tuple(stages.pipeline)
            self._show(Progress(self._slug, time.monotonic() - began, total, standing, names))
            time.sleep(TICK)

    def _moving(self, standing: Sequence[Standing]) -> bool:
        """Whether something runs, is due, or will be within the time that we wait."""
        return any(
            s.state is JobState.RESERVED or s.due or (s.next_seconds is not None and s.next_seconds <= self._wait)
            for s in standing
        )

    def _check_target(self, services: Services, site: Site, site_id: int, stages: Stages) -> None:
        """Have the site assembled again when its theme changed, or its target lost something."""
        stage = stages.assemble
        if stage is None or stage.target is None:
            return
        row = services.reading.site(site.slug)
        if row is None or row.changed == 0:
            return  # nothing was ever published
        pages = services.reading.live(site_id, stage.target, with_content=False)
        if row.changed > row.built or row.fingerprint != stage.fingerprint(site) or not stage.intact(site, pages):
            services.work.touch(site_id)

    def _report(
        self, services: Services, site: Site, site_id: int, planned: Planned, passes: int, seconds: float
    ) -> Report:
        status = services.reading.status(site_id, site.slug)
        later = [s.next_seconds for s in status.standing if s.next_seconds is not None]
        troubled = status.count(*HALTING) > 0
        return Report(
            site=site.slug,
            planned=planned,
            status=status,
            troubles=tuple(services.reading.troubles(site_id)) if troubled else (),
            later_seconds=min(later, default=None),
            passes=passes,
            seconds=seconds,
            output=site.output,
            embedded=is_embedded(self._settings),
            waiting=status.count(JobState.WAITING),
            stages=services.reading.stages(site_id),
        )


def prepare_schema(url: str, settings: Settings, say: Callable[[str], None]) -> None:
    """On the embedded server: bring the schema up to date. On a named one that is its owner's decision."""
    if is_embedded(settings) and migrate.current(url, settings.db_schema) != migrate.head():
        say("preparing the database")
        migrate.upgrade(url, settings.db_schema)


def specs(stages: Stages) -> list[StageSpec]:
    """What the database is told of the project's stages."""
    return [StageSpec(stage_name(type(stage)), stage.width, stage.retry.attempts) for stage in stages.pipeline.values()]


def hashed(site: Site, stages: Stages, topics: Sequence[TopicRow]) -> list[TopicRow]:
    """The topics with the hash of all that their content depends on: the row, and what the stages add to it."""
    added: dict[str, list[str]] = {}
    for kind in {t.type for t in topics}:
        added[kind] = [stage.fingerprint(site, kind) for stage in stages.pipeline.values()]
    return [replace(t, input_hash=content_hash([t.title, t.type, dict(t.brief), added[t.type]])) for t in topics]


def _unfinished(standing: Sequence[Standing]) -> int:
    return sum(s.count for s in standing)
