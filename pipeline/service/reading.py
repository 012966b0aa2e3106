"""What people, progress displays and stages ask; floor 2. Reads only."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pipeline.errors import NotFound
from pipeline.service.base import Service, likeness
from pipeline.service.operate import job_view
from pipeline.sql import content, ledger, plan, reads
from pipeline.sql.batch import bound
from pipeline.states import HALTING, JobState
from pipeline.views import Draft, JobView, LivePage, PageCard


@dataclass(frozen=True, slots=True)
class SiteRow:
    """What the database knows of a site."""

    id: int
    slug: str
    state: str
    changed: int
    built: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A site's unfinished jobs at one stage in one state; ``next_seconds``: until the first future one is due."""

    stage: str
    state: JobState
    count: int
    due: int
    next_seconds: float | None


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """Where a site stands."""

    site: str
    topics: int
    live: int
    standing: tuple[Standing, ...]

    def count(self, *states: JobState) -> int:
        return sum(s.count for s in self.standing if s.state in states)


@dataclass(frozen=True, slots=True)
class Delay:
    """Jobs at one stage that nobody claims though they are long due, or whose lease is over."""

    overdue: int
    stuck: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A job that needs a person, and how many wait behind it in its lane."""

    job: JobView
    waiting: int


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic in a list."""

    slug: str
    title: str
    type: str
    lane: str
    position: int
    path: str
    number: int
    job_id: int | None
    stage: str | None
    state: str | None
    live_path: str | None


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """Everything about one topic: its row, its current revision, the attempts of its newest pass, what is live."""

    topic: Mapping[str, Any]
    attempts: tuple[Mapping[str, Any], ...] = ()
    publications: tuple[Mapping[str, Any], ...] = field(default=())


class Reading(Service):
    """What is asked."""

    def site(self, slug: str) -> SiteRow | None:
        with self._reading() as connection:
            row = connection.execute(reads.site_by_slug(), bound(slug=slug)).one_or_none()
            return None if row is None else SiteRow(*row)

    def sites(self) -> list[tuple[int, str]]:
        with self._reading() as connection:
            return [(row.id, row.slug) for row in connection.execute(reads.all_sites())]

    def stages(self, site_id: int) -> tuple[str, ...]:
        """The names of a site's stages, in their order, without those that ``PIPELINE`` no longer has."""
        with self._reading() as connection:
            found = connection.execute(plan.known_stages(), bound(site_id=site_id))
            return tuple(row.name for row in found if row.state != "retired")

    def standing(self, site_id: int) -> tuple[Standing, ...]:
        """A site's unfinished jobs, counted; costs nothing for what is finished."""
        with self._reading() as connection:
            found = connection.execute(reads.unfinished(self._clock), bound(site_id=site_id))
            return tuple(
                Standing(stage, JobState(state), count, due, None if seconds is None else float(seconds))
                for stage, state, count, due, seconds in found
            )

    def status(self, site_id: int, slug: str) -> SiteStatus:
        standing = self.standing(site_id)
        with self._reading() as connection:
            topics = connection.execute(reads.planned_topics(), bound(site_id=site_id)).scalar_one()
            live = connection.execute(reads.live_topics(), bound(site_id=site_id)).scalar_one()
        return SiteStatus(slug, topics, live, standing)

    def delays(self, site_id: int, overdue: timedelta) -> dict[str, Delay]:
        """By stage: what is due for that long and not claimed, and what is reserved with its lease over."""
        values = bound(site_id=site_id, overdue_seconds=overdue.total_seconds())
        with self._reading() as connection:
            found = connection.execute(reads.delays(self._clock), values)
            return {row.stage: Delay(row.overdue, row.stuck) for row in found}

    def paces(self) -> dict[int, dict[str, float]]:
        """By site and stage: how many a minute got done there, over the last five minutes."""
        found: dict[int, dict[str, float]] = {}
        with self._reading() as connection:
            for row in connection.execute(reads.paces(self._clock)):
                found.setdefault(row.site_id, {})[row.stage] = row.done * 60 / float(row.seconds)
        return found

    def troubles(self, site_id: int, limit: int = 20) -> list[Trouble]:
        """Jobs that need a person, first by id."""
        with self._reading() as connection:
            rows = connection.execute(reads.halted(), bound(site_id=site_id, limit=limit)).all()
            waiting = {row.id: row.waiting for row in rows}
            found = connection.execute(
                reads.job_list(by_site=False, by_state=False, by_ids=True), bound(ids=list(waiting), limit=limit)
            )
            jobs = [job_view(row) for row in found]
        return [Trouble(job, waiting[job.id]) for job in jobs if job.state in HALTING]

    def jobs(
        self,
        site_id: int | None,
        states: Sequence[JobState],
        limit: int,
        *,
        lane: str | None = None,
        stage: str | None = None,
        error_class: str | None = None,
    ) -> list[JobView]:
        """Jobs in these states (none: all unfinished) of a site (None: all), by id; what else is None lets all pass."""
        statement = reads.job_list(
            by_site=site_id is not None,
            by_state=bool(states),
            by_lane=lane is not None,
            by_stage=stage is not None,
            by_error=error_class is not None,
        )
        with self._reading() as connection:
            values = bound(site_id=site_id, states=[str(s) for s in states], limit=limit)
            values |= bound(lane=lane, at=stage, error_class=error_class)
            return [job_view(row) for row in connection.execute(statement, values)]

    def topics(self, site_id: int, lane: str | None = None) -> list[TopicLine]:
        with self._reading() as connection:
            found = connection.execute(reads.topic_list(by_lane=lane is not None), bound(site_id=site_id, lane=lane))
            return [TopicLine(*row) for row in found]

    def topic(self, site_id: int, slug: str) -> TopicDetail:
        """Raises NotFound when the site has no topic of that slug."""
        with self._reading() as connection:
            row = connection.execute(reads.topic_detail(), bound(site_id=site_id, slug=slug)).one_or_none()
            if row is None:
                raise NotFound(f"no topic {slug!r} in this site; see: pipeline topics list")
            at = bound(topic_id=row.id)
            attempts = connection.execute(reads.topic_attempts(), at).mappings().all()
            live = connection.execute(reads.topic_publications(), at).mappings().all()
            return TopicDetail(dict(row._mapping), tuple(dict(a) for a in attempts), tuple(dict(p) for p in live))

    # What stages ask.

    def unknown_paths(self, site_id: int, paths: Collection[str]) -> set[str]:
        wanted = set(paths)
        if not wanted:
            return set()
        with self._reading() as connection:
            known = connection.execute(content.known_paths(), bound(site_id=site_id, paths=sorted(wanted)))
            return wanted - set(known.scalars())

    def twins(self, site_id: int, topic_id: int, draft: Draft) -> dict[str, list[str]]:
        with self._reading() as connection:
            found: dict[str, list[str]] = {}
            for name, text in (("title", draft.title), ("description", draft.description)):
                values = bound(site_id=site_id, topic_id=topic_id, key=likeness(text))
                found[name] = list(connection.execute(content.twins(f"{name}_key"), values).scalars()) if text else []
            return found

    def lane(self, site_id: int, lane: str, target: str) -> list[PageCard]:
        with self._reading() as connection:
            values = bound(site_id=site_id, lane=lane, target=target)
            return [PageCard(*row) for row in connection.execute(content.lane_cards(), values)]

    def live(self, site_id: int, target: str, *, with_content: bool) -> Iterator[LivePage]:
        """What is live of a site: pages by lane and position, then artefacts."""
        with self._reading() as connection:
            values = bound(site_id=site_id, target=target)
            rows = connection.execute(ledger.live(with_content=with_content), values).all()
        for row in rows:
            yield _live_page(row, with_content=with_content)


def _live_page(row: Any, *, with_content: bool) -> LivePage:
    card = draft = None
    if row.topic_id is not None:
        title, description = row.title or "", row.description or ""
        card = PageCard(row.topic_id, row.lane, row.position, row.type, row.path, title, description, True)
        if with_content and row.live_revision is not None:
            draft = Draft(title, description, row.body, row.front_matter, row.lineage)
    first_at: datetime = row.first_at
    return LivePage(
        path=row.live_path,
        hash=row.live_hash,
        remote=row.live_remote,
        inputs=row.live_inputs,
        first_at=first_at,
        changed_at=row.changed_at,
        card=card,
        draft=draft,
        revision=row.live_revision,
    )
