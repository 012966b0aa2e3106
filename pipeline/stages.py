"""Stages as their authors see them; ground floor.

A stage is a class with ``run``. It gets frozen views and a context, and returns an outcome; it never sees a session, so
it can be tested without a database. What it does outside goes through ``ctx.ledger`` only.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, Protocol

from pipeline.project.site import Site
from pipeline.retry import Backoff
from pipeline.views import Draft, Finding, Found, LivePage, Page, PageCard, TopicView


@dataclass(frozen=True, slots=True)
class Done:
    """The stage's work is done; the job moves on. A ``draft`` becomes a new revision."""

    draft: Draft | None = None
    findings: Sequence[Finding] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reject:
    """The draft is not good enough: back to stage ``to`` (default: the first) with the findings; bounded."""

    findings: Sequence[Finding]
    to: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again ``after`` a while (default: the stage's back-off). Keeps its place; fails when no attempt is left."""

    reason: str
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not now: look again after ``until`` (at least 1 s). Charges no attempt."""

    until: timedelta
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """A person must approve first; then the stage runs again, with ``ctx.approved``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """It cannot succeed; trying again is pointless."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repair:
    """The input is broken: a person must mend it."""

    reason: str


Outcome = Done | Reject | Retry | Snooze | Hold | Fail | Repair


class Ledger(Protocol):
    """The only way to act outside: intent, look, act, confirm, each under the reservation's token."""

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
        """Make ``key`` at ``target`` be what ``hash`` names; True when something was done.

        ``look`` answers what the target has there now, or None; ``act`` changes the target and answers its version tag.
        Raises LeaseLost when the reservation is gone and PathTaken when another topic has this key.
        """
        ...


class Corpus(Protocol):
    """What a stage may ask about the other pages of its site."""

    def unknown(self, paths: Collection[str]) -> set[str]:
        """Those of ``paths`` (site-relative, e.g. ``japan/kyoto/``) that belong to no topic of the site."""
        ...

    def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        """Slugs of other topics whose current revision has the same title, or description, after folding of case and
        blanks: ``{"title": [...], "description": [...]}``."""
        ...

    def lane(self, name: str) -> Sequence[PageCard]:
        """All pages of a lane by position, live or not."""
        ...

    def near(self, most: int, also: int | None = None) -> Sequence[PageCard]:
        """The live pages next to this topic in its lane, by position: at most ``most`` before it, and as many behind it
        when there are fewer before; and the page of the topic ``also``, live or not."""
        ...


class SiteCorpus(Corpus, Protocol):
    """What the assemble job may ask."""

    def drafts(self, revisions: Collection[int]) -> Mapping[int, Draft]:
        """The content of these revisions, by their ids."""
        ...


class SiteLedger(Ledger, Protocol):
    """The ledger of the assemble job, which publishes many pages at once."""

    def publish_all(self, target: str, pages: Sequence[Page], *, at_once: int = 1) -> int:
        """Publish the pages in their order, with one intent and one confirmation; how many had to be written.

        Up to ``at_once`` are looked at and written at the same time. Raises as ``publish`` does; what was written
        before is confirmed all the same.
        """
        ...


class AsyncLedger(Protocol):
    """The ledger of an async stage: the same call, awaited. ``look`` and ``act`` may be plain or async functions."""

    async def publish(
        self,
        target: str,
        key: str,
        hash: str,
        look: Callable[[], Found | Awaitable[Found | None] | None],
        act: Callable[[], str | Awaitable[str]],
        *,
        topic_id: int | None = None,
        revision: int | None = None,
        inputs: str = "",
    ) -> bool: ...


class AsyncCorpus(Protocol):
    """The corpus of an async stage: the same questions, awaited."""

    async def unknown(self, paths: Collection[str]) -> set[str]: ...
    async def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]: ...
    async def lane(self, name: str) -> Sequence[PageCard]: ...
    async def near(self, most: int, also: int | None = None) -> Sequence[PageCard]: ...


class _Given(Protocol):
    """What every stage gets beside its topic."""

    @property
    def site(self) -> Site: ...
    @property
    def fence(self) -> int:
        """Grows with every reservation: what outside targets may compare."""
        ...

    @property
    def attempt(self) -> int: ...
    @property
    def deadline(self) -> datetime | None:
        """When this run should be over (this machine's clock, UTC), if the stage has a deadline."""
        ...

    @property
    def draft(self) -> Draft | None:
        """The topic's current revision."""
        ...

    @property
    def revision(self) -> int | None:
        """The id of that revision."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """Those that sent the pass back, for the next round."""
        ...

    @property
    def approved(self) -> bool:
        """Whether a person approved this very draft after the stage answered ``Hold``."""
        ...

    def cancelled(self) -> bool:
        """True once the result is no longer wanted: lease lost, deadline over, cancel asked, worker stopping hard."""
        ...


class StageContext(_Given, Protocol):
    """What a stage gets beside its topic."""

    @property
    def corpus(self) -> Corpus: ...
    @property
    def ledger(self) -> Ledger: ...


class AsyncStageContext(_Given, Protocol):
    """What an async stage gets: the same names; what asks the database or publishes is awaited.

    Once ``cancelled()`` is true, the task is cancelled as well.
    """

    @property
    def corpus(self) -> AsyncCorpus: ...
    @property
    def ledger(self) -> AsyncLedger: ...


class AssembleContext(Protocol):
    """What the assemble job gets."""

    @property
    def fence(self) -> int: ...
    @property
    def corpus(self) -> SiteCorpus: ...
    @property
    def ledger(self) -> SiteLedger: ...
    def pages(self) -> Iterator[LivePage]:
        """Live pages, by lane and position; then the site's own artefacts."""
        ...

    def cancelled(self) -> bool: ...


class Stage:
    """Base class of all stages. Override ``run`` and what differs of the attributes.

    ``width``: 1 is strict order within a lane, k at most k at once in a lane, None no limit.
    ``target``: the name of what it acts on outside, or None.

    ``def run`` runs in a thread, ``async def run`` on the worker's event loop; with
    ``executor = "process"``, ``def run`` has a process of its own, which is killed at the ``deadline``.
    The others are told, and should heed ``cancelled()``.
    """

    name: ClassVar[str] = ""  # default: the class's name in snake case
    width: ClassVar[int | None] = None
    target: ClassVar[str | None] = None
    retry: ClassVar[Backoff] = Backoff()
    lease: ClassVar[timedelta] = timedelta(seconds=30)
    deadline: ClassVar[timedelta | None] = None
    executor: ClassVar[Literal["thread", "process"]] = "thread"

    # Any, so that a stage may say which of the two contexts it takes.
    def run(self, topic: TopicView, ctx: Any) -> Outcome | Awaitable[Outcome]:
        """Work on one topic; return what became of it. An exception counts as Retry.

        ``ctx`` is a StageContext, or an AsyncStageContext for ``async def run``.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run(topic, ctx)")

    def fingerprint(self, site: Site, type: str) -> str:
        """What the result depends on beside the topic's own row (templates, say): a change plans a new pass."""
        return ""


class SiteStage:
    """Base class of the assemble job: builds what belongs to no single topic."""

    retry: ClassVar[Backoff] = Backoff()
    lease: ClassVar[timedelta] = timedelta(seconds=30)
    target: ClassVar[str | None] = None

    def run(self, site: Site, ctx: AssembleContext) -> Outcome:
        raise NotImplementedError(f"{type(self).__name__} must define run(site, ctx)")

    def fingerprint(self, site: Site) -> str:
        """What the artefacts depend on beside the live pages (theme, settings): a change builds them again."""
        return ""

    def intact(self, site: Site, pages: Iterator[LivePage]) -> bool:
        """Whether the target still has everything that the ledger calls live."""
        return True


def stage_name(stage: type[Stage]) -> str:
    """The name under which a stage class is known: ``LinkCheck`` is ``link_check``."""
    if stage.name:
        return stage.name
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in stage.__name__)
    return "_".join(words.split())
