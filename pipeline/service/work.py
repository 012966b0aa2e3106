"""A worker's verbs beside the acknowledgement: claim, renew, reap, heal; floor 2."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, insert
from sqlalchemy.exc import DBAPIError

from pipeline.db import sqlstate
from pipeline.service.acknowledging import (
    EXPIRED,
    UNFIT,
    Ack,
    Acknowledging,
    Fate,
    Settled,
    both,
    is_of_the_rows,
)
from pipeline.service.base import ALL, PASSING, TRIES, Stretch
from pipeline.service.order import UPKEEP
from pipeline.sql import assembly, claim, content, gates, transitions
from pipeline.sql.batch import bound
from pipeline.sql.claim import Which
from pipeline.sql.tables import events
from pipeline.sql.transitions import Reach
from pipeline.states import ASSEMBLE, JobState
from pipeline.views import Claim, Draft, Finding, Severity, TopicView

Key = tuple[int, str, int]  # site, stage, priority
Floor = tuple[datetime, int]  # run_at, id: what lies there or before is not looked at

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
LAST_SITE = 2**63 - 1


class Patience(StrEnum):
    """How long to wait for gates that another has locked: he may have stopped in the middle of his transaction."""

    ALL = "all"  # as long as any statement may
    A_MOMENT = "a moment"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Prefix:
    """One stretch of the claim's index, the worker's share of it, and where its last claim ended."""

    site_id: int
    stage: str
    priority: int
    share: int
    lease: timedelta
    floor: Floor = (BEGINNING, 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look for pending jobs saw.

    ``at``: by the server's clock. ``oldest``: of the transactions that were open; those before ``next`` had begun by
    then. ``first``: of each prefix that has any, the first job. ``ready``: those prefixes of which that is due.
    """

    at: datetime
    oldest: int
    next: int
    first: dict[Key, Floor]
    ready: set[Key]


@dataclass(frozen=True, slots=True)
class Expired:
    """A reservation that may be somebody's no more, as it was read."""

    job_id: int
    token: UUID
    fence: int
    holder: str
    over: bool


class Work(Acknowledging):
    """What workers do with jobs."""

    def prefixes(self, site_id: int | None = None) -> list[Key]:
        """The ``(site_id, stage, priority)`` that have something due."""
        return sorted(self.look(site_id).ready)

    def look(self, site_id: int | None = None, known: Mapping[Key, Floor] | None = None) -> Seen:
        """What is pending on the site, or on all.

        All of it, or with ``known`` only what lies beyond the floors of these prefixes, and of others the first between
        two of them: that does not walk what a pinned snapshot keeps of work that is over.
        """
        if known is None:
            statement, values = claim.prefixes(self._clock, one_site=site_id is not None), bound(site_id=site_id)
        else:
            floors = {(site_id or 0, "", 0): (BEGINNING, 0), **known}
            asked = [
                {"site_id": key[0], "stage": key[1], "priority": key[2], "floor_at": at.isoformat(), "floor_id": id_}
                for key, (at, id_) in floors.items()
            ]
            end = LAST_SITE if site_id is None else site_id + 1
            statement, values = claim.near(self._clock), {"known": asked, **bound(end=end)}
        with self._reading() as connection:
            found = connection.execute(statement, values).all()
        first = {(r.site_id, r.stage, r.priority): (r.run_at, r.id) for r in found if r.id is not None}
        ready = {(r.site_id, r.stage, r.priority) for r in found if r.ready}
        return Seen(found[0].at, found[0].oldest, found[0].next, first, ready)

    def loners(self, site_id: int | None = None) -> list[tuple[int, str, int]]:
        """The ``(site_id, stage, priority)`` that have a due job which runs by itself, the longest due first."""
        statement = claim.loners(self._clock, one_site=site_id is not None)
        with self._reading() as connection:
            found = connection.execute(statement, bound(site_id=site_id))
            return [(row.site_id, row.stage, row.priority) for row in found]

    def claim(self, prefixes: Sequence[Prefix], worker: str, which: Which = Which.ALL) -> list[Claim]:
        """Reserve due jobs, at most ``share`` of each prefix, in one statement; the attempt is charged."""
        return self._write(lambda cn: self._claim(cn, prefixes, worker, which)) if prefixes else []

    def turn_over(
        self, acks: Sequence[Ack], choose: Callable[[Settled], Sequence[Prefix]], worker: str
    ) -> tuple[Settled, list[Claim]]:
        """Acknowledge, and in the same transaction reserve due jobs of the prefixes that are chosen by what came of it.

        One commit lies between the end of a job and the start of the next in its lane. When a row of the batch is bad,
        nothing is reserved. The acknowledgements are of pages, not of a site's own jobs.
        """

        def body(connection: Connection) -> tuple[Settled, list[Claim]]:
            settled = self._acknowledge(connection, acks, wait=False)
            prefixes = choose(settled)
            return settled, self._claim(connection, prefixes, worker, Which.TOGETHER) if prefixes else []

        try:
            return self._write(body)
        except UNFIT as error:
            if not is_of_the_rows(error):
                raise
            return self.acknowledge(acks), []

    def _claim(self, connection: Connection, prefixes: Sequence[Prefix], worker: str, which: Which) -> list[Claim]:
        token = uuid4()
        asked = [
            {"n": n, "site_id": p.site_id, "stage": p.stage, "priority": p.priority, "share": p.share,
             "lease_seconds": p.lease.total_seconds(), "floor_at": p.floor[0].isoformat(), "floor_id": p.floor[1]}
            for n, p in enumerate(prefixes)
        ]  # fmt: skip
        values = {"prefixes": asked, **bound(token=token, worker=worker)}
        found = connection.execute(claim.claim(self._clock, which), values).all()
        findings = self._findings(connection, [row.topic_id for row in found if row.topic_round > 0])
        return [_claim(row, token, findings) for row in found]

    def _findings(self, connection: Connection, topic_ids: list[int]) -> dict[int, list[Finding]]:
        by_topic: dict[int, list[Finding]] = defaultdict(list)
        if topic_ids:
            for row in connection.execute(content.last_findings(), bound(topic_ids=topic_ids)):
                finding = Finding(row.rule, row.message, Severity(row.severity), row.line, row.column_number)
                by_topic[row.topic_id].append(finding)
        return by_topic

    def renew(self, held: Iterable[Claim]) -> dict[int, tuple[str, bool]]:
        """Move leases on; by fence ``("renewed" or "locked", cancel asked)``. A fence that is missing is gone."""
        claims = {c.job_id: c for c in held}
        if not claims:
            return {}
        asked = [
            {"job_id": c.job_id, "token": str(c.token), "lease_seconds": c.lease.total_seconds()}
            for c in claims.values()
        ]
        answer = self._write(lambda cn: cn.execute(claim.renew(self._clock), {"held": asked}).all())
        return {claims[row.id].fence: (row.answer, row.cancel_requested) for row in answer}

    def expired(self, site_id: int | None = None) -> list[Expired]:
        """Reserved jobs as they are now, oldest lease first, whether over or not: candidates for ``reap``."""
        statement = transitions.expired(self._clock, one_site=site_id is not None)
        with self._reading() as connection:
            found = connection.execute(statement, bound(site_id=site_id))
            return [Expired(row.id, row.token, row.fence, row.reserved_by, row.over) for row in found]

    def reap(
        self, candidates: Sequence[Expired], *, holder_is_gone: bool = False, patience: Patience = Patience.ALL
    ) -> Settled:
        """Take jobs from holders whose lease is over when the row is locked, or who are known to be gone.

        One transaction a job, so that one bad row stops no other. What lies behind a gate that another has locked for
        longer than one has ``patience`` is answered ``busy``.
        """
        settled = Settled()
        for candidate in candidates:
            body = partial(self._reap, candidate, holder_is_gone, patience)
            try:
                taken = self._write(body, tries=TRIES if patience is Patience.ALL else 1)
            except DBAPIError as error:
                if patience is Patience.ALL or sqlstate(error) not in PASSING:
                    raise
                taken = Settled({candidate.fence: Fate.BUSY})
            settled = both(settled, taken)
        return settled

    def _reap(self, candidate: Expired, holder_is_gone: bool, patience: Patience, connection: Connection) -> Settled:
        why = "the worker that held it is gone" if holder_is_gone else "its lease ran out: the worker died or hung"
        acks = [
            {"job_id": candidate.job_id, "token": str(candidate.token), "delay_seconds": 0, "error_class": EXPIRED,
             "error": f"{why} ({candidate.holder})"}
        ]  # fmt: skip
        if patience is Patience.A_MOMENT:
            connection.execute(gates.hurry())
        touched = connection.execute(transitions.gates_touched(Reach.SKIP), {"acks": acks})
        wanted = sorted({gate_id for _, gate_id in touched})
        locked = self._lock_gates(connection, wanted, wait=patience is not Patience.NONE)
        if len(locked) < len(wanted):
            return Settled({candidate.fence: Fate.BUSY})
        statement = transitions.reap(self._clock, holder_is_gone=holder_is_gone)
        rows = connection.execute(statement, {"acks": acks, "gates": locked}).all()
        ready = {(r.site_id, r.stage, r.priority) for r in rows if r.state == "pending"}
        ready |= {(r.site_id, r.stage, r.priority) for r in self._give_turns(connection, locked)}
        # What it did before it died may be live already: the site is looked at again.
        touched_sites = sorted({r.site_id for r in rows if r.left_stage != ASSEMBLE})
        self._look_again(connection, touched_sites)
        return Settled({r.fence: Fate.WRITTEN for r in rows}, {r.fence: r.outcome for r in rows}, frozenset(ready))

    def heal(self, site_id: int, stretch: Stretch = ALL) -> int:
        """Promote what could be promoted and was not, in a stretch of its lanes; returns how many.

        Above 0 only after plans in callers' own transactions, which take no gate; so each is noted as an event, and the
        doctor tells of them.
        """

        def body(connection: Connection) -> int:
            asked = bound(site_id=site_id, after=stretch.after, end=stretch.end)
            wanted = list(connection.execute(gates.ready(), asked).scalars())
            turns = self._give_turns(connection, self._lock_gates(connection, wanted, wait=False))
            if turns:
                said = {
                    "verb": "promote",
                    "actor": UPKEEP,
                    "from_state": JobState.WAITING,
                    "to_state": JobState.PENDING,
                }
                noted = [{**said, "site_id": row.site_id, "job_id": row.id} for row in turns]
                connection.execute(insert(events), noted)
            return len(turns)

        return self._write(body)

    def touch(self, site_id: int) -> None:
        """Plan an assembly of the site, due now: its theme changed, or its target lost something."""

        def body(connection: Connection) -> None:
            connection.execute(assembly.raise_changed(), bound(site_ids=[site_id]))
            self._add_assembly(connection, [site_id], soon=True)

        self._write(body)


_OF_TOPIC = len(fields(TopicView))
_OF_BOTH = _OF_TOPIC + len(fields(Draft))


def _claim(row: Any, token: UUID, findings: Mapping[int, Sequence[Finding]]) -> Claim:
    """The claim of one row. Taken apart by place: by name, this cost a worker more than all else that it does for a
    job."""
    topic_id = row[0]
    (
        job_id, site, site_id, stage, fence, attempt, max_attempts, gated, lease, revision_id, input_hash, approved,
        begins, run_at, priority, deadline,
    ) = row[_OF_BOTH:]  # fmt: skip
    return Claim(
        job_id,
        site,
        site_id,
        stage,
        token,
        fence,
        attempt,
        max_attempts,
        gated,
        timedelta(seconds=lease),
        None if topic_id is None else TopicView(*row[:_OF_TOPIC]),
        None if revision_id is None else Draft(*row[_OF_TOPIC:_OF_BOTH]),
        revision_id,
        tuple(findings.get(topic_id, ())),
        input_hash,
        approved,
        begins,
        run_at,
        priority,
        None if deadline is None else timedelta(seconds=deadline),
    )
