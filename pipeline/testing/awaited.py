"""The context as an async stage gets it: the same memory, its questions and its ledger awaited; a door."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from pipeline.testing.context import Context, MemoryCorpus, MemoryLedger, Published
from pipeline.views import Draft, Found, PageCard

T = TypeVar("T")


class AwaitedLedger:
    """A ``MemoryLedger`` whose ``publish`` is awaited; ``look`` and ``act`` may be async."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger

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
    ) -> bool:
        self._ledger.intend(target, key, topic_id)
        found = await _answer(look())
        done = found is None or found.hash != hash
        if done:
            self._ledger.before_act(key)
            await _answer(act())
        self._ledger.confirm(Published(target, key, hash, topic_id, revision, inputs, done))
        return done


class AwaitedCorpus:
    """A ``MemoryCorpus`` whose answers are awaited."""

    def __init__(self, corpus: MemoryCorpus) -> None:
        self._corpus = corpus

    async def unknown(self, paths: Collection[str]) -> set[str]:
        return self._corpus.unknown(paths)

    async def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        return self._corpus.twins(draft)

    async def lane(self, name: str) -> Sequence[PageCard]:
        return self._corpus.lane(name)

    async def near(self, most: int, also: int | None = None) -> Sequence[PageCard]:
        return self._corpus.near(most, also)


class AwaitedContext:
    """An ``AsyncStageContext`` over a test's context: all but ledger and corpus is that one's own."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.ledger = AwaitedLedger(ctx.ledger)
        self.corpus = AwaitedCorpus(ctx.corpus)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


async def _answer(given: T | Awaitable[T]) -> T:
    return await given if inspect.isawaitable(given) else given
