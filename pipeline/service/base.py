"""What all services share: transactions that are tried again, words made safe to store; floor 2.

This floor alone opens transactions: one method is one verb, one transaction, one frozen view.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pipeline.clock import Clock, DatabaseClock
from pipeline.db import sqlstate
from pipeline.sql import assembly, gates, wake
from pipeline.sql.batch import bound
from pipeline.views import Draft, content_hash

T = TypeVar("T")

# Serialization failure, deadlock, lock or statement time-out: nothing was written, the same may succeed.
PASSING = frozenset({"40001", "40P01", "55P03", "57014"})
TRIES = 5
MAX_ERROR_BYTES = 4000
ASSEMBLE_DELAY_SECONDS = 5  # so that one assembly serves many pages; a run that has nothing else to do makes it due
ASSEMBLE_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Stretch:
    """The lanes of a site by name, from behind ``after`` up to ``end``; None: to the last."""

    after: str = ""
    end: str | None = None


ALL = Stretch()


class Service:
    """A set of verbs over one engine and one clock. ``rouses``: what it writes may be work for somebody idle."""

    rouses: ClassVar[bool] = True

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or DatabaseClock()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._engine.connect() as connection, connection.begin():
            yield connection

    def _write(self, body: Callable[[Connection], T], *, dry_run: bool = False, tries: int = TRIES) -> T:
        """Run ``body`` in a transaction of its own; all of it again when it lost to another, a few times.

        With ``dry_run`` it is judged by the very same statements, and then nothing of it is kept.
        """
        for attempt in range(1, tries + 1):
            try:
                with self._engine.connect() as connection, connection.begin() as transaction:
                    answer = body(connection)
                    if dry_run:
                        transaction.rollback()
                break
            except DBAPIError as error:
                if sqlstate(error) not in PASSING or attempt == tries:
                    raise
            time.sleep(random.uniform(0.01, 0.2))
        if self.rouses and answer and not dry_run:
            self.wake()
        return answer

    def wake(self) -> None:
        """Tell idle workers that there is work, unless that is switched off; a hint, which may fail.

        Never in the transaction that made the work: all that notify commit one after another.
        """
        channel = self._engine.get_execution_options().get("wakes")
        if channel is None:
            return
        with suppress(SQLAlchemyError), self._engine.connect() as connection, connection.begin():
            connection.execute(wake.lightly())
            connection.execute(wake.ring(), bound(channel=channel))

    def _lock_gates(self, connection: Connection, gate_ids: Sequence[int], *, wait: bool = True) -> list[int]:
        """Lock gates, in id order and before the jobs; without ``wait`` those that are free. The ids locked."""
        if not gate_ids:
            return []
        return list(connection.execute(gates.lock(wait=wait), {"gates": list(gate_ids)}).scalars())

    def _give_turns(self, connection: Connection, locked: Sequence[int]) -> Sequence[Any]:
        """After the write: move ``passed`` of the locked gates, then promote; the rows of the jobs now pending."""
        if not locked:
            return []
        connection.execute(gates.move_passed(), {"gates": list(locked)})
        return connection.execute(gates.promote(self._clock), {"gates": list(locked)}).all()

    def _add_assembly(self, connection: Connection, site_ids: Sequence[int], *, soon: bool = False) -> None:
        delay = 0 if soon else ASSEMBLE_DELAY_SECONDS
        values = bound(site_ids=list(site_ids), delay_seconds=delay, max_attempts=ASSEMBLE_ATTEMPTS)
        connection.execute(assembly.add_assembly(self._clock), values)

    def _look_again(self, connection: Connection, site_ids: Sequence[int]) -> None:
        """What is live there may have changed without a word: note it, and plan the assembly that finds out.

        The last lock of a transaction.
        """
        if site_ids:
            connection.execute(assembly.lock_sites(), bound(site_ids=list(site_ids))).all()  # in id order
            connection.execute(assembly.raise_changed(), bound(site_ids=list(site_ids)))
            self._add_assembly(connection, site_ids)


def clean(text: str, limit: int = MAX_ERROR_BYTES) -> str:
    """The text as PostgreSQL can hold it: no NUL, no lone surrogate, cut at a character within ``limit`` bytes."""
    safe = text[: limit + 1].replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    return safe.decode() if len(safe) <= limit else safe[: limit - 3].decode("utf-8", "ignore") + "…"


def revision(draft: Draft, topic_id: int, fence: int | None, lineage: Mapping[str, Any]) -> dict[str, Any]:
    """A draft as ``content.add_revisions`` takes it; without ``fence`` when no attempt made it."""
    return {
        "topic_id": topic_id,
        "fence": fence,
        "title": draft.title,
        "description": draft.description,
        "title_key": likeness(draft.title),
        "description_key": likeness(draft.description),
        "body": draft.body,
        "front_matter": dict(draft.fields),
        "content_hash": draft.hash,
        "lineage": dict(lineage),
    }


def likeness(text: str) -> str:
    """A key that two texts share if readers take them for the same: case and blanks folded, then hashed."""
    return content_hash(" ".join(text.split()).casefold())
