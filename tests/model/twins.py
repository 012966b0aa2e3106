"""Broken twins of the model: each lacks one rule, and shows by what it breaks that the rule was needed.

A twin that nothing catches would mean that the properties are too weak, unless it is the same machine: of those in
``EQUIVALENT`` it is shown that they have the very same worlds.
"""

from dataclasses import dataclass

from tests.model.explore import Explored, explore
from tests.model.scopes import ANSWERS, LANE, ORDER, PAUSED, SURE, TWO_GATES, verbs_of
from tests.model.world import Scope

_AGAIN = Scope(
    "2 workers × 1 job × 2 attempts: taken over", 2, 1, 2, unsure=SURE,
    verbs=verbs_of("claim advance fail renew expire look reap skip"),
)  # fmt: skip
_REQUEUED = Scope(
    "1 worker × 2 jobs: cancelled and requeued", 1, 2, 1, verbs=verbs_of("claim advance cancel requeue skip"),
    unsure=SURE,
)  # fmt: skip
_RELEASES = Scope(
    "1 worker × 1 job: releases", 1, 1, 1, verbs=verbs_of("claim advance release expire look reap skip"),
    unsure=SURE,
)  # fmt: skip
_CHARGES = Scope(
    "1 worker × 1 job × 2 attempts: crashes", 1, 1, 2, verbs=verbs_of("claim advance fail crash expire look reap skip"),
    unsure=SURE,
)  # fmt: skip
_SKIPPING = Scope(
    "1 worker × 2 jobs, two strict stages: what failed is skipped", 1, 2, 1, strict=(True, True), skips=True,
    unsure=SURE, verbs=verbs_of("claim advance fail"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Twin:
    """Rules taken away, where this shows, and the property that shows it first."""

    name: str
    scope: Scope
    broken: tuple[str, ...]
    caught_by: str


TWINS = (
    Twin("a worker's write does not ask for its token", _AGAIN, ("no token check",), "written_under_the_token"),
    Twin("the token outlives a forced cancel, and no state is asked for", ANSWERS,
         ("no state check", "force keeps the token"), "ended_fences_are_recorded"),
    Twin("a token is used again at the next claim", _AGAIN, ("token used again",), "one_live_reservation"),
    Twin("a claim asks for no state", _AGAIN, ("claim without state",), "live_lease_is_kept"),
    Twin("the reaper trusts its list", LANE, ("reaper unguarded",), "live_lease_is_kept"),
    Twin("the reaper does not judge the lease again", LANE, ("lease not judged",), "live_lease_is_kept"),
    Twin("the reaper records nothing", LANE, ("reap unrecorded",), "ended_fences_are_recorded"),
    Twin("a late worker renews the lease of another", _AGAIN, ("renew without token",), "written_under_the_token"),
    Twin("attempts are charged when they fail", _CHARGES, ("charged at failure",), "attempts_are_those_begun"),
    Twin("a reaped job is pending with no attempt left", LANE, ("last attempt forgotten",), "pending_has_attempts"),
    Twin("releases give attempts back for ever", _RELEASES, ("release without bound",), "releases_are_bounded"),
    Twin("a forced cancel is overwritten: no token and no state", ANSWERS,
         ("no token check", "no state check"), "written_under_the_token"),
    Twin("what is resent asks for nothing", ANSWERS, ("resend unguarded",), "written_under_the_token"),
    Twin("what is resent looks no fence up, and is resent for ever", ANSWERS,
         ("resent for ever",), "comes_to_rest_by_itself"),
    Twin("nobody reaps", _CHARGES, ("nobody reaps",), "comes_to_rest_by_itself"),
    Twin("a worker that lost is told that it wrote", LANE, ("lost is not told",), "answers_are_true"),
    Twin("a cancel that was asked for is forgotten", LANE, ("cancel forgotten",), "cancel_is_not_forgotten"),
    Twin("a forced cancel records nothing", ANSWERS, ("force unrecorded",), "ended_fences_are_recorded"),
    Twin("an operator's cancel trusts the state it read", LANE, ("cancel without state",), "moves_are_in_the_table"),
    Twin("requeue gives the slot without asking for the head", _REQUEUED,
         ("requeue takes a slot",), "order_at_the_strict_stage"),
    Twin("promote: the predecessor is over and the gate has room", ORDER,
         ("predecessor and room",), "order_at_the_strict_stage"),
    Twin("promote: whoever waits", ORDER, ("whoever waits",), "order_at_the_strict_stage"),
    Twin("passed is set to the position released", ORDER, ("passed set directly",), "passed_is_right"),
    Twin("skip does not move passed", LANE, ("skip leaves passed",), "passed_is_right"),
    Twin("what needs repair cannot be skipped", _CHARGES, ("repair is not skipped",), "can_be_settled"),
    Twin("what failed is skipped, at its own gate alone", _SKIPPING, ("skip leaves gates",), "passed_is_right"),
    Twin("a rejected job takes a second turn at a gate it passed", TWO_GATES,
         ("second turn",), "nothing_waits_in_vain"),
    Twin("a claim does not look at the lane", PAUSED, ("claim while paused",), "paused_begins_nothing"),
    Twin("a held job keeps its slot", PAUSED, ("hold keeps the slot",), "slot_exactly_when_due"),
    Twin("a held head is promoted", PAUSED, ("held is promoted",), "moves_are_in_the_table"),
    Twin("resume wakes what a person must approve", PAUSED, ("resume wakes what is held",),
         "halted_waits_for_a_person"),
    Twin("pause leaves the slots", PAUSED, ("pause keeps the slot",), "slot_exactly_when_due"),
    Twin("resume promotes nobody", PAUSED, ("resume without turns",), "nothing_waits_in_vain"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Same:
    """A rule that others imply: without it the machine is the same."""

    name: str
    scope: Scope
    broken: str
    because: str


EQUIVALENT = (
    Same("a worker's write asks for its token, and not for the state", ANSWERS, "no state check",
         "a job has a token exactly when it is reserved"),
    Same("promote does not ask whether a strict gate has room", TWO_GATES, "no look for room",
         "the only one that can be promoted is the head, and whoever holds the slot is the head already"),
    Same("a claim does not ask for attempts that are left", _CHARGES, "claim without attempts",
         "nothing is pending without one"),
)  # fmt: skip


def catch(twin: Twin) -> Explored:
    return explore(twin.scope, twin.broken)


def is_same(same: Same) -> bool:
    """Whether the machine without this rule has the very same worlds, and as many steps between them."""
    whole, without = explore(same.scope, keep=True), explore(same.scope, (same.broken,), keep=True)
    return without.violation is None and whole.worlds == without.worlds and whole.edges == without.edges
