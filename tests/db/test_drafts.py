"""A draft that a person writes is a revision like any other, and never over one that he has not seen."""

import pytest
from sqlalchemy import select

from pipeline.errors import NotFound, Refused
from pipeline.service.acknowledging import Verb
from pipeline.sql.tables import events, revisions, topics
from pipeline.states import JobState
from pipeline.views import Draft
from tests.factories import ACTOR, Factory

MINE = Draft("Mine", "By hand", "Written by hand.\n")


def stored(make: Factory) -> list[tuple[int, str, str, bool]]:
    """``(number, origin, body, is the current one)`` of all revisions."""
    with make.engine.begin() as connection:
        found = connection.execute(
            select(revisions.c.number, revisions.c.origin, revisions.c.body, revisions.c.id == topics.c.revision_id)
            .select_from(revisions.join(topics, topics.c.id == revisions.c.topic_id))
            .order_by(revisions.c.number)
        )
        return [(row[0], row[1], row[2], row[3]) for row in found]


def test_it_is_the_newest_revision(make: Factory) -> None:
    """Of origin human, with who and why; the next stage gets it; no event is of it."""
    make.advance_to("validate")
    drafts = make.services.drafts
    seen = drafts.open(make.site_id, "lane-1")

    number = drafts.save(make.site_id, seen, MINE, actor=ACTOR, reason="too dry")

    assert number == 2
    assert [row[:2] + row[3:] for row in stored(make)] == [(1, "generated", False), (2, "human", True)]
    assert make.claim("validate")[0].draft == Draft(
        MINE.title, MINE.description, MINE.body, {}, {"actor": ACTOR, "reason": "too dry", "edited": 1}
    )
    with make.engine.begin() as connection:
        assert connection.execute(select(events.c.id)).all() == []


def test_a_draft_that_came_meanwhile_is_not_written_over(make: Factory) -> None:
    """The second of two who opened the same one is refused, and told which came."""
    make.advance_to("validate")
    drafts = make.services.drafts
    seen = drafts.open(make.site_id, "lane-1")
    drafts.save(make.site_id, seen, MINE, actor=ACTOR)

    with pytest.raises(Refused, match="revision 2 came meanwhile, and yours was not written over it"):
        drafts.save(make.site_id, seen, Draft("Other", "", "Other."), actor=ACTOR)

    assert [row[0] for row in stored(make)] == [1, 2]


def test_nobody_writes_while_a_stage_is_at_work(make: Factory) -> None:
    """Neither opened nor saved: the stage read the draft that there was."""
    make.advance_to("validate")
    drafts = make.services.drafts
    seen = drafts.open(make.site_id, "lane-1")
    make.claim("validate")

    with pytest.raises(Refused, match=r"is running: job \d+ at validate, held by test-worker; edit it when"):
        drafts.save(make.site_id, seen, MINE, actor=ACTOR)
    with pytest.raises(Refused, match="is running"):
        drafts.open(make.site_id, "lane-1")

    assert [row[0] for row in stored(make)] == [1]


def test_what_is_over_has_no_draft_to_edit(make: Factory) -> None:
    """Nothing would publish it."""
    make.in_state(JobState.DONE)

    with pytest.raises(Refused, match="has no unfinished pass that would go on with it"):
        make.services.drafts.open(make.site_id, "lane-1")
    with pytest.raises(NotFound):
        make.services.drafts.open(make.site_id, "lane-2")


def test_a_first_draft_may_be_written_by_hand(make: Factory) -> None:
    """Of a topic that has none yet: over nothing, and only while there is none."""
    make.plan()
    drafts = make.services.drafts
    seen = drafts.open(make.site_id, "lane-1")
    assert (seen.draft, seen.number) == (Draft("Title of lane-1", "", ""), 0)

    assert drafts.save(make.site_id, seen, MINE, actor=ACTOR, dry_run=True) == 1
    assert stored(make) == []
    assert drafts.save(make.site_id, seen, MINE, actor=ACTOR) == 1

    with pytest.raises(Refused, match="revision 1 came meanwhile"):
        drafts.save(make.site_id, seen, MINE, actor=ACTOR)


def test_a_pass_that_was_planned_meanwhile_is_no_hindrance(make: Factory) -> None:
    """The one that was opened ended, another stands there: the draft is still the one that was seen."""
    make.advance_to("publish")
    drafts = make.services.drafts
    seen = drafts.open(make.site_id, "lane-1")
    make.say(make.claim("publish")[0], Verb.ADVANCE)
    make.services.planning.plan(make.site_id, [make.row("lane", 1, input_hash="another")])

    assert drafts.save(make.site_id, seen, MINE, actor=ACTOR) == 2


@pytest.mark.parametrize(
    ("verb", "error_class", "stage"), [(Verb.FAIL, "fail", None), (Verb.REPAIR, "rejected", "validate")]
)
def test_what_stands_is_resumed_where_it_stood(make: Factory, verb: Verb, error_class: str, stage: str | None) -> None:
    """A stage is named only where requeue wants one: for what was rejected in its last round."""
    make.advance_to("validate")
    make.say(make.claim("validate")[0], verb, error_class=error_class, error="no")

    seen = make.services.drafts.open(make.site_id, "lane-1")
    seen.refuse_resume()
    make.services.operate.requeue([seen.job_id], actor=ACTOR, stage=seen.resume_at)

    assert seen.resume_at == stage
    assert (make.job(seen.job_id).stage, make.state(seen.job_id)) == ("validate", JobState.PENDING)
    with pytest.raises(Refused, match="is pending at validate; leave --resume away"):
        make.services.drafts.open(make.site_id, "lane-1").refuse_resume()
