"""The audit, judged by planted faults: each invariant's query must catch its own."""

from dataclasses import dataclass

import pytest
from sqlalchemy import Connection, Engine, text

from pipeline.service.acknowledging import Verb
from pipeline.service.audit import MAX_ROWS, Audit
from pipeline.sql.audit import INVARIANTS
from tests.conftest import SCHEMA
from tests.factories import ACTOR, Factory

ATTEMPT = (
    "INSERT INTO attempts (fence, job_id, stage, round, token, worker, reserved_at, ended_at, outcome, charged)"
    " SELECT {values} FROM jobs WHERE id = {job}"
)


def attempt(
    job: str, *, fence: str = "nextval('fences')", token: str = "gen_random_uuid()", outcome: str = "retry"
) -> str:
    at = "clock_timestamp()"
    values = f"{fence}, id, stage, round, {token}, 'w', {at}, {at}, '{outcome}', {outcome == 'done'}"
    return ATTEMPT.replace("{values}", values).replace("{job}", "{" + job + "}")


@dataclass(frozen=True)
class Fault:
    """What is done behind the product's back; the jobs of the scene stand in braces."""

    invariant: str
    what: str
    statements: tuple[str, ...]


def fault(invariant: str, what: str, *statements: str) -> Fault:
    return Fault(invariant, what, statements)


RESERVED = (
    "UPDATE jobs SET state = 'reserved', slot = {slot}, attempts = 1, token = gen_random_uuid(),"
    " fence = nextval('fences'), reserved_by = 'w', reserved_at = {at}, lease_expires_at = {at} + interval '1 minute'"
    " WHERE id = {job}"
)
NOW = "clock_timestamp()"
BEFORE = "clock_timestamp() - interval '1 second'"
STRICT_NOW = "UPDATE gates SET strict_since = clock_timestamp() WHERE stage = 'publish'"


def reserved(job: str, *, slot: int, at: str = NOW) -> str:
    return RESERVED.replace("{slot}", str(slot)).replace("{at}", at).replace("{job}", "{" + job + "}")


EVENT = "INSERT INTO events (job_id, verb, from_state, to_state, actor) VALUES ({job}, {said}, 'x')"


def event(said: str, job: str = "{third}") -> str:
    return EVENT.replace("{job}", job).replace("{said}", said)


SCHEDULE = "INSERT INTO schedules (site_id, name, rule) SELECT id, 'nightly', '{{}}' FROM sites"
TICK = "INSERT INTO schedule_ticks (schedule_id, due_at) SELECT id, {} FROM schedules"

FAULTS = (
    fault("I1", "two in flight at a strict gate", "UPDATE jobs SET state = 'pending', slot = 2 WHERE id = {third}"),
    fault("I1", "two reserved at a gate that was strict by then", reserved("third", slot=2)),
    fault(
        "I1",
        "one pending beside the surplus of a narrowing",
        STRICT_NOW,
        "UPDATE jobs SET state = 'pending', slot = 2 WHERE id = {third}",
    ),
    fault("I1", "at a gate that is wide open", "UPDATE gates SET width = NULL"),
    fault(
        "I1",
        "more pending than the width of a wide gate",
        "UPDATE gates SET width = 2",
        "UPDATE jobs SET state = 'pending', slot = 2 WHERE id = {third}",
        "UPDATE jobs SET state = 'pending', slot = 3 WHERE id = {fourth}",
    ),
    fault(
        "I2",
        "a reserved job without token",
        "ALTER TABLE jobs DROP CONSTRAINT ck_jobs_reserved",
        "UPDATE jobs SET token = NULL WHERE id = {reserved}",
    ),
    fault(
        "I2",
        "a waiting job with a token",
        "ALTER TABLE jobs DROP CONSTRAINT ck_jobs_reserved",
        "UPDATE jobs SET token = gen_random_uuid() WHERE id = {third}",
    ),
    fault("I3", "a fence live and ended", attempt("reserved", fence="fence")),
    fault("I3", "a fence live twice", "UPDATE jobs SET fence = (SELECT max(fence) FROM jobs) WHERE state = 'reserved'"),
    fault(
        "I3",
        "a fence ended twice",
        "ALTER TABLE attempts DROP CONSTRAINT pk_attempts",
        attempt("done", fence="(SELECT max(fence) FROM attempts)"),
    ),
    fault(
        "I3",
        "a fence that is nowhere",
        "DELETE FROM attempts WHERE fence = (SELECT min(fence) FROM revisions)",
    ),
    fault(
        "I3",
        "a token used twice by one job",
        "UPDATE attempts SET token = (SELECT min(token::text)::uuid FROM attempts WHERE job_id = {done})"
        " WHERE job_id = {done}",
    ),
    fault("I4", "an ended attempt with the live token", attempt("reserved", token="token")),
    fault("I5", "done without an accepted attempt", "DELETE FROM attempts WHERE job_id = {done} AND stage = 'publish'"),
    fault("I5", "done twice at the last stage", attempt("done", outcome="done")),
    fault("I5", "an attempt after the accepted one", attempt("done")),
    fault("I6", "an attempt counted that is not on record", "UPDATE jobs SET attempts = 3 WHERE id = {reserved}"),
    fault("I6", "an attempt on record that is not counted", attempt("third", outcome="done")),
    fault(
        "I6",
        "more attempts than are permitted",
        "ALTER TABLE jobs DROP CONSTRAINT ck_jobs_attempts",
        "UPDATE jobs SET max_attempts = 0 WHERE id = {reserved}",
    ),
    fault("I7", "promoted behind a failed head", "UPDATE jobs SET state = 'pending', slot = 1 WHERE id = {behind}"),
    fault(
        "I7",
        "released behind a failed head",
        attempt("behind", outcome="done"),
        "UPDATE jobs SET state = 'done', gate_id = NULL, cleared = 3000, finished_at = clock_timestamp()"
        " WHERE id = {behind}",
    ),
    fault("I7", "reserved behind a failed head", reserved("behind", slot=1)),
    fault(
        "I7",
        "promoted behind a failed head after a narrowing",
        "UPDATE jobs SET state = 'pending', slot = 1 WHERE id = {behind}",
        STRICT_NOW,
    ),
    fault(
        "I8",
        "begun before the position in front was released",
        "UPDATE attempts SET ended_at = ended_at + interval '1 hour' WHERE job_id = {done} AND stage = 'publish'",
        "UPDATE jobs SET finished_at = finished_at + interval '1 hour' WHERE id = {done}",
    ),
    fault("I9", "passed stays behind", "UPDATE gates SET passed = 0 WHERE passed > 0"),
    fault("I9", "passed runs ahead", "UPDATE gates SET passed = 3 WHERE passed > 0"),
    fault("I9", "passed beyond the lane", "UPDATE gates SET passed = 99 WHERE passed > 0"),
    fault("I10", "the failed head hides behind another", "UPDATE jobs SET position = 77 WHERE id = {failed}"),
    fault(
        "I11",
        "done without a finish time",
        "ALTER TABLE jobs DROP CONSTRAINT ck_jobs_finished",
        "UPDATE jobs SET finished_at = NULL WHERE id = {done}",
    ),
    fault("I11", "done and then not", "UPDATE jobs SET state = 'repair', finished_at = NULL WHERE id = {done}"),
    fault("I11", "skipped and then not", "UPDATE jobs SET state = 'repair', finished_at = NULL WHERE id = {skipped}"),
    fault("I11", "an attempt after the end", attempt("done")),
    fault(
        "I11",
        "an event from a final state",
        "INSERT INTO events (job_id, verb, from_state, to_state, actor)"
        " VALUES ({done}, 'requeue', 'done', 'done', 'x')",
    ),
    fault(
        "I12",
        "a generated revision from nowhere",
        "UPDATE revisions SET fence = NULL WHERE id = (SELECT min(id) FROM revisions)",
    ),
    fault(
        "I12",
        "a revision from an attempt that was not accepted",
        "UPDATE attempts SET outcome = 'retry' WHERE fence = (SELECT min(fence) FROM revisions)",
    ),
    fault(
        "I12",
        "an accepted attempt whose draft is lost",
        "UPDATE topics SET revision_id = NULL",
        "UPDATE publications SET live_revision = NULL, intent_revision = NULL",
        "DELETE FROM revisions WHERE id = (SELECT min(id) FROM revisions)",
    ),
    fault(
        "I13",
        "two unfinished passes of a topic",
        "DROP INDEX uq_jobs_topic_open",
        "INSERT INTO jobs (site_id, lane_id, topic_id, position, pass, stage, state, max_attempts)"
        " SELECT site_id, lane_id, topic_id, position, 2, stage, 'failed', 5 FROM jobs WHERE id = {third}",
    ),
    fault(
        "I13",
        "two topics of one slug",
        "ALTER TABLE topics DROP CONSTRAINT uq_topics_site_id_slug",
        "UPDATE topics SET slug = 'the-same' WHERE position < 3",
    ),
    fault(
        "I13",
        "a topic whose newest pass is gone",
        "DELETE FROM events WHERE job_id = {skipped}",
        "DELETE FROM jobs WHERE id = {skipped}",
    ),
    fault("I14", "a verb that does not leave this state", event("'requeue', 'pending', 'waiting'")),
    fault("I14", "a verb that does not reach this state", event("'skip', 'failed', 'done'")),
    fault("I14", "a verb that nobody knows", event("'resurrect', 'failed', 'pending'")),
    fault("I14", "a verb of the house on a job", event("'pause', 'pending', 'waiting'")),
    fault("I14", "a verb without the state that it left", event("'skip', NULL, 'skipped'")),
    fault("I14", "a verb of jobs on no job", event("'skip', 'failed', 'skipped'", job="NULL")),
    fault("I15", "pending without an attempt left", "UPDATE jobs SET max_attempts = 0 WHERE id = {pending}"),
    fault(
        "I15",
        "pending and never due",
        "ALTER TABLE jobs DROP CONSTRAINT ck_jobs_finite",
        "UPDATE jobs SET run_at = 'infinity' WHERE id = {pending}",
    ),
    fault("I15", "pending at a stage that nobody knows", "UPDATE jobs SET stage = 'unheard-of' WHERE id = {pending}"),
    fault("I15", "waiting for no gate", "UPDATE jobs SET gate_id = NULL WHERE id = {fourth}"),
    fault("I15", "waiting for a turn long past", "UPDATE jobs SET cleared = 9999 WHERE id = {fourth}"),
    fault(
        "I15",
        "a head that nobody promoted",
        "UPDATE jobs SET state = 'skipped', gate_id = NULL, finished_at = clock_timestamp() WHERE id = {failed}",
    ),
    fault(
        "I16",
        "a lease that was over before it began",
        "UPDATE jobs SET lease_expires_at = reserved_at - interval '1 second' WHERE id = {reserved}",
    ),
    fault(
        "I16",
        "a lease for ever",
        "UPDATE jobs SET lease_expires_at = reserved_at + interval '2 days' WHERE id = {reserved}",
    ),
    fault(
        "I17",
        "two live pages of one path",
        "DROP INDEX uq_publications_live_path",
        "INSERT INTO publications (site_id, target, live_path, live_hash, live_remote, live_fence, first_at,"
        " changed_at, intent_path, intent_hash) SELECT site_id, target, live_path, live_hash, live_remote, live_fence,"
        " first_at, changed_at, 'elsewhere/', intent_hash FROM publications",
    ),
    fault(
        "I17",
        "two live pages of paths that readers take for one",
        "INSERT INTO publications (site_id, target, live_path, live_hash, live_remote, live_fence, first_at,"
        " changed_at, intent_path, intent_hash) SELECT site_id, target, upper(live_path), live_hash, live_remote,"
        " live_fence, first_at, changed_at, 'elsewhere/', intent_hash FROM publications",
    ),
    fault("I17", "a live page that no job confirmed", "UPDATE publications SET live_fence = NULL"),
    fault("I17", "a live page of a reservation that never was", "UPDATE publications SET live_fence = 999999"),
    fault(
        "I17",
        "a live page of another topic's job",
        "UPDATE publications SET live_fence = (SELECT fence FROM jobs WHERE id = {reserved})",
    ),
    fault(
        "I17",
        "a page confirmed when the token was gone",
        "UPDATE publications SET changed_at = changed_at + interval '1 hour'",
    ),
    fault(
        "I17",
        "an intent under a token that nobody had",
        "UPDATE publications SET intent_token = gen_random_uuid(), intent_fence = live_fence, intent_at = now()",
    ),
    fault(
        "I18",
        "a tick that fired twice",
        SCHEDULE,
        "ALTER TABLE schedule_ticks DROP CONSTRAINT pk_schedule_ticks",
        TICK.format("now()"),
        TICK.format("now()"),
    ),
    fault(
        "I18",
        "a tick of no schedule",
        "ALTER TABLE schedule_ticks DROP CONSTRAINT fk_schedule_ticks_schedule_id_schedules",
        "INSERT INTO schedule_ticks (schedule_id, due_at) VALUES (77, now())",
    ),
    fault("I18", "a tick at no time", SCHEDULE, TICK.format("'-infinity'")),
    fault("I18", "a tick before it was due", SCHEDULE, TICK.format("now() + interval '1 hour'")),
)


@pytest.fixture(scope="module")
def scene(scenery: Factory) -> dict[str, int]:
    """One job in every situation: a lane that moves, one that is halted, one that is generated and skipped."""
    make = scenery
    done, reserved, third, fourth = make.advance_to("publish", count=4)
    first = make.claim("publish")[0]
    make.publish(first)
    make.say(first)
    make.claim("publish")
    failed, behind = make.advance_to("publish", lane="halted", count=2)
    make.say(make.claim("publish")[0], Verb.FAIL, error="no")
    pending, skipped, _ = make.plan(lane="young", count=3)
    make.services.operate.skip([skipped], actor=ACTOR)
    with make.engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.jobs SET priority = 3 WHERE id = {pending}"))
    make.claim("generate")
    return {
        "done": done, "reserved": reserved, "third": third, "fourth": fourth,
        "failed": failed, "behind": behind, "pending": pending, "skipped": skipped,
    }  # fmt: skip


def broken(connection: Connection) -> set[str]:
    """The invariants that do not hold in this transaction."""
    return {name for name, (_, query) in INVARIANTS.items() if connection.execute(text(query)).rowcount}


def test_the_audit_is_complete() -> None:
    """I1 to I18, in their order."""
    assert list(INVARIANTS) == [f"I{n}" for n in range(1, 19)]


def test_every_invariant_has_a_planted_fault() -> None:
    """No query of the audit goes unproved."""
    assert {f.invariant for f in FAULTS} == set(INVARIANTS)


@pytest.mark.parametrize("planted", FAULTS, ids=lambda f: f"{f.invariant}-{f.what.replace(' ', '-')}")
def test_each_query_catches_its_own_fault(planted: Fault, scenery: Factory, scene: dict[str, int]) -> None:
    """A fault that no constraint was left to refuse is found by the query of its invariant; before it, nothing is."""
    with scenery.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        assert broken(connection) == set()

        for statement in planted.statements:
            assert connection.execute(text(statement.format(**scene))).rowcount != 0, statement

        assert planted.invariant in broken(connection)
        transaction.rollback()


def test_the_surplus_of_a_narrowing_breaks_nothing(scenery: Factory, scene: dict[str, int]) -> None:
    """Two that were reserved before their gate became strict may both finish, be the one behind the other or not."""
    with scenery.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        for statement in (reserved("third", slot=2, at=BEFORE), reserved("behind", slot=1, at=BEFORE), STRICT_NOW):
            connection.execute(text(statement.format(**scene)))

        assert broken(connection) == set()
        transaction.rollback()


def test_an_untouched_database_breaks_nothing(scenery: Factory, scene: dict[str, int]) -> None:
    """Work, trouble and waiting by the product's own verbs leave every invariant whole."""
    assert Audit(scenery.engine, schema=SCHEMA).violations() == []


@pytest.mark.plants_faults
def test_a_violation_names_the_invariant_and_the_row(engine: Engine, make: Factory) -> None:
    """What is found says which promise is broken, in words, and where."""
    job_id = make.plan(count=3)[1]
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.jobs SET attempts = 2 WHERE id = {job_id}"))

    found = Audit(engine, schema=SCHEMA).violations()

    assert [(v.invariant, v.row["job_id"]) for v in found] == [("I6", job_id)]
    assert "attempts charged" in found[0].meaning


@pytest.mark.plants_faults
def test_a_flood_of_violations_is_cut(engine: Engine, make: Factory) -> None:
    """A broken database of a million rows is reported by a handful of each invariant."""
    make.plan(count=MAX_ROWS + 5)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.jobs SET attempts = max_attempts"))

    found = Audit(engine, schema=SCHEMA).violations()

    assert {name: sum(v.invariant == name for v in found) for name in ("I6", "I15")} == {
        "I6": MAX_ROWS,
        "I15": MAX_ROWS,
    }


def test_the_audit_cannot_write(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction is read-only, and its search path ends with it."""
    asked = {"X": ("the transaction", "SELECT current_setting('transaction_read_only') AS ro, current_schema() AS at")}
    monkeypatch.setattr("pipeline.service.audit.INVARIANTS", asked)

    found = Audit(engine, schema=SCHEMA).violations()

    assert found[0].row == {"ro": "on", "at": SCHEMA}
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT current_setting('search_path')")) == '"$user", public'
