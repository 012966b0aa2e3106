"""The state machine as data; ground floor.

``TRANSITIONS`` is the only list of what may happen to a job. The statements in ``sql/`` take their guards from it, and
the suite checks every verb against every state.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from itertools import product


class JobState(StrEnum):
    WAITING = "waiting"  # at a limited gate and not its turn, or on hold
    PENDING = "pending"  # its turn: claimable from run_at on
    RESERVED = "reserved"
    DONE = "done"
    FAILED = "failed"
    REPAIR = "repair"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


S = JobState

FINAL = frozenset({S.DONE, S.SKIPPED})
"""Nothing leaves these; doing it again is a new pass."""

ENDED = FINAL | {S.FAILED, S.REPAIR, S.CANCELLED}
"""Nothing works on these by itself."""

HALTING = frozenset({S.FAILED, S.REPAIR, S.CANCELLED})
"""The head of a strict lane in one of these halts the lane until a person acts."""

UNFINISHED = frozenset(S) - FINAL
"""A topic has at most one job in these."""

LIVE = frozenset({S.WAITING, S.PENDING, S.RESERVED})
"""These still move without a person."""


class Guard(StrEnum):
    """What the WHERE of the guarded write checks beside the id."""

    STATE = "state"
    TOKEN = "token"  # and the state
    LEASE = "lease"  # over, at the moment the row is locked
    GATE = "gate"  # locked, has room; strict: the job is the head


@dataclass(frozen=True, slots=True)
class Transition:
    """One verb: every ``(from, to)`` that it may write, and its guard."""

    verb: str
    edges: frozenset[tuple[JobState, JobState]]
    guard: Guard

    @property
    def sources(self) -> frozenset[JobState]:
        return frozenset(source for source, _ in self.edges)

    @property
    def targets(self) -> frozenset[JobState]:
        return frozenset(target for _, target in self.edges)


def _t(
    verb: str,
    sources: Collection[JobState],
    targets: Collection[JobState],
    guard: Guard,
    *,
    keeps: Collection[JobState] = (),
) -> Transition:
    """From each source to each target; those in ``keeps`` may stay what they are."""
    return Transition(verb, frozenset({*product(sources, targets), *((s, s) for s in keeps)}), guard)


# CANCELLED is a target of nearly every worker's verb: a cancel that was asked for lands there, whatever the outcome,
# except Done of the last stage.
TRANSITIONS: dict[str, Transition] = {
    t.verb: t
    for t in (
        _t("promote", {S.WAITING}, {S.PENDING}, Guard.GATE),
        _t("demote", {S.PENDING}, {S.WAITING}, Guard.GATE),
        _t("claim", {S.PENDING}, {S.RESERVED}, Guard.STATE),
        _t("renew", {S.RESERVED}, {S.RESERVED}, Guard.TOKEN),
        _t("advance", {S.RESERVED}, {S.PENDING, S.WAITING, S.DONE, S.CANCELLED}, Guard.TOKEN),
        _t("reject", {S.RESERVED}, {S.PENDING, S.WAITING, S.REPAIR, S.CANCELLED}, Guard.TOKEN),
        _t("retry", {S.RESERVED}, {S.PENDING, S.WAITING, S.FAILED, S.SKIPPED, S.CANCELLED}, Guard.TOKEN),
        _t("snooze", {S.RESERVED}, {S.PENDING, S.WAITING, S.CANCELLED}, Guard.TOKEN),
        _t("hold", {S.RESERVED}, {S.WAITING, S.CANCELLED}, Guard.TOKEN),
        _t("fail", {S.RESERVED}, {S.FAILED, S.SKIPPED, S.CANCELLED}, Guard.TOKEN),
        _t("repair", {S.RESERVED}, {S.REPAIR, S.CANCELLED}, Guard.TOKEN),
        _t("release", {S.RESERVED}, {S.PENDING, S.WAITING, S.REPAIR, S.CANCELLED}, Guard.TOKEN),
        _t("reap", {S.RESERVED}, {S.PENDING, S.WAITING, S.REPAIR, S.CANCELLED}, Guard.LEASE),
        _t("cancel", LIVE, {S.CANCELLED}, Guard.STATE, keeps={S.RESERVED}),  # asked to stop
        _t("approve", {S.WAITING}, {S.WAITING, S.PENDING}, Guard.STATE),  # what is on hold
        _t("requeue", {S.FAILED, S.REPAIR, S.CANCELLED}, {S.WAITING, S.PENDING}, Guard.STATE),
        _t("retire", {S.WAITING, S.PENDING}, {S.WAITING, S.PENDING}, Guard.STATE),  # its stage; it moves on to the next
        _t("skip", {S.WAITING, S.PENDING, S.FAILED, S.REPAIR, S.CANCELLED}, {S.SKIPPED}, Guard.STATE),
        _t("grant", (), (), Guard.STATE, keeps=LIVE),  # attempts
        _t("move", {S.WAITING, S.PENDING}, {S.WAITING, S.PENDING}, Guard.GATE, keeps=HALTING),
    )
}

HOUSE_VERBS = frozenset({"pause", "resume", "open", "close", "set", "retire", "restore", "remove", "prune"})
"""What is done to lanes, stages and sites, and noted in events without a job."""


class LaneState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    CLOSED = "closed"


class StageState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    RETIRED = "retired"  # taken out by a person: successors step over it


ASSEMBLE = "assemble"
"""The stage name of a site's own job, which builds home, sitemap and feeds; it has no topic, lane or gate."""

ROUNDS = 3
"""How often validate may send a pass back before it goes to repair."""
