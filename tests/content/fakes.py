"""A site in memory: topics, drafts and a ledger over a files target, without a database or a queue."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pipeline import Done, Draft, Finding, Found, LivePage, Outcome, Page, PageCard, Site, TopicView
from pipeline.content import card_of
from pipeline.errors import PathTaken, TargetError
from pipeline.testing import MemoryCorpus
from stages import ASSEMBLE, PIPELINE


def make_site(tmp_path: Path, **changes: Any) -> Site:
    facts: dict[str, Any] = {
        "slug": "acme",
        "folder": tmp_path / "sites" / "acme",
        "output": tmp_path / "public" / "acme",
        "name": "Acme & Sons",
        "base_url": "https://acme.example",
        "tagline": "Guides",
        "description": "Short guides.",
        "paths": {"country": "{lane}/", "city": "{lane}/{slug}/"},
        "lanes": {"japan": "Japan"},
    }
    return Site(**(facts | changes))


def make_topic(slug: str = "kyoto", position: int = 2, **changes: Any) -> TopicView:
    facts: dict[str, Any] = {
        "id": position,
        "site": "acme",
        "lane": "japan",
        "slug": slug,
        "title": f"{slug.capitalize()} travel guide: temples and gardens",
        "type": "city",
        "path": f"japan/{slug}/",
        "position": position,
        "brief": {},
    }
    return TopicView(**(facts | changes))


def make_draft(topic: TopicView, body: str = "Some words about it.\n", **changes: Any) -> Draft:
    description = f"What to see in {topic.slug}, what to eat there, how to get around and when it is best to go."
    return replace(Draft(title=topic.title, description=description, body=body), **changes)


def make_lane(cities: int = 6) -> list[TopicView]:
    """A country page and its cities."""
    pillar = make_topic("japan", 1, type="country", path="japan/")
    return [pillar, *(make_topic(f"city-{n}", n) for n in range(2, cities + 2))]


@dataclass
class World:
    """Everything that the engine would know. ``live`` is the ledger, by path."""

    site: Site
    topics: list[TopicView]
    drafts: dict[int, Draft] = field(default_factory=dict)
    revisions: dict[int, int] = field(default_factory=dict)
    live: dict[str, LivePage] = field(default_factory=dict)
    owners: dict[str, int | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # keys given to the ledger
    acted: list[str] = field(default_factory=list)  # and those where something was done
    findings: dict[str, Sequence[Finding]] = field(default_factory=dict)
    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    stop: bool = False

    def run(self) -> list[Outcome]:
        """Every topic through the pipeline in order, then assemble; ends early at what is not Done."""
        outcomes: list[Outcome] = []
        for topic in self.topics:
            for stage in PIPELINE:
                outcomes.append(outcome := self.stage(stage, topic))
                if not isinstance(outcome, Done):
                    return outcomes
            self.now += timedelta(hours=1)
        return [*outcomes, self.assemble()]

    def stage(self, stage: type, topic: TopicView) -> Outcome:
        outcome: Outcome = stage().run(topic, Context(self, topic))
        if isinstance(outcome, Done):
            self.findings[topic.slug] = outcome.findings
            if outcome.draft:
                self.write(topic, outcome.draft)
        return outcome

    def write(self, topic: TopicView, draft: Draft) -> None:
        """A new revision, unless it says the same."""
        if topic.id not in self.drafts or self.drafts[topic.id].hash != draft.hash:
            self.drafts[topic.id] = draft
            self.revisions[topic.id] = self.revisions.get(topic.id, topic.id * 1000) + 1

    def assemble(self) -> Outcome:
        return ASSEMBLE().run(self.site, Context(self, None))

    def intact(self) -> bool:
        return ASSEMBLE().intact(self.site, iter(self.live.values()))

    def files(self) -> dict[str, bytes]:
        root = self.site.output
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@dataclass
class Context:
    """What stages and the assemble job get: itself their ledger and corpus."""

    world: World
    topic: TopicView | None
    fence: int = 1
    attempt: int = 1
    deadline: datetime | None = None
    findings: Sequence[Finding] = ()

    @property
    def site(self) -> Site:
        return self.world.site

    @property
    def draft(self) -> Draft | None:
        return self.world.drafts.get(self.topic.id) if self.topic else None

    @property
    def revision(self) -> int | None:
        return self.world.revisions.get(self.topic.id) if self.topic else None

    @property
    def ledger(self) -> "Context":
        return self

    @property
    def corpus(self) -> "Context":
        return self

    def cancelled(self) -> bool:
        return self.world.stop

    def unknown(self, paths: Collection[str]) -> set[str]:
        return set(paths) - {topic.path for topic in self.world.topics}

    def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        def same(part: str) -> list[str]:
            fold = " ".join(getattr(draft, part).casefold().split())
            others = [t for t in self.world.topics if t is not self.topic and t.id in self.world.drafts]
            drafts = self.world.drafts
            return [t.slug for t in others if " ".join(getattr(drafts[t.id], part).casefold().split()) == fold]

        return {"title": same("title"), "description": same("description")}

    def lane(self, name: str) -> Sequence[PageCard]:
        live = {owner for owner in self.world.owners.values() if owner is not None}
        cards = []
        for topic in sorted(self.world.topics, key=lambda each: each.position):
            if topic.lane == name:
                draft = self.world.drafts.get(topic.id) or Draft(topic.title, "", "")
                cards.append(replace(card_of(topic, draft), live=topic.id in live))
        return cards

    def near(self, most: int, also: int | None = None) -> Sequence[PageCard]:
        assert self.topic is not None
        corpus = MemoryCorpus(self.lane(self.topic.lane))
        corpus.topic = self.topic
        return corpus.near(most, also)

    def pages(self) -> Iterator[LivePage]:
        for page in sorted(self.world.live.values(), key=lambda each: each.card is None):
            if page.card is None:
                yield page
            else:
                yield replace(page, card=replace(page.card, live=True))

    def publish(
        self,
        target: str,
        key: str,
        hash: str,
        look: Callable[[], Found | None],
        act: Callable[[], str],
        *,
        topic_id: int | None = None,
        revision: int | None = None,
        inputs: str = "",
    ) -> bool:
        world = self.world
        world.asked.append(key)
        if world.owners.setdefault(key, topic_id) != topic_id:
            raise PathTaken()
        before = world.live.get(key)
        found = look()
        doing = found is None or found.hash != hash
        remote = act() if found is None or found.hash != hash else found.remote
        if look() != Found(hash, remote):
            raise TargetError("the target does not hold what was written")
        if doing:
            world.acted.append(key)
        topic = next((each for each in world.topics if each.id == topic_id), None)
        draft = world.drafts[topic.id] if topic else None
        same = before and (before.revision == revision if topic else before.hash == hash)
        world.live[key] = LivePage(
            path=key,
            hash=hash,
            remote=remote,
            inputs=inputs,
            first_at=before.first_at if before else world.now,
            changed_at=before.changed_at if before and same else world.now,
            card=card_of(topic, draft) if topic and draft else None,
            revision=revision,
            content=draft.hash if draft else "",
        )
        return doing

    def drafts(self, revisions: Collection[int]) -> Mapping[int, Draft]:
        known = {self.world.revisions[id]: draft for id, draft in self.world.drafts.items()}
        return {revision: known[revision] for revision in revisions}

    def publish_all(self, target: str, pages: Sequence[Page], *, at_once: int = 1) -> int:
        more = ("topic_id", "revision", "inputs")
        return sum(
            self.publish(target, p.key, p.hash, p.look, p.act, **{name: getattr(p, name) for name in more})
            for p in pages
        )


class Reader(HTMLParser):
    """A page as a browser's parser sees it: every start tag with its attributes, and the text."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def hrefs(self) -> list[str]:
        return [attrs["href"] or "" for tag, attrs in self.tags if tag == "a" and "href" in attrs]
