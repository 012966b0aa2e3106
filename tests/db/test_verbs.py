"""Every verb against every state, generated from the table of transitions: allowed moves arrive, all others change
nothing. And every target that the table declares is reached."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from pipeline.errors import LeaseLost, Refused
from pipeline.service.acknowledging import Ack, Fate, Settled, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Expired
from pipeline.sql import gates
from pipeline.states import TRANSITIONS, JobState
from pipeline.views import Claim
from tests.conftest import SCHEMA
from tests.db.conftest import Sql
from tests.factories import ACTOR, LEASE, STAGES, Factory, finding

S = JobState
WORKER_VERBS = tuple(verb.value for verb in Verb)
OPERATOR_VERBS = ("cancel", "requeue", "approve", "skip")
AFTER = StageSpec("after", None, 5)


def ack(claim: Claim, verb: str) -> Ack:
    """What a worker would plausibly say with this verb."""
    return Ack(
        claim,
        Verb(verb),
        delay=timedelta(seconds=1),
        hold="please look" if verb == "hold" else None,
        findings=(finding(),) if verb == "reject" else (),
        error_class="Odd" if verb in ("retry", "fail", "repair") else None,
    )


def promote(make: Factory) -> int:
    """Offer every gate's free slots; returns how many were taken."""
    with make.engine.begin() as connection:
        ids = list(connection.execute(text(f"SELECT id FROM {SCHEMA}.gates ORDER BY id")).scalars())
        connection.execute(gates.lock(wait=True), {"gates": ids})
        connection.execute(gates.move_passed(), {"gates": ids})
        return len(connection.execute(gates.promote(make.services.work._clock), {"gates": ids}).all())


def claim_of(make: Factory, job_id: int, *, token: Any = None) -> Claim:
    """The reservation that a job has, or had last; with a token that never was, if one is given."""
    job = make.job(job_id)
    with make.engine.begin() as connection:
        last = connection.execute(
            text(f"SELECT token, fence FROM {SCHEMA}.attempts WHERE job_id = :id ORDER BY fence DESC LIMIT 1"),
            {"id": job_id},
        ).one_or_none()
    held, fence = (job.token, job.fence) if job.token or not last else (last.token, last.fence)
    return Claim(
        job_id, "acme", job.site_id, job.stage, token or held, 0 if token else fence, 1, 5, False, LEASE
    )  # fmt: skip


def slug_of(make: Factory, job_id: int) -> str:
    with make.engine.begin() as connection:
        asked = text(f"SELECT slug FROM {SCHEMA}.topics WHERE id = :id")
        return str(connection.execute(asked, {"id": make.job(job_id).topic_id}).scalar_one())


def everything(make: Factory) -> dict[str, list[Any]]:
    """All rows that a verb may touch."""
    with make.engine.begin() as connection:
        return {
            table: list(connection.execute(text(f"SELECT * FROM {SCHEMA}.{table} ORDER BY 1")).all())
            for table in ("jobs", "attempts", "gates", "topics", "revisions", "findings", "publications", "events")
        }


def act(make: Factory, verb: str, job_id: int, claim: Claim) -> None:
    """Try a verb on a job; raises Refused when it is not allowed."""
    work, state = make.services.work, make.job(job_id).state
    if verb in OPERATOR_VERBS:
        getattr(make.services.operate, verb)([job_id], actor=ACTOR)
        return
    if verb == "grant":
        make.services.operate.grant([job_id], attempts=1, actor=ACTOR)
        return
    if verb == "move":
        make.services.planning.plan(make.site_id, [make.row("other", 1)])
        make.services.places.move_to_lane(make.site_id, slug_of(make, job_id), "other", actor=ACTOR)
        return
    if verb == "retire":
        stage = make.job(job_id).stage
        make.services.planning.retire(make.site_id, stage, actor=ACTOR)
        done = make.job(job_id).stage != stage
    elif verb == "promote":
        done = promote(make) > 0
    elif verb == "demote":
        make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
        done = make.job(job_id).state != state
    elif verb == "claim":
        done = job_id in [c.job_id for c in make.claim(make.job(job_id).stage, 9)]
    elif verb == "renew":
        done = bool(work.renew([claim]))
    elif verb == "reap":
        done = bool(work.reap([Expired(job_id, claim.token, claim.fence, "w", True)]).fates)
    else:
        done = bool(work.acknowledge([ack(claim, verb)], wait=True).outcomes)
    if not done:
        raise Refused()


def on_hold(make: Factory, sql: Sql, *, paused: bool = False) -> int:
    (job_id,) = make.advance_to("publish")
    make.say(make.claim("publish")[0], Verb.HOLD, hold="please look")
    if paused:
        make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
    return job_id


def stand(make: Factory, verb: str, state: JobState, sql: Sql) -> int:
    """A job in this state, and the world such that nothing but its state may forbid the verb."""
    if verb == "retire":
        make.site(stages=(*STAGES, AFTER))
    if verb == "approve" and state is S.WAITING:
        return on_hold(make, sql)
    job_id = make.in_state(state)
    if verb == "retire" and state is S.DONE:
        make.say(make.claim(AFTER.name)[0])
    if verb == "promote" and state is S.WAITING:
        make.services.operate.skip([make.job_ids()[0]], actor=ACTOR)  # now it is the head, and was promoted
        sql("UPDATE jobs SET state = 'waiting', slot = NULL WHERE id = :id", id=job_id)
    if verb == "reap":
        make.expire(job_id)
    return job_id


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("verb", list(TRANSITIONS))
def test_each_verb_moves_exactly_the_states_it_names(verb: str, state: JobState, make: Factory, sql: Sql) -> None:
    """Every pair is decided: allowed moves arrive at a declared target, all others leave the row as it was."""
    job_id = stand(make, verb, state, sql)
    claim = claim_of(make, job_id)
    before = make.job(job_id)

    if state in TRANSITIONS[verb].sources:
        act(make, verb, job_id, claim)

        assert make.state(job_id) in TRANSITIONS[verb].targets
        assert make.job(job_id) != before
    else:
        with pytest.raises(Refused):
            act(make, verb, job_id, claim)

        assert make.job(job_id) == before


@pytest.mark.parametrize("state", list(JobState))
def test_a_token_that_never_was_moves_nothing(state: JobState, make: Factory) -> None:
    """In any state, a worker with a forged or foreign token is told that it lost, and changes no row anywhere."""
    job_id = make.in_state(state)
    forged = claim_of(make, job_id, token=uuid4())
    before = everything(make)

    for verb in WORKER_VERBS:
        assert make.services.work.acknowledge([ack(forged, verb)], wait=True) == Settled({0: Fate.LOST})
    assert make.services.work.renew([forged]) == {}
    for gone in (True, False):
        expired = [Expired(job_id, forged.token, 0, "w", True)]
        assert make.services.work.reap(expired, holder_is_gone=gone) == Settled()

    assert everything(make) == before


LANE_SKIPS = "UPDATE lanes SET on_failed = 'skip'"
LAST_ATTEMPT = "UPDATE jobs SET max_attempts = 1 WHERE id = :id"
LAST_ROUND = "UPDATE jobs SET max_rounds = 0 WHERE id = :id"
ALL_GIVEN_BACK = "UPDATE jobs SET max_attempts = 1, given_back = 1 WHERE id = :id"


def reserved(stage: str, *prepare: str, cancel: bool = False, count: int = 1) -> Callable[[Factory, Sql], int]:
    """A scene: the newest of ``count`` jobs, reserved at a stage, prepared by SQL, or asked to stop."""

    def scene(make: Factory, sql: Sql) -> int:
        job_id = make.advance_to(stage, count=count)[-1]
        make.claim(stage, count)
        for statement in prepare:
            sql(statement, **({"id": job_id} if ":id" in statement else {}))
        if cancel:
            make.services.operate.cancel([job_id], actor=ACTOR)
        return job_id

    return scene


def standing(state: JobState) -> Callable[[Factory, Sql], int]:
    return lambda make, sql: stand(make, "promote" if state is S.WAITING else "", state, sql)


def rejected_to_a_full_gate(make: Factory, sql: Sql) -> int:
    """A job that is beyond the wide gate of the first stage, whose slots others hold by now."""
    make.site(stages=(StageSpec("generate", 2, 5), StageSpec("validate", None, 5)))
    first = make.plan(count=3)[0]
    make.say(make.claim("generate")[0])
    make.claim("validate")
    return first


def cancelled_behind_the_head(make: Factory, sql: Sql) -> int:
    job_id = make.in_state(S.WAITING)
    make.services.operate.cancel([job_id], actor=ACTOR)
    return job_id


def behind_the_head(make: Factory, sql: Sql) -> int:
    first, second = make.advance_to("validate", count=2)
    for claim in make.claim("validate", 2):
        if claim.job_id == first:
            make.say(claim)
    return second


def surplus(make: Factory, sql: Sql) -> int:
    """One of three that run at a gate that was narrowed to two meanwhile."""
    make.site(stages=(StageSpec("check", 3, 5), StageSpec("after", None, 5)))
    first = make.plan(count=3)[0]
    make.claim("check", 3)
    make.services.widths.of_lane(make.site_id, "lane", "check", {"width": 2}, actor=ACTOR)
    return first


ASKED = reserved("validate", cancel=True)

ROUTES: dict[tuple[str, JobState], Callable[[Factory, Sql], int]] = {
    ("promote", S.PENDING): standing(S.WAITING),
    ("claim", S.RESERVED): standing(S.PENDING),
    ("renew", S.RESERVED): reserved("publish"),
    ("advance", S.PENDING): reserved("generate"),
    ("advance", S.WAITING): behind_the_head,
    ("advance", S.DONE): reserved("publish", cancel=True),  # what is published is published
    ("advance", S.CANCELLED): ASKED,
    ("reject", S.PENDING): reserved("validate"),
    ("reject", S.WAITING): rejected_to_a_full_gate,
    ("reject", S.REPAIR): reserved("validate", LAST_ROUND),
    ("reject", S.CANCELLED): ASKED,
    ("retry", S.PENDING): reserved("publish"),
    ("retry", S.WAITING): surplus,
    ("snooze", S.WAITING): surplus,
    ("release", S.WAITING): surplus,
    ("reap", S.WAITING): surplus,
    ("retry", S.FAILED): reserved("publish", LAST_ATTEMPT),
    ("retry", S.SKIPPED): reserved("publish", LAST_ATTEMPT, LANE_SKIPS),
    ("retry", S.CANCELLED): ASKED,
    ("snooze", S.PENDING): reserved("publish"),
    ("snooze", S.CANCELLED): ASKED,
    ("hold", S.WAITING): reserved("publish"),
    ("hold", S.CANCELLED): ASKED,
    ("fail", S.FAILED): reserved("publish"),
    ("fail", S.SKIPPED): reserved("publish", LANE_SKIPS),
    ("fail", S.CANCELLED): ASKED,
    ("repair", S.REPAIR): reserved("publish", LANE_SKIPS),  # a lane that skips what failed still waits for repair
    ("repair", S.CANCELLED): ASKED,
    ("release", S.PENDING): reserved("publish", LAST_ATTEMPT),
    ("release", S.REPAIR): reserved("publish", ALL_GIVEN_BACK),
    ("release", S.CANCELLED): ASKED,
    ("reap", S.PENDING): reserved("publish"),
    ("reap", S.REPAIR): reserved("publish", LAST_ATTEMPT),
    ("reap", S.CANCELLED): ASKED,
    ("cancel", S.CANCELLED): standing(S.PENDING),
    ("cancel", S.RESERVED): reserved("publish"),
    ("retire", S.WAITING): lambda make, sql: make.advance_to("validate", count=2)[1],
    ("retire", S.PENDING): lambda make, sql: make.advance_to("validate")[0],
    ("requeue", S.WAITING): cancelled_behind_the_head,
    ("requeue", S.PENDING): standing(S.FAILED),
    ("skip", S.SKIPPED): standing(S.REPAIR),
    ("approve", S.WAITING): lambda make, sql: on_hold(make, sql, paused=True),
    ("approve", S.PENDING): on_hold,
    ("demote", S.WAITING): standing(S.PENDING),
    ("grant", S.WAITING): lambda make, sql: make.in_state(S.WAITING),
    ("grant", S.PENDING): standing(S.PENDING),
    ("grant", S.RESERVED): standing(S.RESERVED),
    ("move", S.WAITING): standing(S.PENDING),  # behind the head of its new lane
    ("move", S.PENDING): lambda make, sql: make.advance_to("validate")[0],
    ("move", S.FAILED): standing(S.FAILED),
    ("move", S.REPAIR): standing(S.REPAIR),
    ("move", S.CANCELLED): standing(S.CANCELLED),
}


def test_every_declared_target_has_a_route() -> None:
    """A target that is added to the table without a scene that leads there fails here."""
    assert set(ROUTES) == {(verb, target) for verb, t in TRANSITIONS.items() for target in t.targets}


@pytest.mark.parametrize(("verb", "target"), ROUTES, ids=[f"{v}-{t}" for v, t in ROUTES])
def test_each_declared_target_is_reached(verb: str, target: JobState, make: Factory, sql: Sql) -> None:
    """No move of the table is idle: a scene of ordinary work leads to each target."""
    job_id = ROUTES[verb, target](make, sql)
    if verb == "reap":
        make.expire(job_id)

    act(make, verb, job_id, claim_of(make, job_id))

    assert make.state(job_id) is target


@pytest.fixture
def late(make: Factory) -> tuple[Claim, Claim]:
    """A worker that slept past its lease, and the one that was given its job."""
    job_id = make.in_state(S.PENDING)
    slept = make.claim("publish", worker="slept")[0]
    make.expire(job_id)
    make.services.work.reap(make.services.work.expired())
    return slept, make.claim("publish", worker="owner")[0]


@pytest.mark.parametrize("verb", WORKER_VERBS)
def test_a_late_token_is_refused_by_every_verb(verb: str, make: Factory, late: tuple[Claim, Claim]) -> None:
    """A worker that lost its reservation learns so, changes nothing, and the owner still succeeds."""
    slept, owner = late
    before = everything(make)

    settled = make.services.work.acknowledge([ack(slept, verb)], wait=True)

    assert settled == Settled({slept.fence: Fate.LOST})
    assert everything(make) == before
    assert make.say(owner).fates == {owner.fence: Fate.WRITTEN}


def test_a_late_token_does_not_renew_or_reap(make: Factory, late: tuple[Claim, Claim]) -> None:
    """Neither the sleeper's heartbeat nor a reaper with an old list touches the owner's lease."""
    slept, owner = late
    before = everything(make)

    assert make.services.work.renew([slept]) == {}
    old_list = [Expired(slept.job_id, slept.token, slept.fence, "slept", True)]
    assert make.services.work.reap(old_list) == Settled()
    assert make.services.work.reap(old_list, holder_is_gone=True) == Settled()

    assert everything(make) == before
    assert make.services.work.renew([owner]) == {owner.fence: ("renewed", False)}


def test_a_late_token_with_the_owners_fence_is_refused(make: Factory, late: tuple[Claim, Claim]) -> None:
    """The token decides, whatever fence comes with it."""
    slept, owner = late
    before = everything(make)

    settled = make.say(replace(slept, fence=owner.fence))

    assert settled.outcomes == {}
    assert everything(make) == before


def test_a_token_is_good_for_its_own_job_only(make: Factory) -> None:
    """Two jobs of one batch share a token; a token of another batch is no use for either."""
    make.plan(count=2)
    first, second = make.claim("generate")[0], make.claim("generate")[0]
    before = everything(make)

    swapped = [ack(replace(first, token=second.token), "advance"), ack(replace(second, token=first.token), "advance")]
    settled = make.services.work.acknowledge(swapped, wait=True)

    assert settled.outcomes == {}
    assert everything(make) == before


def publish(make: Factory, claim: Claim, act: Callable[[], str] = lambda: "etag") -> bool:
    return make.services.ledger.publish(
        claim, target="files", key="a/", hash="h", look=lambda: None, act=act, still_ours=lambda: True,
        topic_id=make.job(claim.job_id).topic_id, revision=None, inputs="",
    )  # fmt: skip


def test_a_late_token_cannot_intend(make: Factory, late: tuple[Claim, Claim]) -> None:
    """The ledger takes no intent from a worker that lost its reservation, and nothing is done outside."""
    slept, _ = late
    before = everything(make)
    acted: list[str] = []

    with pytest.raises(LeaseLost):
        publish(make, slept, lambda: acted.append("x") or "etag")  # type: ignore[func-returns-value]

    assert acted == []
    assert everything(make) == before


def test_a_token_that_is_lost_while_acting_cannot_confirm(make: Factory) -> None:
    """A worker that lost its reservation between intent and confirmation leaves nothing live behind."""
    job_id = make.in_state(S.PENDING)
    slept = make.claim("publish")[0]

    def act() -> str:
        make.expire(job_id)
        make.services.work.reap(make.services.work.expired())
        make.claim("publish")
        return "etag"

    with pytest.raises(LeaseLost):
        publish(make, slept, act)

    assert [row.live_path for row in everything(make)["publications"]] == [None]


def test_a_lease_that_lives_is_not_reaped(make: Factory) -> None:
    """A reaper whose list was read before the renewal takes nothing."""
    make.in_state(S.PENDING)
    claim = make.claim("publish")[0]
    make.expire(claim.job_id)
    stale = make.services.work.expired()
    make.services.work.renew([claim])
    before = make.job(claim.job_id)

    assert [e.over for e in stale] == [True]
    assert make.services.work.reap(stale) == Settled()
    assert make.job(claim.job_id) == before


def test_a_refusal_is_all_or_nothing(make: Factory, engine: Engine) -> None:
    """An operator's verb over several jobs, one of which forbids it, moves none of them."""
    first, second = make.plan(count=2)
    make.services.operate.skip([second], actor=ACTOR)
    before = everything(make)

    with pytest.raises(Refused, match=f"job {second} is skipped"):
        make.services.operate.cancel([first, second], actor=ACTOR)

    assert everything(make) == before


def test_a_long_assembly_is_not_begun_again_at_once(make: Factory, sql: Sql) -> None:
    """The next one waits four times as long as the last took, so that it takes a fifth of the time at most."""
    make.site()
    make.services.work.touch(make.site_id)
    (claim,) = make.claim("assemble")
    make.say(claim, built=(1, ""))
    sql("UPDATE attempts SET reserved_at = ended_at - interval '1 minute'")
    make.advance_to("publish")
    (page,) = make.claim("publish")

    make.say(page, touches=True)

    ((seconds,),) = sql(
        "SELECT extract(epoch FROM run_at - clock_timestamp()) FROM jobs WHERE topic_id IS NULL AND state = 'pending'"
    )
    assert 200 < seconds <= 240
