"""The main job: plan what is missing, work until the site is idle, tell what came of it. Or look ahead; engine room."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from pipeline import migrate
from pipeline.build import Services, connect, is_embedded, open_database, services as build_services
from pipeline.crew import Crew, Recruit
from pipeline.db import is_passing, reason
from pipeline.errors import DatabaseError, Refused
from pipeline.project.loading import Stages, load_stages
from pipeline.project.site import Site, load_site
from pipeline.project.topics import load_topics
from pipeline.remarks import lane_note, order_notes, paused_note, stands
from pipeline.service.preview import Preview, Previews, of_a_new_site
from pipeline.service.reading import Reading, SiteStatus, Standing, Trouble
from pipeline.settings import Settings
from pipeline.states import ASSEMBLE, HALTING, JobState, LaneState, StageState
from pipeline.upkeep import reap
from pipeline.views import Planned, TopicRow
from pipeline.wanted import fingerprints, hashed, longest_first, specs

TICK = 0.05  # seconds between two looks, while looking costs little
LOOKING = 0.05  # of the time at most: what is unfinished is counted each time
LONGEST = 2.0  # seconds between two looks, whatever one took
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
    paused: bool = False  # the site was paused while it ran
    stranded: int = 0  # jobs at stages that this project does not have
    resting: int = 0  # jobs at stages that are paused

    @property
    def exit_code(self) -> int:
        """0: everything is live; 1: something needs a person, or a longer retry."""
        later = self.later_seconds is not None
        stands = self.held or self.waiting or self.paused or self.stranded or self.resting
        return 1 if self.troubles or later or stands else 0


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a run would do now, and what could be said of it."""

    site: str
    preview: Preview
    assembly: bool
    stages: tuple[str, ...]  # in their order
    notes: tuple[str, ...]


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
        with Recruit(self._root) as recruit:
            topics = hashed(site, stages, load_topics(site))
            with open_database(self._settings, self._root) as url:
                prepare_schema(url, self._settings, self._say)
                with connect(url, self._settings, name=f"pipeline run {self._slug}") as services:
                    migrate.check_schema(services.engine, self._settings.db_schema)
                    refuse_if_paused(services, self._slug)
                    site_id = services.planning.register(site, specs(stages), fingerprints(site, stages, topics))
                    for note in order_notes(services.planning.differences(site_id, specs(stages)), self._slug):
                        self._say(note)
                    planned = services.planning.plan(site_id, longest_first(topics))
                    passes = self._work(services, site, site_id, stages, topics, planned, recruit)
                    return self._report(services, site, site_id, stages, planned, passes, time.monotonic() - began)

    def plan(self) -> Outlook:
        """What ``run`` would do, found without writing anything: no server is made, no schema upgraded."""
        site = load_site(self._root, self._slug)
        stages = load_stages(self._root)
        topics = hashed(site, stages, load_topics(site))
        strict = any(spec.width == 1 for spec in specs(stages))
        notes: list[str] = []
        due = False
        with self._looking(notes) as services:
            if services is None:
                preview = of_a_new_site(topics, strict=strict)
            else:
                preview = Previews(services.engine).look(self._slug, topics, strict=strict)
                due = assembly_is_due(services.reading, site, stages)
                row = services.reading.site(self._slug)
                if row is not None:
                    notes += order_notes(services.planning.differences(row.id, specs(stages)), self._slug)
                    notes += [paused_note(name, self._slug) for name in paused_stages(services, row.id)]
        if preview.state == "paused":
            notes.append(f"the site is paused, so a run is refused; first: pipeline sites resume {self._slug}")
        assembly = due or any(lane.moves for lane in preview.lanes)
        names = tuple(stages.pipeline)
        return Outlook(self._slug, preview, assembly and stages.assemble is not None, names, tuple(notes))

    @contextmanager
    def _looking(self, notes: list[str]) -> Iterator[Services | None]:
        """Services whose transactions the server keeps from writing; None where a run would begin with nothing."""
        if is_embedded(self._settings) and not embedded_is_there(self._root):
            notes.append("there is no database yet: a run makes one in .pipeline/")
            yield None
            return
        with (
            open_database(self._settings, self._root) as url,
            connect(url, self._settings, name=f"pipeline run {self._slug} --plan", connections=1) as services,
        ):
            if is_embedded(self._settings) and migrate.current(url, self._settings.db_schema) is None:
                notes.append("the database is empty: a run prepares it")
                yield None
                return
            migrate.check_schema(services.engine, self._settings.db_schema)
            yield build_services(services.engine.execution_options(postgresql_readonly=True))

    def _work(
        self,
        services: Services,
        site: Site,
        site_id: int,
        stages: Stages,
        topics: Sequence[TopicRow],
        planned: Planned,
        recruit: Recruit,
    ) -> int:
        reap(services, site_id)
        services.lanes.settle(site_id)
        services.planning.move_on(site_id)
        standing = mine(services.reading.standing(site_id), stages)
        moving = self._moving(services, site_id, standing)
        row = services.reading.site(self._slug)
        looked = not moving
        if not moving and assembly_is_due(services.reading, site, stages):
            services.work.touch(site_id)
            standing = mine(services.reading.standing(site_id), stages)
            moving = self._moving(services, site_id, standing)
        total = _unfinished(standing)
        if not moving and not services.work.heal(site_id):
            return 0
        ended = 0
        size = min(self._size, max(total, 1))
        crew = Crew(self._root, size, site=self._slug, grace=self._settings.grace, recruit=recruit)
        began = time.monotonic()
        try:
            while True:
                standing = self._until_idle(services, site_id, crew, stages, total, began)
                ended += total - _unfinished(standing)
                # A topic whose row changed while its pass was under way gets its new pass now.
                if planned.busy:
                    planned = services.planning.plan(site_id, topics)
                    standing = mine(services.reading.standing(site_id), stages)
                moving = self._moving(services, site_id, standing) and not is_paused(services, self._slug)
                if not moving and not looked:
                    # An assembly looks at every file itself; so this is for a run that came to none.
                    looked = True
                    same = row is None or row == services.reading.site(self._slug)
                    if same and assembly_is_due(services.reading, site, stages):
                        services.work.touch(site_id)
                        standing = mine(services.reading.standing(site_id), stages)
                        moving = self._moving(services, site_id, standing) and not is_paused(services, self._slug)
                if not moving:
                    return ended
                total = _unfinished(standing)
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
            looked_at = time.monotonic()
            try:
                standing = mine(services.reading.standing(site_id), stages)
                took = time.monotonic() - looked_at
                if not any(s.state is JobState.RESERVED for s in standing):
                    services.lanes.settle(site_id)  # what is due and paused is taken by nobody
                    if is_paused(services, self._slug):
                        return standing
                    resting = paused_stages(services, site_id)
                    if not any(s.due for s in standing if s.stage not in resting):
                        moved = services.operate.hasten(site_id)  # due by now, and not so in what was read above
                        moved |= services.planning.move_on(site_id) + services.work.heal(site_id) > 0
                        if not self._moving(services, site_id, standing) and not moved:
                            return standing
            except SQLAlchemyError as error:
                if not is_passing(error):
                    raise
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > AWAY_FOR:
                    raise DatabaseError(f"the database went away and did not come back: {reason(error)}") from error
                time.sleep(1)
                continue
            away_since = None
            names = tuple(stages.pipeline)
            self._show(Progress(self._slug, time.monotonic() - began, total, standing, names))
            time.sleep(min(max(TICK, took / LOOKING), LONGEST))

    def _moving(self, services: Services, site_id: int, standing: Sequence[Standing]) -> bool:
        """Whether something runs; or, at a stage that is not paused, is due or will be within the time that we wait."""
        resting = paused_stages(services, site_id)
        return any(
            s.state is JobState.RESERVED
            or (s.stage not in resting and (s.due or (s.next_seconds is not None and s.next_seconds <= self._wait)))
            for s in standing
        )

    def _report(
        self,
        services: Services,
        site: Site,
        site_id: int,
        stages: Stages,
        planned: Planned,
        passes: int,
        seconds: float,
    ) -> Report:
        status = services.reading.status(site_id, site.slug)
        later = [s.next_seconds for s in status.standing if s.next_seconds is not None]
        troubled = status.count(*HALTING) > 0
        paused = is_paused(services, site.slug)
        notes = [
            lane_note(line.lane, line.state, site.slug)
            for line in services.lanes.list(site_id)
            if line.state != LaneState.ACTIVE and line.waiting
        ]
        if paused:
            notes.append(f"the site was paused meanwhile; go on with: pipeline sites resume {site.slug}")
        resting = standing_at(status.standing, paused_stages(services, site_id))
        notes += [paused_note(name, site.slug) for name in resting]
        elsewhere = stranded(status.standing, stages)
        notes += [
            f"{stands(count)} at stage {name!r}, which stages:PIPELINE lacks" for name, count in elsewhere.items()
        ]
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
            notes=tuple(notes),
            stages=services.reading.stages(site_id),
            paused=paused and bool(status.standing),
            stranded=sum(elsewhere.values()),
            resting=sum(resting.values()),
        )


def prepare_schema(url: str, settings: Settings, say: Callable[[str], None]) -> None:
    """On the embedded server: bring the schema up to date. On a named one that is its owner's decision."""
    if is_embedded(settings) and migrate.current(url, settings.db_schema) != migrate.head():
        say("preparing the database")
        migrate.upgrade(url, settings.db_schema)


def mine(standing: Sequence[Standing], stages: Stages) -> tuple[Standing, ...]:
    """What this project's workers can move, and whatever somebody holds just now; the rest is waited for in vain."""
    known = {*stages.pipeline, ASSEMBLE}
    return tuple(s for s in standing if s.stage in known or s.state is JobState.RESERVED)


def stranded(standing: Sequence[Standing], stages: Stages) -> dict[str, int]:
    """How many jobs would move on at stages that this project does not have."""
    known = {*stages.pipeline, ASSEMBLE}
    return standing_at(standing, {s.stage for s in standing} - known)


def standing_at(standing: Sequence[Standing], names: Collection[str]) -> dict[str, int]:
    """How many jobs would move on at these stages; those where some would."""
    found: dict[str, int] = {}
    for s in standing:
        if s.stage in names and s.state in (JobState.PENDING, JobState.WAITING):
            found[s.stage] = found.get(s.stage, 0) + s.count
    return found


def paused_stages(services: Services, site_id: int) -> list[str]:
    """Where nothing is claimed, by a person's will."""
    return [row.name for row in services.planning.order(site_id) if row.state is StageState.PAUSED]


def is_paused(services: Services, slug: str) -> bool:
    row = services.reading.site(slug)
    return row is not None and row.state == "paused"


def refuse_if_paused(services: Services, slug: str) -> None:
    """Nothing of a paused site would ever be claimed: whoever runs it would wait for ever."""
    if is_paused(services, slug):
        raise Refused(
            f"site {slug!r} is paused; see why: pipeline sites show {slug}; go on: pipeline sites resume {slug}"
        )


def assembly_is_due(reading: Reading, site: Site, stages: Stages) -> bool:
    """Whether the site is to be assembled again: its theme changed, or its target lost something."""
    stage = stages.assemble
    if stage is None or stage.target is None:
        return False
    row = reading.site(site.slug)
    if row is None or row.changed == 0:
        return False  # nothing was ever published
    if row.changed > row.built or row.fingerprint != stage.fingerprint(site):
        return True
    return not stage.intact(site, reading.live(row.id, stage.target))


def embedded_is_there(root: Path) -> bool:
    """Whether the project's embedded server was ever made. Starts nothing."""
    from pipeline.embedded import EmbeddedServer, embedded_home

    return (EmbeddedServer(embedded_home(root)).home / "data").exists()


def _unfinished(standing: Sequence[Standing]) -> int:
    return sum(s.count for s in standing)
