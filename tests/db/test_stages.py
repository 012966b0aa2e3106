"""Stages come and go: a run adds, a person takes out and brings back, jobs move on, and no order is broken."""

import pytest

from pipeline.errors import NotFound, Refused
from pipeline.service.acknowledging import Verb
from pipeline.service.audit import Audit
from pipeline.service.order import Differences, Retired, StageSpec
from pipeline.states import JobState as S
from tests.conftest import SCHEMA
from tests.db.conftest import Sql
from tests.factories import ACTOR, STAGES, Factory, draft_of

TRANSLATE = StageSpec("translate", None, 3)
WITH_TRANSLATE = (*STAGES[:2], TRANSLATE, STAGES[2])
STRICT_TRANSLATE = (*STAGES[:2], StageSpec("translate", 1, 3), STAGES[2])
WIDE_TRANSLATE = (*STAGES[:2], StageSpec("translate", 2, 3), STAGES[2])


def stages_of(sql: Sql, job_id: int) -> list[str]:
    """The stages at which a job was done, in order."""
    rows = sql("SELECT stage FROM attempts WHERE job_id = :id AND outcome = 'done' ORDER BY fence", id=job_id)
    return [row.stage for row in rows]


def retire(make: Factory, name: str = "translate") -> Retired:
    return make.services.planning.retire(make.site_id, name, actor=ACTOR, reason="no more")


def finish(make: Factory, *stages: str) -> None:
    """Bring every job through these stages, one at a time where they are strict."""
    for stage in stages:
        while claims := make.claim(stage, 99):
            for claim in claims:
                make.say(claim, draft=draft_of(claim) if stage == "generate" else None)


# A stage comes.


def test_a_new_stage_meets_those_that_have_not_passed_its_place(make: Factory, sql: Sql) -> None:
    """What stands before it goes through it; what stands behind it, or is done, does not."""
    done = make.advance_to("publish", lane="done")[0]
    finish(make, "publish")
    behind = make.advance_to("publish", lane="behind")[0]
    before = make.advance_to("validate", lane="before")[0]

    make.site(stages=WITH_TRANSLATE)
    finish(make, "validate", "translate", "publish")

    assert stages_of(sql, done) == stages_of(sql, behind) == ["generate", "validate", "publish"]
    assert stages_of(sql, before) == ["generate", "validate", "translate", "publish"]
    assert make.job_ids("done") == [done]  # a stage more is by itself no new pass


@pytest.mark.parametrize("specs", [STRICT_TRANSLATE, WIDE_TRANSLATE])
def test_a_limited_stage_that_is_new_has_its_gates(specs: tuple[StageSpec, ...], make: Factory, sql: Sql) -> None:
    """Each lane gets one, behind what is over; those who come take their turns."""
    ids = make.advance_to("validate", count=4)
    make.say(make.claim("validate")[0])

    make.site(stages=specs)
    finish(make, "validate")

    width = specs[2].width
    assert width is not None
    at = [make.job(i) for i in ids]
    assert [j.stage for j in at] == ["publish", "translate", "translate", "translate"]
    # The first owes the new gate nothing more once it is published; a strict one waits for that.
    assert sum(j.state == S.PENDING for j in at[1:]) == (0 if width == 1 else 2)
    finish(make, "publish", "translate", "publish", "translate", "publish", "translate", "publish")
    assert {make.state(i) for i in ids} == {S.DONE}


def test_a_run_of_an_older_release_takes_nothing_out(make: Factory, sql: Sql) -> None:
    """However often older and newer releases register, in whatever order: stages stay, and so do their jobs."""
    make.site(stages=WITH_TRANSLATE)
    job_id = make.advance_to("translate")[0]
    before = sql("SELECT * FROM stages ORDER BY ordinal")

    for specs in (STAGES, WITH_TRANSLATE, STAGES):
        make.site(stages=specs)

    assert sql("SELECT * FROM stages ORDER BY ordinal") == before
    assert make.job(job_id).stage == "translate"
    assert sql("SELECT 1 FROM events") == []


def test_a_new_stage_finds_its_place_beside_one_that_is_unknown_here(make: Factory, sql: Sql) -> None:
    """Two releases add each their own: both are kept, between the same neighbours, whoever comes first."""
    make.site(stages=WITH_TRANSLATE)
    make.site(stages=(*STAGES[:2], StageSpec("spell", None, 5), STAGES[2]))
    make.site(stages=WITH_TRANSLATE)

    names = [row.name for row in sql("SELECT name FROM stages WHERE state = 'active' ORDER BY ordinal")]
    assert (names[:2], set(names[2:4]), names[4:]) == (["generate", "validate"], {"spell", "translate"}, ["publish"])


def test_what_a_release_should_know_is_told(make: Factory) -> None:
    """Stages that it lacks, stages that were taken out, widths that are not the database's."""
    make.site(stages=WITH_TRANSLATE)
    planning = make.services.planning
    assert planning.differences(make.site_id, WITH_TRANSLATE) == Differences()
    retire(make, "validate")

    found = planning.differences(make.site_id, (STAGES[0], STAGES[1], StageSpec("publish", 3, 5)))

    assert found == Differences(unknown=("translate",), retired=("validate",), widths=(("publish", 1, 3),))


# A stage goes.


def test_jobs_of_a_retired_stage_move_on(make: Factory, sql: Sql) -> None:
    """Those that are pending or wait go to the next stage, each with an event; one turn after the other there."""
    make.site(stages=WITH_TRANSLATE)
    ids = make.advance_to("translate", count=3)
    claim = next(c for c in make.claim("translate", 3) if c.job_id == ids[1])
    for held in sql("SELECT id FROM jobs WHERE state = 'reserved'"):
        if held.id != claim.job_id:
            make.expire(held.id)
    make.services.work.reap([e for e in make.services.work.expired() if e.over])
    make.say(claim, Verb.RETRY, error_class="later")

    assert retire(make) == Retired("translate", "publish", 3)

    at = [make.job(i) for i in ids]
    assert [(j.stage, j.state, j.attempts, j.max_attempts, j.retry_at, j.error_class) for j in at] == [
        ("publish", "pending", 0, 5, None, None), ("publish", "waiting", 0, 5, None, None),
        ("publish", "waiting", 0, 5, None, None),
    ]  # fmt: skip
    noted = sql("SELECT job_id, verb, from_state, actor, reason FROM events WHERE job_id IS NOT NULL ORDER BY job_id")
    assert [tuple(row) for row in noted] == [
        (i, "retire", "pending", ACTOR, "translate was retired; on to publish") for i in ids
    ]
    site_wide = sql("SELECT verb, actor, reason, details FROM events WHERE job_id IS NULL")
    assert [tuple(row) for row in site_wide] == [("retire", ACTOR, "no more", {"stage": "translate"})]
    finish(make, "publish")
    assert {make.state(i) for i in ids} == {S.DONE}


@pytest.mark.parametrize("specs", [STRICT_TRANSLATE, WIDE_TRANSLATE])
def test_a_gate_is_left_and_the_next_one_entered(specs: tuple[StageSpec, ...], make: Factory, sql: Sql) -> None:
    """Slots are given back there and taken here; the head goes first."""
    make.site(stages=specs)
    lanes = {lane: make.advance_to("translate", lane=lane, count=3) for lane in ("a", "b")}

    assert retire(make).moved == 6

    for ids in lanes.values():
        assert [make.job(i).state for i in ids] == ["pending", "waiting", "waiting"]
    assert sql("SELECT count(*) FROM jobs j JOIN gates g ON g.id = j.gate_id WHERE g.stage <> 'publish'") == [(0,)]
    finish(make, "publish")
    assert {make.state(i) for ids in lanes.values() for i in ids} == {S.DONE}


def test_a_reserved_job_is_finished_by_its_own_worker(make: Factory) -> None:
    """Its reservation holds, and it goes to the stage that follows."""
    make.site(stages=WITH_TRANSLATE)
    job_id = make.advance_to("translate")[0]
    claim = make.claim("translate")[0]

    assert retire(make).moved == 0
    assert make.state(job_id) is S.RESERVED
    make.say(claim)

    assert (make.job(job_id).stage, make.state(job_id)) == ("publish", S.PENDING)


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE, Verb.RELEASE, Verb.HOLD])
def test_what_comes_back_to_a_retired_stage_moves_on_with_upkeep(verb: Verb, make: Factory, engine: object) -> None:
    """A worker that is not done with it, too: nobody is left behind. A hold is kept, for a person has to approve."""
    make.site(stages=WITH_TRANSLATE)
    job_id = make.advance_to("translate")[0]
    claim = make.claim("translate")[0]
    retire(make)
    make.say(claim, verb, hold="look at it" if verb is Verb.HOLD else None)
    assert make.job(job_id).stage == "translate"
    assert Audit(make.engine, SCHEMA).violations() == []

    assert make.services.planning.move_on(make.site_id) == 1

    job = make.job(job_id)
    assert (job.stage, job.state) == ("publish", "waiting" if verb is Verb.HOLD else "pending")
    assert job.hold == ("look at it" if verb is Verb.HOLD else None)
    assert make.services.planning.move_on(make.site_id) == 0


@pytest.mark.parametrize("state", [S.FAILED, S.REPAIR, S.CANCELLED])
def test_what_needs_a_person_stays_and_goes_on_from_there(state: S, make: Factory, sql: Sql) -> None:
    """Its lane halts as before; requeued without a stage, it begins at the next one with its attempts."""
    make.site(stages=STRICT_TRANSLATE)
    ids = make.advance_to("translate", count=2)
    if state is S.CANCELLED:
        make.services.operate.cancel([ids[0]], actor=ACTOR)
    else:
        make.say(make.claim("translate")[0], Verb.FAIL if state is S.FAILED else Verb.REPAIR)
    retire(make)
    assert [(make.job(i).stage, make.state(i)) for i in ids] == [("translate", state), ("publish", S.WAITING)]

    moved = make.services.operate.requeue([ids[0]], actor=ACTOR, grant=2)

    assert [(m.to_state, m.stage) for m in moved] == [(S.PENDING, "publish")]
    assert (make.job(ids[0]).attempts, make.job(ids[0]).max_attempts) == (0, 2)
    finish(make, "publish")
    assert {make.state(i) for i in ids} == {S.DONE}


def test_requeue_says_to_name_a_stage_when_none_follows(make: Factory) -> None:
    """After the last stage was taken out there is nothing to go on to."""
    job_id = make.advance_to("publish")[0]
    make.say(make.claim("publish")[0], Verb.FAIL)
    retire(make, "publish")

    with pytest.raises(Refused, match="name one with --stage"):
        make.services.operate.requeue([job_id], actor=ACTOR)

    make.services.operate.requeue([job_id], actor=ACTOR, stage="validate")
    assert make.job(job_id).stage == "validate"


def test_the_last_stage_is_not_retired_under_its_jobs(make: Factory, sql: Sql) -> None:
    """They could only be called done, though they were not."""
    job_id = make.advance_to("publish")[0]
    before = sql("SELECT * FROM stages ORDER BY ordinal")

    with pytest.raises(Refused, match="'publish' is the last one, and 1 unfinished job stand"):
        retire(make, "publish")

    assert sql("SELECT * FROM stages ORDER BY ordinal") == before
    make.services.operate.skip([job_id], actor=ACTOR)
    assert retire(make, "publish") == Retired("publish", None, 0)
    other = make.advance_to("validate", lane="other")[0]
    finish(make, "validate")
    assert make.state(other) is S.DONE


def test_retire_refuses_what_makes_no_sense(make: Factory) -> None:
    """The only stage, and one that is not there."""
    make.site(stages=STAGES[:1])

    with pytest.raises(Refused, match="the only one"):
        retire(make, "generate")
    with pytest.raises(NotFound, match="no stage 'translate' in this site; there is: generate"):
        retire(make)


def test_a_dry_run_writes_nothing(make: Factory, sql: Sql) -> None:
    """It says what would be done."""
    make.site(stages=WITH_TRANSLATE)
    make.advance_to("translate", count=2)
    before = sql("SELECT * FROM jobs ORDER BY id"), sql("SELECT * FROM stages ORDER BY ordinal")

    found = make.services.planning.retire(make.site_id, "translate", actor=ACTOR, dry_run=True)

    assert found == Retired("translate", "publish", 2)
    assert before == (sql("SELECT * FROM jobs ORDER BY id"), sql("SELECT * FROM stages ORDER BY ordinal"))
    assert sql("SELECT 1 FROM events") == []


def test_retiring_twice_is_retiring_once(make: Factory, sql: Sql) -> None:
    """The second time only moves on what came to stand there."""
    make.site(stages=WITH_TRANSLATE)
    make.advance_to("translate")
    retire(make)

    assert retire(make) == Retired("translate", "publish", 0)
    assert len(sql("SELECT 1 FROM events WHERE job_id IS NULL")) == 1


def test_a_retired_stage_comes_back_only_when_a_person_says_so(make: Factory) -> None:
    """Registering a PIPELINE that still has it brings nothing back; restore does, at the old place."""
    make.site(stages=WITH_TRANSLATE)
    retire(make)
    make.site(stages=WITH_TRANSLATE)
    stepped_over = make.advance_to("validate", lane="a")[0]
    finish(make, "validate")
    assert make.job(stepped_over).stage == "publish"

    make.services.planning.restore(make.site_id, "translate", actor=ACTOR)

    met = make.advance_to("validate", lane="b")[0]
    finish(make, "validate")
    assert make.job(met).stage == "translate"
    assert make.job(stepped_over).stage == "publish"
    with pytest.raises(Refused, match="is not retired"):
        make.services.planning.restore(make.site_id, "translate", actor=ACTOR)


def test_order_holds_while_a_strict_stage_comes_and_goes(make: Factory, sql: Sql) -> None:
    """Retired in the middle of its work and restored: each page is still published after the one before it."""
    make.site(stages=STRICT_TRANSLATE)
    ids = make.advance_to("translate", count=6)
    make.say(make.claim("translate")[0])
    retire(make)
    make.say(make.claim("publish")[0])
    make.services.planning.restore(make.site_id, "translate", actor=ACTOR)
    late = make.plan(count=8)
    finish(make, "generate", "validate")
    for _ in range(9):
        finish(make, "translate", "publish")

    assert late[:6] == ids
    assert {make.state(i) for i in late} == {S.DONE}
    released = sql("SELECT job_id FROM attempts WHERE stage = 'publish' AND outcome = 'done' ORDER BY fence")
    assert [row.job_id for row in released] == late


def test_more_jobs_than_a_batch_move_on(make: Factory, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several transactions, each whole by itself."""
    monkeypatch.setattr("pipeline.service.order.MOVED_AT_ONCE", 3)
    make.site(stages=WITH_TRANSLATE)
    make.advance_to("translate", count=10)

    assert retire(make).moved == 10


def test_a_stage_that_follows_a_removed_one_finds_room(make: Factory, sql: Sql) -> None:
    """A new last stage does not collide with one that was taken out."""
    make.site()
    retire(make, "publish")

    make.site(stages=(*STAGES[:2], StageSpec("deploy", 1, 5)))

    assert [r.name for r in sql("SELECT name FROM stages WHERE state = 'active' ORDER BY ordinal")] == [
        "generate", "validate", "deploy"
    ]  # fmt: skip
