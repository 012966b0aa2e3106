"""The publish ledger: the only way to act outside; floor 2.

Intent, committed under the token → look at what the target has → act → confirmation under the token. An outcome that is
unknown is resolved by looking, never by repeating. Intents that come at the same time share a transaction, and so do
confirmations; looking and acting is the business of each caller.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from pipeline.clock import Clock
from pipeline.db import is_away
from pipeline.errors import LeaseLost, PathTaken, PipelineError
from pipeline.service.base import Service
from pipeline.service.together import Together
from pipeline.sql import ledger
from pipeline.views import Claim, Found, Page

T = TypeVar("T")

FEW = 8  # that publish at the same time
SMOOTH = 16  # calls that a mean looks back on
PART, LONGEST = 1 / 16, 0.02  # of the mean; seconds


class Occupied(PipelineError):
    """Another live reservation is about to write this path; try again in a moment."""


class Away(Occupied):
    """The database went away in the middle of it; try again in a moment."""


class _Traffic:
    """How many are publishing at this moment, and how long that takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0
        self._mean = 0.0  # seconds

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Somebody publishes."""
        began = time.monotonic()
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._mean += (time.monotonic() - began - self._mean) / SMOOTH

    def company(self) -> float:
        """Seconds for which one may wait for others, where there are others: a small part of what publishing takes."""
        return min(self._mean * PART, LONGEST) if self._under_way >= FEW else 0.0


@dataclass(frozen=True, slots=True)
class _Intent:
    """What one reservation is about to do at a target."""

    claim: Claim
    target: str
    pages: Sequence[Page]

    def rows(self) -> list[dict[str, Any]]:
        """As the statements take it."""
        claim = self.claim
        here = {"job_id": claim.job_id, "token": str(claim.token), "fence": claim.fence, "site_id": claim.site_id}
        return [
            {**here, "target": self.target, "topic_id": p.topic_id, "path": p.key, "hash": p.hash,
             "revision": p.revision, "inputs": p.inputs, "seen": p.seen}
            for p in self.pages
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Deed:
    """What one reservation has done, or found done: of each publication the hash, and the target's tag."""

    claim: Claim
    settled: Sequence[tuple[int | None, str, str]]

    def rows(self) -> list[dict[str, Any]]:
        claim = self.claim
        here = {"job_id": claim.job_id, "token": str(claim.token), "fence": claim.fence}
        return [{**here, "publication_id": id, "hash": hash, "remote": remote} for id, hash, remote in self.settled]


Step = TypeVar("Step", _Intent, _Deed)


class LedgerService(Service):
    """Publishing under a reservation."""

    rouses = False

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        super().__init__(engine, clock)
        self._traffic = _Traffic()
        company = self._traffic.company
        self._intends: Together[_Intent, list[int | None]] = Together(
            lambda some: self._all(self._intend, some), company
        )
        self._confirms: Together[_Deed, None] = Together(lambda some: self._all(self._confirm, some), company)

    def publish(
        self,
        claim: Claim,
        *,
        target: str,
        key: str,
        hash: str,
        look: Callable[[], Found | None],
        act: Callable[[], str],
        still_ours: Callable[[], bool],
        topic_id: int | None,
        revision: int | None,
        inputs: str,
    ) -> bool:
        """Publish one page (see ``publish_all``); True when something was done."""
        page = Page(key, hash, look, act, topic_id, revision, inputs)
        return self.publish_all(claim, target, [page], still_ours=still_ours)[0]

    def publish_all(
        self, claim: Claim, target: str, pages: Sequence[Page], *, still_ours: Callable[[], bool], at_once: int = 1
    ) -> list[bool]:
        """Make each page be at the target what its hash says; for each, whether something was done there.

        One intent and one confirmation for all of them, and up to ``at_once`` are acted on at the same time; what was
        done when one of them failed is confirmed, and no other is begun. A page whose place is not as it was seen any
        more is left alone. Raises LeaseLost when the reservation is gone, PathTaken when another topic has a path,
        Occupied when another reservation is at one just now.
        """
        if not pages:
            return []
        with self._traffic.one_more():
            return self._publish_all(claim, target, pages, still_ours, at_once)

    def _publish_all(
        self, claim: Claim, target: str, pages: Sequence[Page], still_ours: Callable[[], bool], at_once: int
    ) -> list[bool]:
        try:
            ids = self._intends(_Intent(claim, target, pages))
        except IntegrityError as error:
            raise PathTaken(f"{target}: another topic was faster at one of {[p.key for p in pages]}") from error
        done: dict[int, tuple[bool, str]] = {}
        failed: list[BaseException] = []

        def act(n: int) -> None:
            if not failed and ids[n] is not None:
                try:
                    done[n] = self._act(claim, pages[n], still_ours)
                except BaseException as error:
                    failed.append(error)

        try:
            if at_once > 1:
                with ThreadPoolExecutor(min(at_once, len(pages)), thread_name_prefix="act") as threads:
                    threads.map(act, range(len(pages)))
            else:
                for n in range(len(pages)):
                    act(n)
        finally:
            if done:
                settled = [(ids[n], pages[n].hash, remote) for n, (_, remote) in done.items()]
                self._confirms(_Deed(claim, settled))
        if failed:
            raise failed[0]
        return [n in done and done[n][0] for n in range(len(pages))]

    def _act(self, claim: Claim, page: Page, still_ours: Callable[[], bool]) -> tuple[bool, str]:
        found = page.look()
        if found is not None and found.hash == page.hash:
            return False, found.remote
        # The last look at our own clock before the world changes: a process that was stopped past its lease and
        # resumed must not write.
        if not still_ours():
            raise LeaseLost(f"job {claim.job_id}: the lease ran out before {page.key} was written")
        return True, page.act()

    def _all(self, step: Callable[[Connection, Sequence[Step]], list[T]], some: Sequence[Step]) -> list[T | Exception]:
        """Take the step for all in one transaction; when it is refused to one, for each in its own."""
        if len(some) > 1 and len({one.claim.job_id for one in some}) == len(some):
            try:
                return list(self._write(lambda connection: step(connection, some)))
            except Exception as error:
                if is_away(error):
                    raise
        answers: list[T | Exception] = []
        for one in some:
            try:
                answers += self._write(partial(_alone, step, one))
            except Exception as error:
                answers.append(error)
        return answers

    def _intend(self, connection: Connection, intents: Sequence[_Intent]) -> list[list[int | None]]:
        """Of each the ids of its publications, in the order of its pages; None for one that is left alone."""
        wanted = [(intent, page) for intent in intents for page in intent.pages]
        asked = [row for intent in intents for row in intent.rows()]
        self._reserved(connection, intents, asked)
        of: dict[tuple[Any, ...], int | None] = {}
        # Who waits here for another's row finds it below: who has it is judged by a statement that begins later.
        for at in connection.execute(ledger.put(self._clock), {"pages": asked}):
            of[_place(at.site_id, at.target, at.topic_id, at.intent_path)] = at.id
        places = [_place(i.claim.site_id, i.target, p.topic_id, p.key) for i, p in wanted]
        there = [row for row, place in zip(asked, places, strict=True) if place not in of]
        owner = connection.execute(ledger.owners(live=True), {"pages": asked}).first()
        if owner is None and there:  # what was put just now had a free path
            owner = connection.execute(ledger.owners(live=False), {"pages": there}).first()
        if owner is not None:
            raise PathTaken(f"{owner.target}:{owner.path} belongs to {owner.slug or 'the site itself'}")
        if there:
            self._intend_again(connection, there, of)
        ids = iter(places)
        return [[of[next(ids)] for _ in intent.pages] for intent in intents]

    def _intend_again(
        self, connection: Connection, asked: Sequence[dict[str, Any]], of: dict[tuple[Any, ...], int | None]
    ) -> None:
        """The intents of what was on record already, whose ids are added; None where something else was seen."""
        for at in connection.execute(ledger.lock(), {"pages": asked}):
            of[_place(at.site_id, at.target, at.topic_id, at.intent_path)] = at.id
        places = [_place(row["site_id"], row["target"], row["topic_id"], row["path"]) for row in asked]
        wanted = [row | {"publication_id": of[place]} for row, place in zip(asked, places, strict=True)]
        written = set(connection.execute(ledger.intend(self._clock), {"pages": wanted}).scalars())
        for row, place in zip(asked, places, strict=True):
            if of[place] in written:
                continue
            if row["seen"] is None:
                raise Occupied(f"{row['target']}:{row['path']} is being written by another worker")
            of[place] = None

    def _confirm(self, connection: Connection, deeds: Sequence[_Deed]) -> list[None]:
        asked = [row for deed in deeds for row in deed.rows()]
        self._reserved(connection, deeds, asked)
        confirmed = set(connection.execute(ledger.confirm(self._clock), {"pages": asked}).scalars())
        for row in asked:
            if row["publication_id"] not in confirmed:
                raise LeaseLost(f"job {row['job_id']}: an intent is no longer ours")
        return [None] * len(deeds)

    def _reserved(
        self, connection: Connection, some: Sequence[_Intent | _Deed], asked: Sequence[dict[str, Any]]
    ) -> None:
        held = set(connection.execute(ledger.reservation(), {"pages": asked}).scalars())
        for one in some:
            if one.claim.fence not in held:
                raise LeaseLost(f"job {one.claim.job_id}: the reservation is no longer ours; the target is left alone")


def _alone(step: Callable[[Connection, Sequence[Step]], list[T]], one: Step, connection: Connection) -> list[T]:
    return step(connection, [one])


def _place(site_id: int, target: str, topic_id: int | None, path: str) -> tuple[Any, ...]:
    """What a publication is known by: its topic at a target, or the path of an artefact of the site."""
    return (site_id, target, path) if topic_id is None else (target, topic_id)
