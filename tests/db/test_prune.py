"""Prune: what goes, what stays, and that nobody misses it."""

from datetime import timedelta
from uuid import uuid4

import pytest

from pipeline.clock import FrozenClock
from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.audit import Audit
from pipeline.service.prune import Prune, Pruned
from pipeline.states import JobState
from tests.conftest import SCHEMA
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory, draft_of, finding

pytestmark = pytest.mark.guarantee("R28")

OLD = timedelta(days=90)
TABLES = ("jobs", "attempts", "events", "findings", "revisions", "topics", "publications")


@pytest.fixture
def later(make: Factory, clock: FrozenClock) -> Prune:
    """Prune as it would be a hundred days from now."""
    clock.advance(timedelta(days=100))
    return Prune(make.engine, clock)


def prune(later: Prune, make: Factory, **more: bool) -> Pruned:
    return later.prune(make.site_id, OLD, actor=ACTOR, **more)


def again(make: Factory, *, count: int = 1) -> list[int]:
    """Plan the same topics with other rows: a new pass of each that is over."""
    rows = [make.row("lane", n, input_hash=uuid4().hex) for n in range(1, count + 1)]
    make.services.planning.plan(make.site_id, rows)
    return make.job_ids()


def finish(make: Factory) -> None:
    """Bring all that is planned to its end, by every stage, with a page for each."""
    for stage in ("generate", "validate", "publish"):
        while claims := make.claim(stage):
            (claim,) = claims
            if stage == "publish":
                make.publish(claim)
            make.say(claim, draft=draft_of(claim) if stage == "generate" else None)


def counts(sql: Sql) -> dict[str, int]:
    return {name: sql(f"SELECT count(*) FROM {name}")[0][0] for name in TABLES}


def passes(sql: Sql) -> list[tuple[int, int]]:
    """``(position, pass)`` of every job that is left."""
    return [tuple(row) for row in sql("SELECT position, pass FROM jobs WHERE topic_id IS NOT NULL ORDER BY 1, 2")]


def test_old_passes_go_and_the_newest_stays(make: Factory, later: Prune, sql: Sql) -> None:
    """With their attempts; drafts, pages and topics are no passes, and stay."""
    make.plan(count=2)
    finish(make)
    again(make, count=2)
    finish(make)
    again(make, count=1)
    finish(make)
    before = counts(sql)

    gone = prune(later, make)

    assert gone == Pruned(passes=3, attempts=9)
    assert passes(sql) == [(1, 3), (2, 2)]
    after = counts(sql)
    assert before["jobs"] - after["jobs"] == 3
    assert before["attempts"] - after["attempts"] == 9
    assert [after[name] for name in ("revisions", "topics", "publications")] == [5, 2, 2]
    assert Audit(make.engine, SCHEMA).violations() == []


def test_what_is_young_stays(make: Factory, sql: Sql) -> None:
    """Age is counted from the end of the pass, by the server's clock."""
    make.plan()
    finish(make)
    again(make)

    assert make.services.prune.prune(make.site_id, OLD, actor=ACTOR) == Pruned()
    assert passes(sql) == [(1, 1), (1, 2)]
    assert sql("SELECT count(*) FROM events") == [(0,)]


@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.DONE, JobState.SKIPPED}))
def test_nothing_unfinished_is_ever_taken(make: Factory, later: Prune, sql: Sql, state: JobState) -> None:
    """Not even behind a topic's newest pass: a row in the wrong state is left to people."""
    job_id = make.in_state(state)
    before = counts(sql)
    sql("UPDATE topics SET pass = 2")

    gone = prune(later, make)

    sql("UPDATE topics SET pass = 1")
    assert gone == Pruned()
    assert counts(sql) == before
    assert make.state(job_id) is state


def test_skipped_passes_go_with_the_events_that_tell_of_them(make: Factory, later: Prune, sql: Sql) -> None:
    """And with what their attempts found."""
    (job_id,) = make.plan()
    claim = make.claim("generate")[0]
    make.say(claim, Verb.REJECT, findings=[finding(), finding("other-rule")])
    make.services.operate.cancel([job_id], actor=ACTOR)
    make.services.operate.skip([job_id], actor=ACTOR)
    again(make)
    make.claim("generate")

    assert prune(later, make) == Pruned(passes=1, attempts=1, events=2, findings=2)
    assert passes(sql) == [(1, 2)]
    assert sql("SELECT verb FROM events") == [("prune",)]
    assert sql("SELECT count(*) FROM findings") == [(0,)]


def test_a_strict_gate_keeps_what_it_has_not_passed(make: Factory, later: Prune, sql: Sql) -> None:
    """A pass in front of a gate stays, whoever has followed it: only what lies behind goes."""
    first, second = make.plan(count=2)
    make.services.operate.skip([second], actor=ACTOR)
    make.services.planning.plan(make.site_id, [make.row("lane", 2, input_hash="another")])
    assert passes(sql) == [(1, 1), (2, 1), (2, 2)]

    assert prune(later, make) == Pruned()

    make.services.operate.skip([first], actor=ACTOR)
    sql("UPDATE gates SET width = NULL")
    assert prune(later, make).passes == 1
    sql("UPDATE gates SET width = 1")


def test_nothing_is_planned_again_after_a_prune(make: Factory, later: Prune, sql: Sql) -> None:
    """That a topic was planned is a fact of its row, not of its passes."""
    make.plan(count=2)
    finish(make)
    again(make, count=2)
    finish(make)
    rows = [make.row("lane", n, input_hash=sql("SELECT input_hash FROM topics WHERE position = :n", n=n)[0][0])
            for n in (1, 2)]  # fmt: skip
    prune(later, make)
    before = counts(sql)

    make.services.planning.plan(make.site_id, rows)

    assert counts(sql) == before
    assert make.claim("generate") == []


def test_one_event_a_site_adds_everything_up(
    make: Factory, later: Prune, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows with each batch, so that it is true whenever a prune is stopped; progress is told by the way."""
    monkeypatch.setattr("pipeline.service.prune.ROWS", 8)
    monkeypatch.setattr("pipeline.service.prune.WINDOW", 2)
    make.plan(count=5)
    finish(make)
    again(make, count=5)
    told: list[int] = []

    gone = later.prune(make.site_id, OLD, actor=ACTOR, reason="room", progress=lambda done: told.append(done.passes))

    assert gone == Pruned(passes=5, attempts=15)
    assert told == [2, 4, 5]
    events = sql("SELECT verb, actor, reason, site_id, job_id, details FROM events")
    assert [tuple(e[:5]) for e in events] == [("prune", ACTOR, "room", make.site_id, None)]
    details = events[0].details
    assert {name: details[name] for name in ("passes", "assemblies", "attempts", "events", "findings")} == {
        "passes": 5, "assemblies": 0, "attempts": 15, "events": 0, "findings": 0
    }  # fmt: skip
    assert details["older_than_seconds"] == OLD.total_seconds()
    assert prune(later, make) == Pruned()
    assert sql("SELECT count(*) FROM events") == [(1,)]


def test_no_transaction_takes_more_rows_than_it_may(
    make: Factory, later: Prune, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass with more rows than that goes alone, and whole."""
    monkeypatch.setattr("pipeline.service.prune.ROWS", 3)
    make.plan(count=2)
    finish(make)
    again(make, count=2)
    told: list[Pruned] = []

    later.prune(make.site_id, OLD, actor=ACTOR, progress=told.append)

    assert told == [Pruned(passes=1, attempts=3), Pruned(passes=2, attempts=6)]


def test_a_dry_run_counts_and_writes_nothing(make: Factory, later: Prune, sql: Sql) -> None:
    """What it counts is what a prune then takes."""
    job_id, _ = make.plan(count=2)
    make.say(make.claim("generate")[0], Verb.REJECT, findings=[finding()])
    make.services.operate.cancel([job_id], actor=ACTOR)
    make.services.operate.skip([job_id], actor=ACTOR)
    finish(make)
    again(make, count=2)
    before = counts(sql)

    would = prune(later, make, dry_run=True)

    assert counts(sql) == before
    assert would.passes == 2
    assert prune(later, make) == would


def test_old_assemblies_go_and_the_newest_stays(make: Factory, later: Prune, sql: Sql) -> None:
    """A site's own jobs have no topic; its newest one shows what became of the last assembly."""
    make.site()
    for _ in range(3):
        make.services.work.touch(make.site_id)
        (claim,) = make.claim("assemble")
        make.services.work.acknowledge([Ack(claim, Verb.ADVANCE, built=(99, ""))])
    newest = sql("SELECT max(id) FROM jobs")[0][0]

    assert prune(later, make) == Pruned(assemblies=2, attempts=2)
    assert sql("SELECT id FROM jobs") == [(newest,)]


def test_the_other_sites_are_left_alone(make: Factory, later: Prune, sql: Sql) -> None:
    """One site at a time."""
    make.plan()
    finish(make)
    again(make)
    other = make.site("other")
    before = counts(sql)

    assert later.prune(other, OLD, actor=ACTOR) == Pruned()
    assert later.prune(other + 1, OLD, actor=ACTOR) == Pruned()
    assert counts(sql) == before


def test_what_a_prune_took_is_missed_by_no_invariant(make: Factory, later: Prune, sql: Sql) -> None:
    """A page and a draft whose pass is gone are known by the event; what nobody pruned is still a fault."""
    make.plan(count=2)
    finish(make)
    (first, second) = again(make, count=2)
    make.services.operate.skip([first, second], actor=ACTOR)
    prune(later, make)
    audit = Audit(make.engine, SCHEMA)
    assert audit.violations() == []

    sql("UPDATE events SET details = details || '{\"fence\": 1}' WHERE verb = 'prune'")

    assert {v.invariant for v in audit.violations()} == {"I3", "I12", "I17"}
    sql("UPDATE events SET details = details || '{\"fence\": 1000000}' WHERE verb = 'prune'")
