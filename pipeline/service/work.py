"""A worker's verbs: claim, renew, acknowledge, reap, heal; floor 2."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, StatementError

from pipeline.db import reason, sqlstate
from pipeline.service.base import Service, clean, likeness
from pipeline.sql import claim, content, gates, plan, transitions
from pipeline.sql.batch import bound
from pipeline.sql.transitions import Reach
from pipeline.states import ASSEMBLE
from pipeline.views import Claim, Draft, Finding, Severity, TopicView

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
ASSEMBLE_DELAY_SECONDS = 5  # so that one assembly serves many pages; a run that has nothing else to do makes it due
ASSEMBLE_ATTEMPTS = 10
EXPIRED = "expired"  # the error class of what a reaper took away


class Verb(StrEnum):
    """How a worker may end a reservation."""

    ADVANCE = "advance"
    REJECT = "reject"
    RETRY = "retry"
    SNOOZE = "snooze"
    HOLD = "hold"
    FAIL = "fail"
    REPAIR = "repair"
    RELEASE = "release"


_REACH = {Verb.ADVANCE: Reach.NEXT, Verb.REJECT: Reach.LANE}
_OUTCOMES = {
    Verb.ADVANCE: {"done"},
    Verb.REJECT: {"rejected"},
    Verb.RETRY: {"retry", "failed"},
    Verb.SNOOZE: {"snoozed"},
    Verb.HOLD: {"held"},
    Verb.FAIL: {"failed"},
    Verb.REPAIR: {"repair"},
    Verb.RELEASE: {"released"},
}


@dataclass(frozen=True, slots=True)
class Prefix:
    """One stretch of the claim's index, the worker's share of it, and where its last claim ended."""

    site_id: int
    stage: str
    priority: int
    share: int
    lease: timedelta
    floor: tuple[datetime, int] = (BEGINNING, 0)


@dataclass(frozen=True, slots=True)
class Ack:
    """What a worker says of one job that it holds."""

    claim: Claim
    verb: Verb
    draft: Draft | None = None
    findings: Sequence[Finding] = ()
    delay: timedelta = timedelta(0)
    to_stage: str | None = None
    hold: str | None = None
    error_class: str | None = None
    error: str | None = None
    metrics: Mapping[str, Any] | None = None
    touches: bool = False  # the stage acts on a target: what is live may have changed
    built: tuple[int, str] | None = None  # of an assembly: the change that it read, and its fingerprint


class Fate(StrEnum):
    """What became of an acknowledgement."""

    WRITTEN = "written"
    BUSY = "busy"  # a gate was locked by another: say it again
    LOST = "lost"  # the reservation was no longer ours: nothing was written


@dataclass(frozen=True, slots=True)
class Settled:
    """The answers to one batch of acknowledgements."""

    fates: dict[int, Fate] = field(default_factory=dict)  # by fence
    outcomes: dict[int, str] = field(default_factory=dict)  # by fence, of those written
    ready: frozenset[tuple[int, str, int]] = frozenset()  # (site_id, stage, priority) with work that this made pending


@dataclass(frozen=True, slots=True)
class Expired:
    """A reservation that may be somebody's no more, as it was read."""

    job_id: int
    token: UUID
    fence: int
    holder: str
    over: bool


class Work(Service):
    """What workers do with jobs."""

    def prefixes(self, site_id: int | None = None) -> list[tuple[int, str, int]]:
        """The ``(site_id, stage, priority)`` that have something due."""
        statement = claim.prefixes(self._clock, one_site=site_id is not None)
        with self._reading() as connection:
            found = connection.execute(statement, bound(site_id=site_id))
            return [(row.site_id, row.stage, row.priority) for row in found]

    def claim(self, prefixes: Sequence[Prefix], worker: str) -> list[Claim]:
        """Reserve due jobs, at most ``share`` of each prefix, in one statement; the attempt is charged."""
        if not prefixes:
            return []
        token = uuid4()
        asked = [
            {"n": n, "site_id": p.site_id, "stage": p.stage, "priority": p.priority, "share": p.share,
             "lease_seconds": p.lease.total_seconds(), "floor_at": p.floor[0].isoformat(), "floor_id": p.floor[1]}
            for n, p in enumerate(prefixes)
        ]  # fmt: skip
        values = {"prefixes": asked, **bound(token=token, worker=worker)}

        def body(connection: Connection) -> tuple[Sequence[Any], dict[int, list[Finding]]]:
            found = connection.execute(claim.claim(self._clock), values).all()
            rejected = [row.topic_id for row in found if row.round > 0]
            return found, self._findings(connection, rejected)

        found, findings = self._write(body)
        return [_claim(row, prefixes[row.n], token, tuple(findings.get(row.topic_id, ()))) for row in found]

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

    def acknowledge(self, acks: Sequence[Ack], *, wait: bool = False) -> Settled:
        """End reservations: lock gates, write, move ``passed``, promote, in one transaction for the whole batch.

        Jobs behind a gate that another transaction has locked are answered ``busy``, unless told to ``wait``. One bad
        row does not fail the rest: the batch is halved, and what fails alone goes to repair.
        """
        if not acks:
            return Settled()
        own = [a for a in acks if a.claim.topic is None]
        if own and len(own) < len(acks):
            # A site's own job locks its site first, a page's end locks it last: never both in one transaction.
            pages = [a for a in acks if a.claim.topic is not None]
            return _both(self.acknowledge(pages, wait=wait), self.acknowledge(own, wait=wait))
        try:
            return self._write(lambda connection: self._acknowledge(connection, acks, wait=wait))
        except (StatementError, ValueError, TypeError, AttributeError, RecursionError) as error:
            if not _is_of_the_rows(error):
                raise
            if len(acks) > 1:
                half = len(acks) // 2
                return _both(self.acknowledge(acks[:half], wait=wait), self.acknowledge(acks[half:], wait=wait))
            if acks[0].verb is Verb.REPAIR and not acks[0].metrics:
                raise
            broken = Ack(acks[0].claim, Verb.REPAIR, error_class=type(error).__name__, error=reason(error))
            return self.acknowledge([broken], wait=wait)

    def _acknowledge(self, connection: Connection, acks: Sequence[Ack], *, wait: bool) -> Settled:
        assembled = sorted({a.claim.site_id for a in acks if a.claim.topic is None})
        if assembled:
            # Before the job: a page's end holds the site while it looks whether an assembly is unfinished.
            connection.execute(plan.lock_sites(), bound(site_ids=assembled)).all()
        by_verb: dict[Verb, list[Ack]] = defaultdict(list)
        for ack in acks:
            by_verb[ack.verb].append(ack)
        said = {verb: [_said(ack) for ack in group] for verb, group in by_verb.items()}

        touched: dict[int, set[int]] = defaultdict(set)
        for verb, group in said.items():
            statement = transitions.gates_touched(_REACH.get(verb, Reach.SKIP))
            for job_id, gate_id in connection.execute(statement, {"acks": group}):
                touched[job_id].add(gate_id)
        wanted = sorted({gate_id for ids in touched.values() for gate_id in ids})
        locked: list[int] = []
        if wanted:
            locked = list(connection.execute(gates.lock(wait=wait), {"gates": wanted}).scalars())
        free = set(locked)
        busy = {job_id for job_id, ids in touched.items() if not ids <= free}

        if len(said) > 1:
            # All rows in id order, whatever is said of each: verb by verb, this would meet bulk verbs head-on.
            everything = [row for group in said.values() for row in group if row["job_id"] not in busy]
            connection.execute(transitions.lock(), {"acks": everything}).all()
        written: dict[int, Any] = {}
        for verb, group in said.items():
            mine = [row for row in group if row["job_id"] not in busy]
            if mine:
                statement = getattr(transitions, verb.value)(self._clock)
                answer = connection.execute(statement, {"acks": mine, "gates": locked})
                written.update({row.fence: row for row in answer})
        self._keep(connection, acks, written)
        ready = {(r.site_id, r.stage, r.priority) for r in written.values() if r.state == "pending"}
        if locked:
            connection.execute(gates.move_passed(), {"gates": locked})
            promoted = connection.execute(gates.promote(self._clock), {"gates": locked})
            ready |= {(r.site_id, r.stage, r.priority) for r in promoted}
        self._raise_sites(connection, acks, written)
        fates = self._fates(connection, acks, written)
        return Settled(fates, {f: r.outcome for f, r in written.items()}, frozenset(ready))

    def _keep(self, connection: Connection, acks: Sequence[Ack], written: Mapping[int, Any]) -> None:
        """Store what accepted outcomes brought: drafts, findings, and what the topic's newest pass was made from."""
        drafts: list[dict[str, Any]] = []
        found: list[dict[str, Any]] = []
        settled: list[dict[str, Any]] = []
        for ack in acks:
            row = written.get(ack.claim.fence)
            if row is None or ack.claim.topic is None or row.outcome not in ("done", "rejected"):
                continue
            if ack.draft is not None and row.outcome == "done":
                drafts.append(_draft(ack.claim, ack.draft))
            found.extend(_finding(ack.claim, finding) for finding in ack.findings)
            if row.outcome == "done":
                first = ack.claim.input_hash if ack.claim.begins else None
                released = row.state == "done"
                if first is not None or released:
                    settled.append({"topic_id": row.topic_id, "made_from": first, "released": released})
        if drafts:
            connection.execute(content.add_revisions(), {"drafts": drafts, **bound(origin="generated")})
        if found:
            connection.execute(content.add_findings(), {"found": found})
        if settled:
            connection.execute(content.settle_topics(), {"settled": settled})

    def _raise_sites(self, connection: Connection, acks: Sequence[Ack], written: Mapping[int, Any]) -> None:
        """Note that what is live may have changed, and plan the assembly that it calls for.

        Last, for the site's row is the last lock of every transaction but that of an assembly. One that ends leaves
        another behind when something changed while it ran; both sides lock the row before they look, so none is missed.
        """
        mine = [a for a in acks if a.claim.fence in written]
        changed = sorted({a.claim.site_id for a in mine if a.touches and a.claim.topic is not None})
        ended = sorted({a.claim.site_id for a in mine if a.claim.topic is None} - set(changed))
        owing = list(changed)
        if len(changed) > 1:
            connection.execute(plan.lock_sites(), bound(site_ids=changed)).all()  # in id order
        if changed:
            connection.execute(plan.raise_changed(), bound(site_ids=changed))
        for ack in mine:
            if ack.built is not None and written[ack.claim.fence].state == "done":
                value, fingerprint = ack.built
                connection.execute(plan.built(), bound(site_id=ack.claim.site_id, built=value, fingerprint=fingerprint))
        if ended:
            owing += connection.execute(plan.behind(), bound(site_ids=ended)).scalars()
        if owing:
            self._add_assembly(connection, owing, ASSEMBLE_DELAY_SECONDS)

    def _add_assembly(self, connection: Connection, site_ids: Sequence[int], delay_seconds: int) -> None:
        values = bound(site_ids=list(site_ids), delay_seconds=delay_seconds, max_attempts=ASSEMBLE_ATTEMPTS)
        connection.execute(plan.add_assembly(self._clock), values)

    def _fates(self, connection: Connection, acks: Sequence[Ack], written: Mapping[int, Any]) -> dict[int, Fate]:
        missing = [a for a in acks if a.claim.fence not in written]
        fates = dict.fromkeys(written, Fate.WRITTEN)
        if not missing:
            return fates
        asked = [_said(a) for a in missing]
        held = set(connection.execute(transitions.still_held(), {"acks": asked}).scalars())
        fences = [a.claim.fence for a in missing]
        ended = connection.execute(transitions.recorded(), bound(fences=fences))
        # Not what a reaper recorded, whatever it came to.
        recorded: dict[int, str] = {row.fence: row.outcome for row in ended if row.error_class != EXPIRED}
        for ack in missing:
            fence = ack.claim.fence
            if ack.claim.job_id in held:
                fates[fence] = Fate.BUSY
            # The answer to this very write was lost on its way: it is resent, and found to be done.
            elif recorded.get(fence, "") in _OUTCOMES[ack.verb] | {"cancelled"}:
                fates[fence] = Fate.WRITTEN
            else:
                fates[fence] = Fate.LOST
        return fates

    def expired(self, site_id: int | None = None) -> list[Expired]:
        """Reserved jobs as they are now, oldest lease first, whether over or not: candidates for ``reap``."""
        statement = transitions.expired(self._clock, one_site=site_id is not None)
        with self._reading() as connection:
            found = connection.execute(statement, bound(site_id=site_id))
            return [Expired(row.id, row.token, row.fence, row.reserved_by, row.over) for row in found]

    def reap(self, candidates: Sequence[Expired], *, holder_is_gone: bool = False) -> Settled:
        """Take jobs from holders whose lease is over when the row is locked, or who are known to be gone.

        One transaction a job, so that one bad row stops no other.
        """
        settled = Settled()
        for candidate in candidates:
            settled = _both(settled, self._write(lambda cn, c=candidate: self._reap(cn, c, holder_is_gone)))  # type: ignore[misc]
        return settled

    def _reap(self, connection: Connection, candidate: Expired, holder_is_gone: bool) -> Settled:
        why = "the worker that held it is gone" if holder_is_gone else "its lease ran out: the worker died or hung"
        acks = [
            {"job_id": candidate.job_id, "token": str(candidate.token), "delay_seconds": 0, "error_class": EXPIRED,
             "error": f"{why} ({candidate.holder})"}
        ]  # fmt: skip
        touched = connection.execute(transitions.gates_touched(Reach.SKIP), {"acks": acks})
        wanted = sorted({gate_id for _, gate_id in touched})
        locked = list(connection.execute(gates.lock(wait=True), {"gates": wanted}).scalars()) if wanted else []
        statement = transitions.reap(self._clock, holder_is_gone=holder_is_gone)
        rows = connection.execute(statement, {"acks": acks, "gates": locked}).all()
        ready = {(r.site_id, r.stage, r.priority) for r in rows if r.state == "pending"}
        if locked:
            connection.execute(gates.move_passed(), {"gates": locked})
            promoted = connection.execute(gates.promote(self._clock), {"gates": locked})
            ready |= {(r.site_id, r.stage, r.priority) for r in promoted}
        # What it did before it died may be live already: the site is looked at again.
        touched_sites = sorted({r.site_id for r in rows if r.left_stage != ASSEMBLE})
        if touched_sites:
            connection.execute(plan.raise_changed(), bound(site_ids=touched_sites))
            self._add_assembly(connection, touched_sites, ASSEMBLE_DELAY_SECONDS)
        return Settled({r.fence: Fate.WRITTEN for r in rows}, {r.fence: r.outcome for r in rows}, frozenset(ready))

    def heal(self, site_id: int) -> int:
        """Promote what could be promoted and was not; returns how many. Above 0 only after plans in callers' own
        transactions, which take no gate."""

        def body(connection: Connection) -> int:
            wanted = list(connection.execute(gates.ready(), bound(site_id=site_id)).scalars())
            if not wanted:
                return 0
            locked = list(connection.execute(gates.lock(wait=False), {"gates": wanted}).scalars())
            connection.execute(gates.move_passed(), {"gates": locked})
            return len(connection.execute(gates.promote(self._clock), {"gates": locked}).all())

        return self._write(body)

    def touch(self, site_id: int) -> None:
        """Plan an assembly of the site, due now: its theme changed, or its target lost something."""

        def body(connection: Connection) -> None:
            connection.execute(plan.raise_changed(), bound(site_ids=[site_id]))
            self._add_assembly(connection, [site_id], 0)

        self._write(body)


def _claim(row: Any, prefix: Prefix, token: UUID, findings: tuple[Finding, ...]) -> Claim:
    topic = draft = None
    if row.topic_id is not None:
        topic = TopicView(
            id=row.topic_id, site=row.site, lane=row.lane, slug=row.slug, title=row.title, type=row.type,
            path=row.path, position=row.position, brief=row.brief, number=row.number, round=row.round,
        )  # fmt: skip
    if row.revision_id is not None:
        draft = Draft(row.draft_title, row.description, row.body, row.front_matter, row.lineage)
    return Claim(
        job_id=row.id,
        site=row.site,
        site_id=row.site_id,
        stage=row.stage,
        token=token,
        fence=row.fence,
        attempt=row.attempts,
        max_attempts=row.max_attempts,
        gated=row.slot is not None,
        lease=prefix.lease,
        topic=topic,
        draft=draft,
        revision_id=row.revision_id,
        findings=findings,
        input_hash=row.input_hash or "",
        begins=row.begins,
        run_at=row.run_at,
        priority=row.priority,
    )


def _is_of_the_rows(error: Exception) -> bool:
    """Whether it is what was to be stored that cannot be: the server refused it, or it could not even be encoded."""
    state = sqlstate(error)
    if state is not None:
        return state[:2] in ("22", "23", "54")  # data, constraints, limits of the program
    return isinstance(error, DataError) or not isinstance(error, DBAPIError)


def _said(ack: Ack) -> dict[str, Any]:
    return {
        "job_id": ack.claim.job_id,
        "token": str(ack.claim.token),
        "delay_seconds": min(ack.delay.total_seconds(), 10 * 365 * 86400),
        "to_stage": ack.to_stage,
        "hold": clean(ack.hold) if ack.hold is not None else None,
        "error_class": clean(ack.error_class, 200) if ack.error_class else None,
        "error": clean(ack.error) if ack.error else None,
        "metrics": dict(ack.metrics) if ack.metrics else None,
    }


def _draft(claim: Claim, draft: Draft) -> dict[str, Any]:
    return {
        "topic_id": claim.topic.id if claim.topic else None,
        "fence": claim.fence,
        "title": draft.title,
        "description": draft.description,
        "title_key": likeness(draft.title),
        "description_key": likeness(draft.description),
        "body": draft.body,
        "front_matter": dict(draft.fields),
        "content_hash": draft.hash,
        "lineage": {**draft.lineage, "input_hash": claim.input_hash, "stage": claim.stage},
    }


def _finding(claim: Claim, finding: Finding) -> dict[str, Any]:
    return {
        "topic_id": claim.topic.id if claim.topic else None,
        "revision_id": claim.revision_id,
        "fence": claim.fence,
        "rule": clean(finding.rule, 100),
        "severity": finding.severity.value,
        "message": clean(finding.message),
        "line": finding.line,
        "column_number": finding.column,
    }


def _both(one: Settled, other: Settled) -> Settled:
    return Settled({**one.fates, **other.fates}, {**one.outcomes, **other.outcomes}, one.ready | other.ready)
