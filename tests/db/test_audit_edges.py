"""The state machine, held by the database for the length of a test: every verb lives within it, nothing else does."""

import pytest
from sqlalchemy.exc import DBAPIError

from pipeline.service.acknowledging import Verb
from pipeline.states import TRANSITIONS, JobState
from tests.db.conftest import Sql
from tests.factories import ACTOR, Factory, draft_of, finding

pytestmark = pytest.mark.usefixtures("strict_edges")

LEGAL = {edge for verb in TRANSITIONS.values() for edge in verb.edges}
ILLEGAL = sorted((s, t) for s in JobState for t in JobState if s is not t and (s, t) not in LEGAL)


@pytest.mark.parametrize("state", JobState)
def test_every_state_is_reached_by_legal_edges(make: Factory, state: JobState) -> None:
    """By the verbs that lead there."""
    assert make.state(make.in_state(state)) is state


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("stage", ["generate", "publish"])
def test_every_word_of_a_worker_is_a_legal_edge(make: Factory, verb: Verb, stage: str) -> None:
    """At the first stage, and at a strict gate."""
    make.advance_to(stage, count=2)
    claim = make.claim(stage)[0]
    draft = draft_of(claim) if verb is Verb.ADVANCE and stage == "generate" else None

    settled = make.say(claim, verb, draft=draft, findings=[finding()] if verb is Verb.REJECT else ())

    assert claim.fence in settled.outcomes


def test_operators_and_upkeep_keep_to_legal_edges(make: Factory) -> None:
    """Pause, resume, cancel, requeue, skip, and what a reaper takes back."""
    first, second, third = make.advance_to("publish", count=3)
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
    make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)
    make.services.operate.cancel([first, second], actor=ACTOR)
    make.services.operate.requeue([first], actor=ACTOR)
    make.services.operate.skip([second], actor=ACTOR)
    make.claim("publish")
    make.expire(first)

    make.services.work.reap(make.services.work.expired(make.site_id))

    assert [make.state(job) for job in (first, second, third)] == ["pending", "skipped", "waiting"]


@pytest.mark.parametrize("source", sorted({source for source, _ in ILLEGAL}))
def test_an_illegal_edge_is_refused(make: Factory, sql: Sql, source: JobState) -> None:
    """Whoever tries it, from whichever state."""
    job_id = make.in_state(source)

    for target in (t for s, t in ILLEGAL if s is source):
        with pytest.raises(DBAPIError, match=f"illegal edge: {source} to {target}"):
            sql("UPDATE jobs SET state = :target WHERE id = :id", target=str(target), id=job_id)

    assert make.state(job_id) is source
