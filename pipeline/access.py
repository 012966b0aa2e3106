"""What a stage reaches through its context: the ledger and the corpus, plain and awaitable; engine room.

An async stage awaits the same calls. They run in threads beside the event loop, taken only while a call lasts; ``look``
and ``act`` may be plain functions, which run there, or async ones, which run on the loop.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from pipeline.build import Services
from pipeline.db import is_away
from pipeline.errors import LeaseLost
from pipeline.holding import Holding
from pipeline.service.ledger import Away
from pipeline.views import Claim, Draft, Found, LivePage, Page, PageCard

T = TypeVar("T")


@contextmanager
def reached() -> Iterator[None]:
    """A lost connection is no fault of the stage: its job comes again in a moment, and no attempt is charged."""
    try:
        yield
    except DBAPIError as error:
        if is_away(error):
            raise Away from error
        raise


class Ledger:
    """The ledger as a stage sees it: bound to one reservation."""

    def __init__(self, services: Services, holding: Holding) -> None:
        self._services = services
        self._holding = holding
        self.confirmed = False

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
        with reached():
            done = self._services.ledger.publish(
                self._holding.claim,
                target=target,
                key=key,
                hash=hash,
                look=look,
                act=act,
                still_ours=self._holding.ours,
                topic_id=topic_id,
                revision=revision,
                inputs=inputs,
            )
        self.confirmed = True
        return done

    def publish_all(self, target: str, pages: Sequence[Page], *, at_once: int = 1) -> int:
        with reached():
            done = self._services.ledger.publish_all(
                self._holding.claim, target, pages, still_ours=self._holding.ours, at_once=at_once
            )
        self.confirmed = True
        return sum(done)


class Corpus:
    """The other pages of the site, as the database has them."""

    def __init__(self, services: Services, claim: Claim, target: str) -> None:
        self._reading = services.reading
        self._claim = claim
        self._target = target
        self._lanes: Mapping[str, Sequence[PageCard]] | None = None

    def unknown(self, paths: Collection[str]) -> set[str]:
        with reached():
            return self._reading.unknown_paths(self._claim.site_id, paths)

    def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        assert self._claim.topic is not None
        with reached():
            return self._reading.twins(self._claim.site_id, self._claim.topic.id, draft)

    def lane(self, name: str) -> Sequence[PageCard]:
        # What a page gets wrong about its neighbours, the assembly after it puts right: that sees all at one moment,
        # and what changes later brings another.
        if self._lanes is not None:
            return self._lanes.get(name, ())
        with reached():
            return self._reading.lane(self._claim.site_id, name, self._target)

    def near(self, most: int, also: int | None = None) -> Sequence[PageCard]:
        assert self._claim.topic is not None
        with reached():
            return self._reading.near(self._claim.topic.id, self._target, most, also)

    def live(self) -> Iterator[LivePage]:
        """What is live of the site; from then on its lanes are as they were at this moment."""
        with reached():
            self._lanes, pages = self._reading.whole(self._claim.site_id, self._target)
        yield from pages

    def drafts(self, revisions: Collection[int]) -> Mapping[int, Draft]:
        with reached():
            return self._reading.drafts(revisions)


class AsyncLedger:
    """The ledger of an async stage."""

    def __init__(self, ledger: Ledger, threads: Executor) -> None:
        self._ledger = ledger
        self._threads = threads

    async def publish(
        self,
        target: str,
        key: str,
        hash: str,
        look: Callable[[], Found | Awaitable[Found | None] | None],
        act: Callable[[], str | Awaitable[str]],
        **more: Any,
    ) -> bool:
        loop = asyncio.get_running_loop()
        aside = _Aside(loop)

        def publish() -> bool:
            return self._ledger.publish(target, key, hash, aside.plain(look), aside.plain(act), **more)

        try:
            return await loop.run_in_executor(self._threads, publish)
        except asyncio.CancelledError:
            aside.give_up()
            raise


class AsyncCorpus:
    """The corpus of an async stage."""

    def __init__(self, corpus: Corpus, threads: Executor) -> None:
        self._corpus = corpus
        self._threads = threads

    async def unknown(self, paths: Collection[str]) -> set[str]:
        return await self._ask(self._corpus.unknown, paths)

    async def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        return await self._ask(self._corpus.twins, draft)

    async def lane(self, name: str) -> Sequence[PageCard]:
        return await self._ask(self._corpus.lane, name)

    async def near(self, most: int, also: int | None = None) -> Sequence[PageCard]:
        return await self._ask(self._corpus.near, most, also)

    async def _ask(self, question: Callable[..., T], *about: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, question, *about)


class _Aside:
    """One call in a thread for a task on the loop. A task that is cancelled gives it up: nothing further is begun."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._given_up = False
        self._running: Future[Any] | None = None

    def plain(self, function: Callable[[], T | Awaitable[T]]) -> Callable[[], T]:
        """The function as one that can be called in the thread, async or not."""

        def call() -> T:
            if self._given_up:
                raise LeaseLost("the stage was cancelled while it published")
            answer = function()
            return self._wait(answer) if inspect.isawaitable(answer) else answer

        return call

    def _wait(self, answer: Awaitable[T]) -> T:
        running = asyncio.run_coroutine_threadsafe(_coroutine(answer), self._loop)
        with self._lock:
            self._running = running
            if self._given_up:
                running.cancel()
        return running.result()

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            if self._running is not None:
                self._running.cancel()


def _coroutine(answer: Awaitable[T]) -> Coroutine[Any, Any, T]:
    async def wait() -> T:
        return await answer

    return wait()
