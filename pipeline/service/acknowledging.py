"""How workers end what they hold: acknowledgements in batches; floor 2.

One transaction for a batch: lock the gates, write, store what came of it, move ``passed``, promote, and last of all the
sites whose live pages may have changed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, StatementError

from pipeline.db import reason, sqlstate
from pipeline.service.base import Service, clean, revision
from pipeline.sql import assembly, content, transitions
from pipeline.sql.batch import bound
from pipeline.sql.operate import FORCED
from pipeline.sql.transitions import Reach
from pipeline.views import Claim, Draft, Finding

UNFIT = (StatementError, ValueError, TypeError, AttributeError, RecursionError)  # what a bad row may raise
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


class Acknowledging(Service):
    """The verbs that end a reservation."""

    rouses = False

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
            return both(self.acknowledge(pages, wait=wait), self.acknowledge(own, wait=wait))
        try:
            return self._write(lambda connection: self._acknowledge(connection, acks, wait=wait))
        except UNFIT as error:
            if not is_of_the_rows(error):
                raise
            if len(acks) > 1:
                half = len(acks) // 2
                return both(self.acknowledge(acks[:half], wait=wait), self.acknowledge(acks[half:], wait=wait))
            if acks[0].verb is Verb.REPAIR and not acks[0].metrics:
                raise
            broken = Ack(acks[0].claim, Verb.REPAIR, error_class=type(error).__name__, error=reason(error))
            return self.acknowledge([broken], wait=wait)

    def _acknowledge(self, connection: Connection, acks: Sequence[Ack], *, wait: bool) -> Settled:
        assembled = sorted({a.claim.site_id for a in acks if a.claim.topic is None})
        if assembled:
            # Before the job: a page's end holds the site while it looks whether an assembly is unfinished.
            connection.execute(assembly.lock_sites(), bound(site_ids=assembled)).all()
        by_verb: dict[Verb, list[Ack]] = defaultdict(list)
        for ack in acks:
            by_verb[ack.verb].append(ack)
        said = {verb: [_said(ack) for ack in group] for verb, group in by_verb.items()}

        touched: dict[int, set[int]] = defaultdict(set)
        for verb, group in said.items():
            statement = transitions.gates_touched(_REACH.get(verb, Reach.SKIP))
            for job_id, gate_id in connection.execute(statement, {"acks": group}).all():
                touched[job_id].add(gate_id)
        wanted = sorted({gate_id for ids in touched.values() for gate_id in ids})
        locked = self._lock_gates(connection, wanted, wait=wait)
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
                answer = connection.execute(statement, {"acks": mine, "gates": locked}).all()
                written.update({row.fence: row for row in answer})
        self._keep(connection, acks, written)
        ready = {(r.site_id, r.stage, r.priority) for r in written.values() if r.state == "pending"}
        ready |= {(r.site_id, r.stage, r.priority) for r in self._give_turns(connection, locked)}
        self._raise_sites(connection, acks, written)
        fates = self._fates(connection, acks, written)
        return Settled(fates, {f: r.outcome for f, r in written.items()}, frozenset(ready))

    def _keep(self, connection: Connection, acks: Sequence[Ack], written: Mapping[int, Any]) -> None:
        """Store what accepted outcomes brought: drafts and findings."""
        drafts: list[dict[str, Any]] = []
        found: list[dict[str, Any]] = []
        for ack in acks:
            if ack.draft is None and not ack.findings:
                continue
            row = written.get(ack.claim.fence)
            if row is None or ack.claim.topic is None or row.outcome not in ("done", "rejected"):
                continue
            if ack.draft is not None and row.outcome == "done":
                drafts.append(_draft(ack.claim, ack.draft))
            found.extend(_finding(ack.claim, finding) for finding in ack.findings)
        if drafts:
            connection.execute(content.add_revisions(), {"drafts": drafts, **bound(origin="generated")})
        if found:
            connection.execute(content.add_findings(), {"found": found})

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
            connection.execute(assembly.lock_sites(), bound(site_ids=changed)).all()  # in id order
        if changed:
            connection.execute(assembly.raise_changed(), bound(site_ids=changed))
        for ack in mine:
            if ack.built is not None and written[ack.claim.fence].state == "done":
                value, fingerprint = ack.built
                connection.execute(
                    assembly.built(), bound(site_id=ack.claim.site_id, built=value, fingerprint=fingerprint)
                )
        if ended:
            owing += connection.execute(assembly.behind(), bound(site_ids=ended)).scalars()
        if owing:
            self._add_assembly(connection, owing)

    def _fates(self, connection: Connection, acks: Sequence[Ack], written: Mapping[int, Any]) -> dict[int, Fate]:
        missing = [a for a in acks if a.claim.fence not in written]
        fates = dict.fromkeys(written, Fate.WRITTEN)
        if not missing:
            return fates
        asked = [_said(a) for a in missing]
        held = set(connection.execute(transitions.still_held(), {"acks": asked}).scalars())
        fences = [a.claim.fence for a in missing]
        ended = connection.execute(transitions.recorded(), bound(fences=fences))
        # Not what was recorded by whoever took it away, a reaper or a person, whatever it came to.
        recorded: dict[int, str] = {r.fence: r.outcome for r in ended if r.error_class not in (EXPIRED, FORCED)}
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


def is_of_the_rows(error: Exception) -> bool:
    """Whether it is what was to be stored that cannot be: the server refused it, or it could not even be encoded."""
    state = sqlstate(error)
    if state is not None:
        return state[:2] in ("22", "23", "54")  # data, constraints, limits of the program
    return isinstance(error, DataError) or not isinstance(error, DBAPIError)


def _said(ack: Ack) -> dict[str, Any]:
    """As ``ending.said`` takes it; what is missing is NULL there, and most of it mostly is."""
    said: dict[str, Any] = {
        "job_id": ack.claim.job_id,
        "token": str(ack.claim.token),
        "delay_seconds": min(ack.delay.total_seconds(), 10 * 365 * 86400),
    }
    if ack.to_stage is not None:
        said["to_stage"] = ack.to_stage
    if ack.hold is not None:
        said["hold"] = clean(ack.hold)
    if ack.error_class:
        said["error_class"] = clean(ack.error_class, 200)
    if ack.error:
        said["error"] = clean(ack.error)
    if ack.metrics:
        said["metrics"] = dict(ack.metrics)
    if ack.claim.begins:
        said["made_from"] = ack.claim.input_hash
    return said


def _draft(claim: Claim, draft: Draft) -> dict[str, Any]:
    assert claim.topic is not None
    lineage = {**draft.lineage, "input_hash": claim.input_hash, "stage": claim.stage}
    return revision(draft, claim.topic.id, claim.fence, lineage)


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


def both(one: Settled, other: Settled) -> Settled:
    return Settled({**one.fates, **other.fates}, {**one.outcomes, **other.outcomes}, one.ready | other.ready)
