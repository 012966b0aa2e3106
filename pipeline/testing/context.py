"""What a stage gets beside its topic, in memory: a ledger that remembers, a corpus of the pages it is given; a door.

It behaves as the engine's own does, but for what needs a database: nothing here is ever retried or fenced.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.errors import LeaseLost, PathTaken
from pipeline.project.site import Site
from pipeline.views import Draft, Finding, Found, LivePage, Page, PageCard, TopicView


@dataclass(frozen=True, slots=True)
class Published:
    """One call of ``ledger.publish`` that ended well. ``acted``: the target had something else."""

    target: str
    key: str
    hash: str
    topic_id: int | None
    revision: int | None
    inputs: str
    acted: bool


class MemoryLedger:
    """Intent, look, act, confirm, as the real one does it.

    ``published`` is key → hash, ``calls`` every call in its order. Set ``lost`` and the reservation is gone; a key in
    ``taken`` belongs to another topic.
    """

    def __init__(self, *, taken: Iterable[str] = (), lost: bool = False) -> None:
        self.taken = set(taken)
        self.lost = lost
        self.published: dict[str, str] = {}
        self.calls: list[Published] = []
        self._owners: dict[tuple[str, str], int | None] = {}

    @property
    def acted(self) -> list[str]:
        """The keys where something was done, in their order."""
        return [call.key for call in self.calls if call.acted]

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
        """As ``pipeline.stages.Ledger.publish``; raises LeaseLost before, between and after look and act."""
        return self.publish_all(target, [Page(key, hash, look, act, topic_id, revision, inputs)]) == 1

    def publish_all(self, target: str, pages: Sequence[Page], *, at_once: int = 1) -> int:
        """As ``pipeline.stages.SiteLedger.publish_all``: may we for all, then one after the other."""
        for page in pages:
            self.intend(target, page.key, page.topic_id)
        acted = 0
        for page in pages:
            found = page.look()
            done = found is None or found.hash != page.hash
            if done:
                self.before_act(page.key)
                page.act()
            self.confirm(Published(target, page.key, page.hash, page.topic_id, page.revision, page.inputs, done))
            acted += done
        return acted

    def intend(self, target: str, key: str, topic_id: int | None) -> None:
        """The first step: whether we may."""
        self._still_ours(f"{key} is left alone")
        if key in self.taken or self._owners.setdefault((target, key), topic_id) != topic_id:
            raise PathTaken(f"{target}:{key} belongs to another topic")

    def before_act(self, key: str) -> None:
        """The last look at the lease before the world changes."""
        self._still_ours(f"the lease ran out before {key} was written")

    def confirm(self, what: Published) -> None:
        """The last step: remember it."""
        self._still_ours(f"the intent for {what.key} is no longer ours")
        self.published[what.key] = what.hash
        self.calls.append(what)

    def _still_ours(self, what: str) -> None:
        if self.lost:
            raise LeaseLost(f"the reservation was lost, as the test asked: {what}")


class MemoryCorpus:
    """The pages that a test names, and the topic that the stage works on."""

    def __init__(self, pages: Iterable[PageCard] = (), drafts: Mapping[int, Draft] | None = None) -> None:
        self.pages = list(pages)
        self._drafts = dict(drafts or {})
        self.topic: TopicView | None = None  # set by run_stage

    def unknown(self, paths: Collection[str]) -> set[str]:
        return set(paths) - {card.path for card in self._all()}

    def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        others = [card for card in self.pages if self.topic is None or card.topic_id != self.topic.id]

        def same(part: str) -> list[str]:
            key = _folded(getattr(draft, part))
            return [_slug(card) for card in others if key and _folded(getattr(card, part)) == key]

        return {"title": same("title"), "description": same("description")}

    def lane(self, name: str) -> Sequence[PageCard]:
        return sorted((card for card in self._all() if card.lane == name), key=lambda card: card.position)

    def near(self, most: int, also: int | None = None) -> Sequence[PageCard]:
        assert self.topic is not None
        lane = self.lane(self.topic.lane)
        before = [card for card in lane if card.live and card.position < self.topic.position][-most:]
        behind = [card for card in lane if card.live and card.position > self.topic.position][:most]
        wanted = {card.topic_id for card in (*before, *(behind if len(before) < most else ()))} | {also}
        found = [card for card in self.pages if card.topic_id in wanted]
        return sorted(found, key=lambda card: card.position)

    def drafts(self, revisions: Collection[int]) -> Mapping[int, Draft]:
        return {id: self._drafts[id] for id in revisions}

    def _all(self) -> list[PageCard]:
        """All pages; the topic at hand is one of them even if the test did not say so."""
        own = self.topic
        if own is None or any(card.topic_id == own.id for card in self.pages):
            return self.pages
        return [*self.pages, PageCard(own.id, own.lane, own.position, own.type, own.path, own.title, "", live=False)]


class Context:
    """A ``StageContext``, and an ``AssembleContext`` whose live pages are those in ``live``.

    ``pages`` are the other pages of the site, ``drafts`` the content of live ones by its revision. A ``draft`` is
    revision 1 unless the test says otherwise.
    """

    def __init__(
        self,
        *,
        site: Site | None = None,
        draft: Draft | None = None,
        revision: int | None = None,
        findings: Sequence[Finding] = (),
        approved: bool = False,
        pages: Iterable[PageCard] = (),
        live: Iterable[LivePage] = (),
        drafts: Mapping[int, Draft] | None = None,
        ledger: MemoryLedger | None = None,
        fence: int = 1,
        attempt: int = 1,
        deadline: datetime | None = None,
        cancelled: bool = False,
    ) -> None:
        self.draft = draft
        self.revision = 1 if revision is None and draft is not None else revision
        self.findings = tuple(findings)
        self.approved = approved
        self.fence = fence
        self.attempt = attempt
        self.deadline = deadline
        self.corpus = MemoryCorpus(pages, drafts)
        self.ledger = ledger or MemoryLedger()
        self._site = site
        self._live = list(live)
        self._cancelled = cancelled
        self._hearers: list[Callable[[], object]] = []

    @property
    def site(self) -> Site:
        if self._site is None:
            raise AssertionError("this stage asks for ctx.site; give it one: Context(site=a_site(tmp_path))")
        return self._site

    def pages(self) -> Iterator[LivePage]:
        return iter(self._live)

    def cancel(self) -> None:
        """From now on the result is no longer wanted; the task of an async stage is cancelled, as in a worker."""
        self._cancelled = True
        for hear in self._hearers:
            hear()

    def on_cancel(self, hear: Callable[[], object]) -> None:
        self._hearers.append(hear)

    def cancelled(self) -> bool:
        return self._cancelled


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _slug(card: PageCard) -> str:
    return card.path.rstrip("/").rpartition("/")[2]
