"""What people, progress displays and stages ask; floor 2. Reads only."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine

from pipeline.clock import Clock
from pipeline.errors import NotFound
from pipeline.service.base import Service, likeness
from pipeline.service.operate import job_view
from pipeline.service.together import Together
from pipeline.sql import content, ledger, plan, reads
from pipeline.sql.batch import bound
from pipeline.states import HALTING, JobState
from pipeline.views import Draft, JobView, LivePage, PageCard

# How long a lane that was read serves: a sixteenth of its pages, so that reading costs each page the same, however long
# the lane is, or a few; and half a minute.
PIECE = 1000  # rows


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

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        super().__init__(engine, clock)
        self._unknown: Together[tuple[int, frozenset[str]], set[str]] = Together(self._ask_unknown)
        self._twins: Together[dict[str, Any], dict[str, list[str]]] = Together(self._ask_twins)
        self._near: Together[dict[str, Any], tuple[PageCard, ...]] = Together(self._ask_near)

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
        return self._unknown((site_id, frozenset(paths))) if paths else set()

    def _ask_unknown(self, asked: Sequence[tuple[int, frozenset[str]]]) -> list[set[str]]:
        wanted = sorted({(site_id, path) for site_id, paths in asked for path in paths})
        values = {"asked": [{"site_id": site_id, "path": path} for site_id, path in wanted]}
        with self._reading() as connection:
            known = {(row.site_id, row.path) for row in connection.execute(content.known_paths(), values)}
        return [{path for path in paths if (site_id, path) not in known} for site_id, paths in asked]

    def twins(self, site_id: int, topic_id: int, draft: Draft) -> dict[str, list[str]]:
        keys = {name: likeness(text) if (text := getattr(draft, name)) else None for name in ("title", "description")}
        return self._twins({"site_id": site_id, "topic_id": topic_id, **{f"{name}_key": k for name, k in keys.items()}})

    def _ask_twins(self, asked: Sequence[dict[str, Any]]) -> list[dict[str, list[str]]]:
        found: list[dict[str, list[str]]] = [{"title": [], "description": []} for _ in asked]
        values = {"asked": [{"n": n, **draft} for n, draft in enumerate(asked)]}
        with self._reading() as connection:
            for n, part, slug in connection.execute(content.twins(), values):
                found[n][part].append(slug)
        return found

    def lane(self, site_id: int, lane: str, target: str) -> tuple[PageCard, ...]:
        """All pages of a lane by position, as they are now."""
        with self._reading() as connection:
            values = bound(site_id=site_id, lane=lane, target=target)
            rows = connection.execute(content.lane_cards(one_lane=True), values).all()
        return tuple(PageCard(*row) for row in rows)

    def near(self, topic_id: int, target: str, most: int, also: int | None = None) -> tuple[PageCard, ...]:
        """Of the topic's lane the live pages next to it by position: at most ``most`` before it, and as many behind it
        when there are fewer before; and the page of the topic ``also``."""
        return self._near({"topic_id": topic_id, "target": target, "most": most, "also": also})

    def _ask_near(self, asked: Sequence[dict[str, Any]]) -> list[tuple[PageCard, ...]]:
        wanted = [{also} if (also := each["also"]) is not None else set() for each in asked]
        cards: dict[tuple[str, int], PageCard] = {}
        with self._reading() as connection:
            values = {"asked": [{"n": n, **each} for n, each in enumerate(asked)]}
            for n, topic_id in connection.execute(content.near(), values):
                wanted[n].add(topic_id)
            for target in {each["target"] for each in asked}:
                ids = {id for each, some in zip(asked, wanted, strict=True) if each["target"] == target for id in some}
                for row in connection.execute(content.cards(), bound(target=target, ids=sorted(ids))):
                    cards[target, row.id] = PageCard(*row)
        found = [
            [cards[each["target"], id] for id in some if (each["target"], id) in cards]
            for each, some in zip(asked, wanted, strict=True)
        ]
        return [tuple(sorted(some, key=lambda card: (card.position, card.topic_id))) for some in found]

    def drafts(self, revisions: Collection[int]) -> dict[int, Draft]:
        """The content of these revisions."""
        with self._reading() as connection:
            found = connection.execute(content.contents(), bound(ids=list(revisions))) if revisions else ()
            return {row.id: Draft(row.title, row.description, row.body, row.front_matter, row.lineage) for row in found}

    def live(self, site_id: int, target: str) -> Iterator[LivePage]:
        """What is live of a site: pages by lane and position, then artefacts."""
        yield from self.whole(site_id, target)[1]

    def whole(self, site_id: int, target: str) -> tuple[dict[str, tuple[PageCard, ...]], Iterator[LivePage]]:
        """All pages of each lane of a site, live or not, and what is live of it, as ``live`` tells it.

        Read in pieces and kept once: a site may have very many pages. What goes live between the two statements is
        known to its neighbours, and comes with the next look.
        """
        values = bound(site_id=site_id, target=target)
        live: dict[int | None, list[tuple[Any, ...]]] = {}
        lanes: dict[str, list[PageCard]] = {}
        with self._reading() as connection:
            for some in connection.execute(ledger.live(), values).partitions(PIECE):
                for topic_id, *facts in some:
                    live.setdefault(topic_id, []).append(tuple(facts))
            for some in connection.execute(content.lane_cards(one_lane=False), values).partitions(PIECE):
                for row in some:
                    card = PageCard(*row)
                    lanes.setdefault(card.lane, []).append(card)
        found = {name: tuple(cards) for name, cards in lanes.items()}
        return found, _live_pages(found, live)


def _live_pages(
    lanes: Mapping[str, Sequence[PageCard]], live: dict[int | None, list[tuple[Any, ...]]]
) -> Iterator[LivePage]:
    for cards in lanes.values():
        for card in cards:
            for path, hash, remote, inputs, first_at, changed_at, revision, text in live.pop(card.topic_id, ()):
                yield LivePage(path, hash, remote, inputs, first_at, changed_at, card, revision, text or "")
    for path, hash, remote, inputs, first_at, changed_at, *_ in live.pop(None, ()):
        yield LivePage(path, hash, remote, inputs, first_at, changed_at)
