"""Pause and resume: paused rows leave the claim's index, nothing loses its place, and what is reserved finishes."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from pipeline.errors import NotFound, Refused
from pipeline.models import Base
from pipeline.service import lanes as lanes_service
from pipeline.service.acknowledging import Fate, Verb
from pipeline.service.base import Stretch
from pipeline.service.lanes import Turned
from pipeline.service.planning import StageSpec
from pipeline.sql import sites as site_statements
from pipeline.states import JobState as S
from tests.db.conftest import Sql
from tests.factories import ACTOR, STAGES, Factory

WIDE = (StageSpec("generate", None, 5), StageSpec("render", 2, 5), StageSpec("publish", 1, 5))


def pause(make: Factory, lane: str = "lane", reason: str = "") -> Turned:
    return make.services.lanes.pause(make.site_id, lane, actor=ACTOR, reason=reason)


def resume(make: Factory, lane: str = "lane") -> Turned:
    return make.services.lanes.resume(make.site_id, lane, actor=ACTOR)


def states(make: Factory, lane: str = "lane") -> list[tuple[str, int | None]]:
    return [(make.job(i).state, make.job(i).slot) for i in make.job_ids(lane)]


def shape(sql: Sql) -> list[tuple[object, ...]]:
    """All of a job that a pause must leave as it was."""
    columns = (
        "id, stage, position, round, cleared, priority, gate_id, attempts, max_attempts, hold, release_at, retry_at"
    )
    return [tuple(row) for row in sql(f"SELECT {columns} FROM jobs ORDER BY id")]


@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_a_paused_lane_begins_nothing(make: Factory, stage: str) -> None:
    """At a stage without limit and at a strict one; the lane beside it goes on."""
    make.plan(count=2)
    make.services.planning.plan(make.site_id, [make.row(lane, n) for lane in ("lane", "other") for n in (1, 2)])
    make.advance_to(stage, count=2)

    turned = pause(make)

    assert turned == Turned("lane", "active", "paused", 2 if stage == "generate" else 1, 0)
    assert [s for s, _ in states(make)] == ["waiting", "waiting"]
    found = make.claim("generate", 9) + make.claim("publish", 9)
    assert {c.topic.lane for c in found if c.topic} <= {"other"}
    for claim in found:
        make.say(claim, Verb.RELEASE)


@pytest.mark.parametrize(("specs", "stage"), [(STAGES, "generate"), (STAGES, "publish"), (WIDE, "render")])
def test_resume_brings_back_what_pause_took(make: Factory, sql: Sql, specs: tuple[StageSpec, ...], stage: str) -> None:
    """States, slots and places are what they were; only the due time is now."""
    make.site(stages=specs)
    make.advance_to(stage, count=3)
    before, standing = shape(sql), states(make)

    pause(make)
    assert shape(sql) == before
    assert [slot for _, slot in states(make)] == [None] * 3
    turned = resume(make)

    assert turned.jobs == sum(state == "pending" for state, _ in standing)
    assert (shape(sql), states(make)) == (before, standing)
    assert sql("SELECT count(*) FROM jobs WHERE state = 'pending' AND run_at > clock_timestamp()") == [(0,)]


def test_what_is_reserved_finishes_and_the_next_waits_for_resume(make: Factory) -> None:
    """The holder is not disturbed; its end promotes nobody while the lane is paused, and resume does."""
    first, second = make.advance_to("publish", count=2)
    (claim,) = make.claim("publish")

    assert pause(make).running == 1
    assert make.services.work.renew([claim]) == {claim.fence: ("renewed", False)}
    assert make.say(claim).fates == {claim.fence: Fate.WRITTEN}

    assert (make.state(first), make.state(second)) == (S.DONE, S.WAITING)
    assert make.services.work.heal(make.site_id) == 0
    assert resume(make).jobs == 1
    assert make.state(second) is S.PENDING


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE, Verb.RELEASE])
def test_upkeep_repeats_the_pause_for_what_came_back(make: Factory, verb: Verb) -> None:
    """A job that its worker gives back to a paused strict lane is not claimed, and soon waits without its slot."""
    (job_id,) = make.advance_to("publish")
    (claim,) = make.claim("publish")
    pause(make)
    make.say(claim, verb)
    assert make.state(job_id) is S.PENDING
    assert make.claim("publish") == []

    assert make.services.lanes.settle(make.site_id) == 1
    assert make.services.lanes.settle(make.site_id) == 0

    assert states(make) == [("waiting", None)]
    resume(make)
    assert states(make) == [("pending", 1)]


def test_what_comes_to_a_paused_lane_waits(make: Factory) -> None:
    """What is planned there at once; what a step to a stage without limit makes pending is not claimed, and leaves the
    claim's index once upkeep came by."""
    (first,) = make.plan()
    (claim,) = make.claim("generate")
    pause(make)
    make.say(claim)
    make.services.planning.plan(make.site_id, [make.row("lane", n) for n in (1, 2)])
    assert make.job(first).stage == "validate"
    assert [s for s, _ in states(make)] == ["pending", "waiting"]
    assert make.claim("generate", 9) + make.claim("validate", 9) == []

    assert make.services.lanes.settle(make.site_id) == 1

    assert [s for s, _ in states(make)] == ["waiting", "waiting"]
    assert resume(make).jobs == 2
    assert len(make.claim("validate")) == len(make.claim("generate")) == 1


def test_a_retry_that_was_delayed_is_still_delayed_after_a_pause(make: Factory, sql: Sql) -> None:
    """Neither pause nor resume forgets until when a job is to wait."""
    make.plan()
    (claim,) = make.claim("generate")
    make.say(claim, Verb.RETRY, delay=timedelta(hours=1))

    pause(make)
    resume(make)

    assert sql("SELECT run_at = retry_at FROM jobs") == [(True,)]
    assert make.claim("generate") == []


def test_held_jobs_stay_held(make: Factory) -> None:
    """What waits for a person is not freed by resume, at a gate or without one."""
    make.plan()
    (claim,) = make.claim("generate")
    make.say(claim, Verb.HOLD, hold="ask the editor")

    pause(make)
    assert resume(make).jobs == 0

    assert make.job(claim.job_id).hold == "ask the editor"
    assert make.state(claim.job_id) is S.WAITING


def test_a_release_that_takes_no_turn_waits_and_goes_on(make: Factory) -> None:
    """A new pass over a live topic has no gate; a pause takes it from the claim all the same."""
    (job_id,) = make.advance_to("publish")
    make.say(make.claim("publish")[0])
    make.services.planning.plan(make.site_id, [make.row("lane", 1, input_hash="another")])
    for stage in ("generate", "validate"):
        make.say(make.claim(stage)[0])
    (again,) = make.job_ids()
    assert (again != job_id, make.job(again).gate_id, make.state(again)) == (True, None, S.PENDING)

    pause(make)
    assert make.state(again) is S.WAITING
    resume(make)

    assert [c.job_id for c in make.claim("publish")] == [again]


@pytest.mark.parametrize("verb", ["cancel", "skip"])
def test_operators_act_on_what_is_paused(make: Factory, verb: str) -> None:
    """Cancel and skip work in a paused lane; requeue there comes to wait; nothing is promoted before resume."""
    first, second = make.advance_to("publish", count=2)
    pause(make)

    getattr(make.services.operate, verb)([first], actor=ACTOR)
    if verb == "cancel":
        make.services.operate.requeue([first], actor=ACTOR)

    assert make.state(second) is S.WAITING
    resume(make)
    assert make.state(first if verb == "cancel" else second) is S.PENDING


def test_both_are_noted_with_actor_and_reason(make: Factory, sql: Sql) -> None:
    """Of a lane and of a site, once each; text that cannot be stored is made so."""
    make.plan()
    pause(make, reason="bad data\x00")
    resume(make)
    make.services.sites.pause(make.site_id, actor=ACTOR, reason="moving")
    make.services.sites.resume(make.site_id, actor=ACTOR)

    found = sql("SELECT lane_id IS NULL, verb, from_state, to_state, actor, reason FROM events ORDER BY id")

    assert [tuple(row) for row in found] == [
        (False, "pause", "active", "paused", ACTOR, "bad data\N{REPLACEMENT CHARACTER}"),
        (False, "resume", "paused", "active", ACTOR, ""),
        (True, "pause", "active", "paused", ACTOR, "moving"),
        (True, "resume", "paused", "active", ACTOR, ""),
    ]


def test_twice_is_refused_and_changes_nothing(make: Factory, sql: Sql) -> None:
    """The second one is told the state; so is whoever names a lane that is not there, or is closed."""
    make.plan()
    with pytest.raises(Refused, match="lane 'lane' is active already"):
        resume(make)
    pause(make)
    with pytest.raises(Refused, match="lane 'lane' is paused already"):
        pause(make)
    with pytest.raises(NotFound, match="no lane 'lame'"):
        pause(make, "lame")
    sql("UPDATE lanes SET state = 'closed'")
    with pytest.raises(Refused, match="lane 'lane' is closed; open it: pipeline lanes open"):
        pause(make)
    make.services.sites.pause(make.site_id, actor=ACTOR)
    with pytest.raises(Refused, match="site 'acme' is paused already"):
        make.services.sites.pause(make.site_id, actor=ACTOR)

    assert sql("SELECT count(*) FROM events") == [(2,)]


def test_a_paused_site_claims_nothing(make: Factory) -> None:
    """Not even with a prefix in hand; another site goes on."""
    make.plan()
    paused = make.site_id
    make.services.sites.pause(paused, actor=ACTOR)
    assert make.claim("generate") == []
    make.site("other")
    make.plan()
    assert len(make.claim("generate")) == 1

    make.site_id = paused
    assert make.services.sites.resume(paused, actor=ACTOR).running == 0
    assert len(make.claim("generate")) == 1


def test_lanes_are_listed_with_their_heads(make: Factory) -> None:
    """What is planned, live and waiting, who is next at the last strict gate, who paused it and why."""
    make.site()
    make.services.planning.plan(make.site_id, [make.row(lane, n) for lane in ("a", "b") for n in (1, 2, 3)])
    for stage in ("generate", "validate"):
        for claim in make.claim(stage, 9):
            make.say(claim)
    make.say(make.claim("publish", 1)[0])
    pause(make, "b", reason="why")

    one, other = make.services.lanes.list(make.site_id)

    assert (one.lane, one.state, one.topics, one.live, one.paused) == ("a", "active", 3, 0, None)
    assert one.head is not None
    assert (one.head.position, one.head.slug, one.head.stage, one.head.state) == (2, "a-2", "publish", "pending")
    assert one.waiting == 1
    assert other.head is not None
    assert (other.state, other.waiting, other.head.slug) == ("paused", 3, "b-1")
    assert other.paused is not None
    assert (other.paused.by, other.paused.reason) == (ACTOR, "why")


# Remove a site.


def test_a_site_that_is_over_is_removed_whole(make: Factory, sql: Sql) -> None:
    """All that refers to it goes; the site beside it keeps every row."""
    make.plan(count=2)
    make.site("other")
    ids = make.advance_to("publish", count=2)
    pause(make)
    resume(make)
    make.services.operate.skip(ids, actor=ACTOR)
    tables = [table.name for table in Base.metadata.sorted_tables]
    before = {name: sql(f"SELECT count(*) FROM {name}")[0][0] for name in tables}
    found = make.services.sites.contents(make.site_id)

    assert make.services.sites.remove(make.site_id, "other", actor=ACTOR, reason="moved") == found

    assert (found.unfinished, found.live, found.lanes, found.topics, found.jobs) == (0, 0, 1, 2, 2)
    after = {name: sql(f"SELECT count(*) FROM {name}")[0][0] for name in tables}
    assert before["jobs"] - after["jobs"] == 2
    assert (after["sites"], after["topics"], after["revisions"], after["events"]) == (1, 2, 0, 1)
    assert sql("SELECT verb, actor, reason, site_id, details ->> 'site' FROM events") == [
        ("remove", ACTOR, "moved", None, "other")
    ]
    assert sql("SELECT slug FROM sites") == [("acme",)]


@pytest.mark.parametrize("what", ["unfinished", "live"])
def test_a_site_with_something_unfinished_or_live_is_kept(make: Factory, sql: Sql, what: str) -> None:
    """The refusal counts it and names the next step; not a row is gone."""
    (job_id,) = make.advance_to("publish")
    if what == "live":
        make.services.operate.skip([job_id], actor=ACTOR)
        sql(
            "INSERT INTO publications (site_id, target, live_path, live_hash, live_remote, live_fence, first_at,"
            " changed_at, intent_path, intent_hash) SELECT s.id, 'files', 'a/', 'h', '', min(a.fence),"
            " min(a.reserved_at), min(a.reserved_at), 'a/', 'h' FROM sites s, attempts a GROUP BY s.id"
        )
    step = {"unfinished": "1 unfinished job; see: pipeline jobs list --site acme", "live": "pipeline sites pause acme"}

    with pytest.raises(Refused, match=step[what]):
        make.services.sites.remove(make.site_id, "acme", actor=ACTOR)

    assert sql("SELECT count(*) FROM jobs") == [(1,)]
    assert sql("SELECT count(*) FROM revisions") == [(1,)]


def test_every_table_that_refers_to_a_site_is_emptied_by_its_removal(engine: Engine) -> None:
    """A table that is added needs its place in the order."""
    kept = {table.name for table in Base.metadata.sorted_tables} - {"limits", "workers"}

    assert {statement.table.name for statement in site_statements.deletions()} == kept


def test_upkeep_comes_to_every_lane_a_stretch_at_a_time(make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lanes stand still, each time costs the same; after the last it begins again."""
    monkeypatch.setattr(lanes_service, "AT_ONCE", 2)
    names = [f"lane-{n}" for n in range(5)]
    for name in names:
        make.plan(lane=name)
    found: list[str | None] = []
    after = ""
    for _ in range(4):
        stretch = make.services.lanes.stretch(make.site_id, after)
        found.append(stretch.end)
        after = stretch.end or ""

    assert found == ["lane-1", "lane-3", None, "lane-1"]


def test_a_stretch_settles_its_own_lanes_alone(make: Factory) -> None:
    """What became pending in the others is left for their turn."""
    for name in ("a", "b", "c"):
        make.plan(lane=name)
        (claim,) = make.claim("generate")
        pause(make, name)
        make.say(claim)

    settled = [
        make.services.lanes.settle(make.site_id, Stretch(after, end)) for after, end in (("a", "b"), ("b", None))
    ]

    assert settled == [1, 1]
    assert make.services.lanes.settle(make.site_id) == 1
