"""A person's draft against stages and other persons: whoever commits first is not written over."""

from collections.abc import Callable

from pipeline.build import Services
from pipeline.errors import Refused
from pipeline.service.drafts import Opened
from pipeline.service.work import Prefix
from pipeline.states import JobState
from pipeline.views import Claim, Draft
from tests.concurrency.stage import Play
from tests.factories import ACTOR, LEASE, Factory


def saves(site_id: int, seen: Opened, body: str) -> Callable[[Services], int]:
    return lambda s: s.drafts.save(site_id, seen, Draft("Mine", "", body), actor=ACTOR)


def claims(site_id: int) -> Callable[[Services], list[Claim]]:
    return lambda s: s.work.claim([Prefix(site_id, "validate", 2, 1, LEASE)], "worker")


def test_a_pass_is_not_claimed_while_its_draft_is_written(play: Play, make: Factory) -> None:
    """A claim steps over it; the next one brings the person's draft to the stage."""
    make.advance_to("validate")
    seen = make.services.drafts.open(make.site_id, "lane-1")
    person, worker = play.actor("person"), play.actor("worker")
    stop = person.before_commit()
    saving = person.does(saves(make.site_id, seen, "By hand."))
    stop.reached()

    nothing = worker.does(claims(make.site_id)).result()
    stop.go()

    assert (nothing, saving.result()) == ([], 2)
    draft = make.claim("validate")[0].draft
    assert draft is not None
    assert draft.body == "By hand."


def test_a_draft_waits_for_a_claim_and_is_refused(play: Play, make: Factory) -> None:
    """The stage has the draft that there was: nothing is put under its hands."""
    (job,) = make.advance_to("validate")
    seen = make.services.drafts.open(make.site_id, "lane-1")
    person, worker = play.actor("person"), play.actor("worker")
    stop = worker.before_commit()
    claiming = worker.does(claims(make.site_id))
    stop.reached()
    saving = person.does(saves(make.site_id, seen, "By hand."))
    play.wait_until_blocked(person, worker)

    stop.go()

    assert len(claiming.result()) == 1
    error = saving.error()
    assert isinstance(error, Refused)
    assert "is running" in str(error)
    assert make.state(job) is JobState.RESERVED


def test_of_two_drafts_one_is_written(play: Play, make: Factory) -> None:
    """Both opened the same one; the second waits, and is told of the first."""
    make.advance_to("validate")
    seen = make.services.drafts.open(make.site_id, "lane-1")
    first, second = play.actor("first"), play.actor("second")
    stop = first.before_commit()
    saving = first.does(saves(make.site_id, seen, "The first's."))
    stop.reached()
    losing = second.does(saves(make.site_id, seen, "The second's."))
    play.wait_until_blocked(second, first)

    stop.go()

    assert saving.result() == 2
    assert "revision 2 came meanwhile" in str(losing.error())
    assert make.services.drafts.open(make.site_id, "lane-1").draft.body == "The first's."
