"""Faults that are planted in the product for the length of a test; there is no switch for them in its code.

A fault in a statement changes its text on the way to the server. Text that is not found there any more is an error, not
a fault that nobody caught: whoever rewrites a statement looks here again.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError

from pipeline.content.files import FilesTarget, _tag, split
from pipeline.db import make_engine
from pipeline.holding import Holding
from pipeline.service.acknowledging import Acknowledging, Fate
from pipeline.service.base import Service
from pipeline.service.ledger import LedgerService
from pipeline.service.operate import Operate
from pipeline.service.places import Places
from pipeline.testing import database
from tests.concurrency.stage import SCHEMA
from tests.planted.scenarios import (
    Scenario,
    a_cancelled_head,
    a_confirmation_that_is_lost,
    a_head_is_requeued,
    a_heartbeat_beside_a_locked_row,
    a_held_head,
    a_job_that_kills_its_workers,
    a_late_answer,
    a_late_confirmation,
    a_lease_of_the_servers_clock,
    a_live_topic_comes_again,
    a_lower_position_comes_late,
    a_reader_has_the_page_open,
    a_renewal_before_the_reaper,
    a_retry_before_its_time,
    a_retry_in_a_paused_lane,
    a_running_job_is_cancelled,
    a_running_job_is_skipped,
    a_running_topic_is_moved,
    a_session_that_ends_before_its_commit,
    a_stale_heartbeat,
    a_swapped_token,
    a_worker_stopped_past_its_lease,
    an_acknowledgement_without_answer,
    an_operator_without_answer,
    both_sides_of_a_gate,
    the_last_attempt_is_retried,
    two_claims_at_once,
    two_jobs_in_one_slot,
    two_plans_of_one_file,
)
from tests.planted.stand import Stand

Plant = Callable[[Stand], AbstractContextManager[None]]


class NotPlanted(AssertionError):
    """The statement that a fault was meant for was never sent, or reads otherwise by now."""


@dataclass(frozen=True, slots=True)
class Fault:
    what: str
    plant: Plant
    scenario: Scenario  # that catches it


def rewritten(of: str, *changes: tuple[str, str]) -> Plant:
    """In statements that match ``of``, each pattern becomes its replacement; blanks count as one."""

    @contextmanager
    def plant(stand: Stand) -> Iterator[None]:
        met = 0

        def rewrite(cn: Any, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> tuple[str, Any]:
            nonlocal met
            plain = " ".join(sql.split()).replace(f"{SCHEMA}.", "")
            if not re.search(of, plain):
                return sql, values
            for pattern, replacement in changes:
                plain, count = re.subn(pattern, replacement, plain)
                if not count:
                    raise NotPlanted(f"{pattern!r} is not in: {plain}")
            met += 1
            return _qualified(plain), values

        event.listen(Engine, "before_cursor_execute", rewrite, retval=True)
        try:
            yield
        finally:
            event.remove(Engine, "before_cursor_execute", rewrite)
        if not met:
            raise NotPlanted(f"no statement was like {of!r}")

    return plant


TABLES = "sites|lanes|stages|gates|topics|jobs|attempts|revisions|publications|events|findings"


def _qualified(plain: str) -> str:
    """Name the schema again, where a table or the sequence is named."""
    plain = re.sub(rf"(?<![\w.])({TABLES})(?=\.)", rf"{SCHEMA}.\1", plain)
    plain = re.sub(rf"\b(FROM|JOIN|UPDATE|INTO) ({TABLES})\b(?!\.)", rf"\1 {SCHEMA}.\2", plain)
    return plain.replace("nextval('fences')", f"nextval('{SCHEMA}.fences')")


def replaced(owner: type, name: str, make: Callable[[Any], Any]) -> Plant:
    """The method is what ``make`` gives for the real one."""

    @contextmanager
    def plant(stand: Stand) -> Iterator[None]:
        with patch.object(owner, name, make(getattr(owner, name))):
            yield

    return plant


CLAIM = r"^WITH chosen AS .* claimed AS"
PROMOTE = r"^WITH room AS"
MOVE = r"^WITH moved AS"
HEAD = r"w\.position BETWEEN room\.head AND CASE .*? END"
ENDS = r"^WITH held AS .*INSERT INTO attempts"
DONE = r"b\.state NOT IN \('done', 'skipped'\)"
BUT_CANCELLED = "b.state NOT IN ('done', 'skipped', 'cancelled')"


def _resending(real: Any) -> Any:
    def write(self: Any, body: Any, **more: Any) -> Any:
        try:
            return real(self, body, **more)
        except OperationalError as error:
            if error.connection_invalidated or getattr(error.orig, "sqlstate", None) is None:
                return real(self, body, **more)
            raise

    return write


def _apart(real: Any) -> Any:
    def acknowledge(self: Any, connection: Any, acks: Sequence[Any], **more: Any) -> Any:
        engine = make_engine(self._engine.url, schema=SCHEMA, connections=1, name="apart")
        try:
            with engine.begin() as another:
                self._keep(another, acks, {ack.claim.fence: SimpleNamespace(outcome="done") for ack in acks})
        finally:
            engine.dispose()
        with patch.object(Acknowledging, "_keep", lambda *_: None):
            return real(self, connection, acks, **more)

    return acknowledge


def _in_place(real: Any) -> Any:
    def write(self: FilesTarget, key: str, data: bytes, *, wanted: Any = lambda: True) -> str:
        *folders, name = split(key)
        path = self.root.joinpath(*folders, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return _tag(path.stat())

    return write


@contextmanager
def _without_slot_index(stand: Stand) -> Iterator[None]:
    with stand.engine.begin() as connection:
        named = text("SELECT indexdef FROM pg_indexes WHERE schemaname = :schema AND indexname = 'uq_jobs_gate_slot'")
        definition = connection.execute(named, {"schema": SCHEMA}).scalar_one()
        connection.execute(text(f"DROP INDEX {SCHEMA}.uq_jobs_gate_slot"))
    try:
        yield
    finally:
        with stand.engine.begin() as connection:
            database.empty(connection)
            connection.execute(text(definition))


def _fates(written_for: Fate) -> Callable[[Any], Any]:
    """What is missing is called ``written_for``, without asking what became of it."""

    def make(real: Any) -> Any:
        def fates(self: Any, connection: Any, acks: Any, written: Any) -> dict[int, Fate]:
            return {a.claim.fence: Fate.WRITTEN if a.claim.fence in written else written_for for a in acks}

        return fates

    return make


def _act_at_once(real: Any) -> Any:
    return lambda self, claim, page, still_ours: (True, page.act())


def _lease_of(clock: Callable[[], datetime]) -> Plant:
    def plant(stand: Stand) -> AbstractContextManager[None]:
        at = clock().isoformat()
        change = (r"lease_expires_at=\(clock_timestamp\(\)", f"lease_expires_at=('{at}'::timestamptz")
        return rewritten(CLAIM, change)(stand)

    return plant


_PREDECESSOR = (
    "NOT EXISTS (SELECT FROM jobs AS b JOIN gates AS y ON y.id = room.id"
    " WHERE b.lane_id = w.lane_id AND b.position = w.position - 1 AND b.state NOT IN ('done', 'skipped')"
    " AND b.cleared < y.ordinal)"
)

FAULTS: dict[str, Fault] = {
    "ending-ignores-token": Fault(
        "the write that ends a reservation looks for job and state, not for the token",
        rewritten(ENDS, (r" AND j\.token = acks_in\.token", ""), (r" AND jobs\.token = decided\.token", "")),
        a_late_answer,
    ),
    "ending-ignores-whose-token": Fault(
        "any token that is known ends any job",
        rewritten(
            ENDS,
            (r" AND j\.token = acks_in\.token", " AND EXISTS (SELECT FROM jobs t WHERE t.token = acks_in.token)"),
        ),
        a_swapped_token,
    ),
    "claim-neither-locks-nor-guards": Fault(
        "the claim's search locks nothing, and its write does not ask for the state",
        rewritten(
            CLAIM,
            (r" FOR NO KEY UPDATE OF j SKIP LOCKED", ""),
            (r"(jobs\.id = chosen\.id) AND jobs\.state IS NOT DISTINCT FROM 'pending'", r"\1"),
        ),
        two_claims_at_once,
    ),
    "reap-without-lease": Fault(
        "the reaper believes the lease that it has read before (M7)",
        rewritten(r"^WITH held AS .*'expired'", (r" AND j\.lease_expires_at <= clock_timestamp\(\)", "")),
        a_renewal_before_the_reaper,
    ),
    "requeue-promotes-nothing": Fault(
        "an operator's verbs leave promoting to others (M6)",
        replaced(Operate, "_give_turns", lambda real: lambda self, connection, locked: []),
        a_head_is_requeued,
    ),
    "gates-are-not-locked": Fault(
        "gates are read, not locked, before the write",
        rewritten(r"^SELECT gates\.id FROM gates WHERE gates\.id = any.* FOR", (r" FOR NO KEY UPDATE.*", "")),
        both_sides_of_a_gate,
    ),
    "promote-asks-the-predecessor": Fault(
        "whose predecessor is over has its turn, whoever is behind",
        rewritten(PROMOTE, (HEAD, _PREDECESSOR)),
        a_lower_position_comes_late,
    ),
    "promote-takes-the-lowest-here": Fault(
        "the lowest position that stands at the gate has its turn",
        rewritten(PROMOTE, (HEAD, "true")),
        a_lower_position_comes_late,
    ),
    "passed-is-set": Fault(
        "passed is set to the highest position that is over",
        rewritten(
            MOVE,
            (
                r"j\.position < coalesce\( ?\(SELECT.*?LIMIT 1\), 9223372036854775807\)",
                "j.state IN ('done', 'skipped')",
            ),
        ),
        a_lower_position_comes_late,
    ),
    "cancelled-head-is-crossed": Fault(
        "a cancelled job owes a strict gate nothing",
        rewritten(f"{PROMOTE}|{MOVE}", (DONE, BUT_CANCELLED)),
        a_cancelled_head,
    ),
    "hold-is-ignored": Fault(
        "a held job is promoted like any other",
        rewritten(PROMOTE, (r" AND w\.hold IS NULL", ""), (r" AND jobs\.hold IS NULL", "")),
        a_held_head,
    ),
    "everybody-takes-a-turn": Fault(
        "a pass waits for its turn at a strict gate that it, or its topic, has passed",
        rewritten(ENDS, (r"held\.position > gate\.passed AND .*? < gate\.ordinal", "true")),
        a_live_topic_comes_again,
    ),
    "claim-charges-nothing": Fault(
        "an attempt is charged when a stage says that it failed, not at the claim",
        rewritten(
            CLAIM,
            (
                r"attempts=\(jobs\.attempts \+ %\(attempts_1\)s::INTEGER\)",
                "attempts=(jobs.attempts + 0 * %(attempts_1)s::INTEGER)",
            ),
        ),
        a_job_that_kills_its_workers,
    ),
    "fences-are-used-again": Fault(
        "a job keeps its fence from one reservation to the next",
        rewritten(CLAIM, (r"nextval\('fences'\)", "jobs.id")),
        a_job_that_kills_its_workers,
    ),
    "lease-of-the-workers-clock": Fault(
        "a lease is computed from the clock of a worker, which is an hour slow",
        _lease_of(lambda: datetime.now(UTC) - timedelta(hours=1)),
        a_lease_of_the_servers_clock,
    ),
    "lease-of-a-fast-clock": Fault(
        "a lease is computed from the clock of a worker, which is an hour fast",
        _lease_of(lambda: datetime.now(UTC) + timedelta(hours=1)),
        a_lease_of_the_servers_clock,
    ),
    "renew-ignores-token": Fault(
        "a heartbeat lengthens whatever lease its jobs have",
        rewritten(
            r"^WITH mine AS .*renewed",
            (r" AND j\.token = held_in\.token", ""),
            (r" AND jobs\.token = mine\.token", ""),
            (r" AND r\.token = h\.token", ""),
        ),
        a_stale_heartbeat,
    ),
    "renew-waits": Fault(
        "a heartbeat waits for rows that somebody writes",
        rewritten(r"^WITH mine AS .*renewed", (r" SKIP LOCKED", "")),
        a_heartbeat_beside_a_locked_row,
    ),
    "revision-apart": Fault(
        "what an outcome brought is stored in a transaction of its own",
        replaced(Acknowledging, "_acknowledge", _apart),
        a_session_that_ends_before_its_commit,
    ),
    "body-is-run-again": Fault(
        "when the answer to a COMMIT is lost, the whole body is run again",
        replaced(Service, "_write", _resending),
        an_operator_without_answer,
    ),
    "missing-is-written": Fault(
        "an acknowledgement that found no row is taken for one whose answer was lost",
        replaced(Acknowledging, "_fates", _fates(Fate.WRITTEN)),
        a_late_answer,
    ),
    "missing-is-lost": Fault(
        "an acknowledgement whose answer was lost is taken for one that found another's job",
        replaced(Acknowledging, "_fates", _fates(Fate.LOST)),
        an_acknowledgement_without_answer,
    ),
    "acts-without-looking": Fault(
        "the ledger acts, whatever the target has there",
        replaced(LedgerService, "_act", _act_at_once),
        a_confirmation_that_is_lost,
    ),
    "ledger-asks-no-reservation": Fault(
        "an intent is confirmed by whoever has made it, reserved or not",
        replaced(LedgerService, "_reserved", lambda real: lambda self, connection, some, asked: None),
        a_late_confirmation,
    ),
    "no-self-fencing": Fault(
        "a worker relies on its lease until somebody tells it that it is lost",
        replaced(Holding, "ours", lambda real: lambda self: not self.lost),
        a_worker_stopped_past_its_lease,
    ),
    "pages-in-place": Fault(
        "pages are written where they stand",
        replaced(FilesTarget, "write", _in_place),
        a_reader_has_the_page_open,
    ),
    "slots-are-not-unique": Fault("the index over gate and slot is gone", _without_slot_index, two_jobs_in_one_slot),
    "select-then-insert": Fault(
        "a plan looks for what is there, and inserts the rest, without the lanes' locks",
        rewritten(r"^SELECT lanes\.id, .*FROM lanes .* FOR", (r" FOR NO KEY UPDATE", "")),
        two_plans_of_one_file,
    ),
    "skip-of-live-rows": Fault(
        "what is reserved may be skipped",
        rewritten(
            r"^WITH chosen AS .*'skipped'", (r"j\.state IN \('cancelled'", "j.state IN ('reserved', 'cancelled'")
        ),
        a_running_job_is_skipped,
    ),
    "move-looks-too-early": Fault(
        "a move believes the state that it read before it had the passes' locks",
        replaced(
            Places, "_turn", lambda real: lambda self, cn, gates, row, to: [real(self, cn, gates, row, to), None][1]
        ),
        a_running_topic_is_moved,
    ),
    "cancel-is-forgotten": Fault(
        "a cancel that was asked for is not looked at when the stage ends",
        rewritten(ENDS, (r"decided\.cancel_requested AND", "false AND")),
        a_running_job_is_cancelled,
    ),
    "claims-before-due": Fault(
        "the claim does not ask when a job is due",
        rewritten(CLAIM, (r" AND j\.run_at <= statement_timestamp\(\)", "")),
        a_retry_before_its_time,
    ),
    "claims-in-a-paused-lane": Fault(
        "the claim does not ask whether the lane is paused",
        rewritten(CLAIM, (r"coalesce\(lane\.state, 'active'\) = 'active'", "true")),
        a_retry_in_a_paused_lane,
    ),
    "retries-without-end": Fault(
        "a retry does not ask whether an attempt is left",
        rewritten(r"^WITH held AS .*'retry'", (r"held\.attempts >= held\.max_attempts", "false")),
        the_last_attempt_is_retried,
    ),
}
"""By name."""

EQUIVALENT: dict[str, Fault] = {
    "claim-does-not-guard": Fault(
        "the claim's write does not ask for the state: the search holds the rows' locks, and judged them under these",
        rewritten(CLAIM, (r"(jobs\.id = chosen\.id) AND jobs\.state IS NOT DISTINCT FROM 'pending'", r"\1")),
        two_claims_at_once,
    ),
    "claim-does-not-lock": Fault(
        "the claim's search locks nothing: its write waits, and judges the row anew",
        rewritten(CLAIM, (r" FOR NO KEY UPDATE OF j SKIP LOCKED", "")),
        two_claims_at_once,
    ),
}
"""Two walls, one behind the other: each alone keeps the promise."""
