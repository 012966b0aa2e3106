"""Where a process is killed: at a statement, around its commit, or around what it does to a file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.clock import DatabaseClock
from pipeline.sql import append, assembly, claim, content, gates, ledger, operate, transitions

CLOCK = DatabaseClock()  # equal to the services' own, so that the statements are the very same objects

BEFORE, AFTER = "before", "after"  # the statement
UNSENT, UNHEARD = "commit-unsent", "commit-unheard"  # of the first transaction that the statement is part of
PLACES = (BEFORE, AFTER, UNSENT, UNHEARD)

STATEMENTS: dict[str, Callable[[], Any]] = {
    "claim": lambda: claim.claim(CLOCK, claim.Which.TOGETHER),
    "renew": lambda: claim.renew(CLOCK),
    "reap": lambda: transitions.reap(CLOCK, holder_is_gone=False),
    "lock-gates": lambda: gates.lock(wait=False),
    "advance": lambda: transitions.advance(CLOCK),
    "reject": lambda: transitions.reject(CLOCK),
    "retry": lambda: transitions.retry(CLOCK),
    "fail": lambda: transitions.fail(CLOCK),
    "release": lambda: transitions.release(CLOCK),
    "revisions": content.add_revisions,
    "findings": content.add_findings,
    "passed": gates.move_passed,
    "promote": lambda: gates.promote(CLOCK),
    "sites": assembly.raise_changed,  # only the end of a page's last stage
    "intent": lambda: ledger.put(CLOCK),
    "confirm": lambda: ledger.confirm(CLOCK),
    "plan-jobs": lambda: append.add_jobs(CLOCK),
    "skip": lambda: operate.skip(CLOCK),
}

RENAME = "rename"  # of a page into its place

# What the process is to do, and how the first topic of the lane behaves.
WORK, PLAN, SKIP = "work", "plan", "skip"
TROUBLES = {
    "reject": "reject",
    "findings": "reject",
    "retry": "retry",
    "fail": "fail",
    "release": "stop",
    "renew": "slow",
}
ACTIONS = {"plan-jobs": PLAN, "skip": SKIP}


@dataclass(frozen=True, slots=True)
class Point:
    """One place. ``quick``: met in every run of the suite."""

    what: str
    place: str
    quick: bool = False

    @property
    def id(self) -> str:
        return f"{self.what}-{self.place}"

    @property
    def action(self) -> str:
        return ACTIONS.get(self.what, WORK)

    @property
    def trouble(self) -> str:
        return TROUBLES.get(self.what, "")


def _at(what: str, *places: str, quick: tuple[str, ...] = ()) -> list[Point]:
    return [Point(what, place, place in quick) for place in places]


POINTS: tuple[Point, ...] = (
    *_at("claim", *PLACES, quick=(AFTER, UNHEARD)),
    *_at("renew", AFTER, UNHEARD),
    *_at("reap", *PLACES, quick=(UNHEARD,)),
    *_at("lock-gates", AFTER, quick=(AFTER,)),
    *_at("advance", *PLACES),
    *_at("revisions", AFTER, UNHEARD, quick=(AFTER,)),
    *_at("passed", AFTER),
    *_at("promote", AFTER, UNHEARD, quick=(UNHEARD,)),
    *_at("sites", BEFORE, UNSENT, UNHEARD, quick=(UNSENT, UNHEARD)),
    *_at("reject", AFTER, UNHEARD),
    *_at("findings", AFTER),
    *_at("retry", AFTER, UNHEARD),
    *_at("fail", AFTER, UNHEARD),
    *_at("release", AFTER, UNHEARD),
    *_at("intent", AFTER, UNSENT, UNHEARD, quick=(UNHEARD,)),
    *_at(RENAME, BEFORE, AFTER, quick=(BEFORE, AFTER)),
    *_at("confirm", BEFORE, AFTER, UNSENT, UNHEARD, quick=(UNSENT,)),
    *_at("plan-jobs", BEFORE, UNSENT, UNHEARD),
    *_at("skip", UNSENT, UNHEARD),
)
