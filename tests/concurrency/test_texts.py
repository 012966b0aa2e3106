"""A text that changes while its pass is under way: whoever comes second goes on with what the first one left."""

from dataclasses import replace
from pathlib import Path

from pipeline.project.texts import written
from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.work import Prefix
from pipeline.sql import plan
from pipeline.views import Planned, TopicRow, TopicText
from tests.concurrency.stage import Play
from tests.factories import LEASE, Factory


def with_text(row: TopicRow, folder: Path, body: str) -> TopicRow:
    path = folder / f"{row.slug}.md"
    path.write_bytes(written("", body, {}, ""))
    return replace(row, text=TopicText(path, body), input_hash=body)


def test_nobody_claims_a_pass_whose_text_is_being_taken(play: Play, make: Factory, tmp_path: Path) -> None:
    """The claim passes over it, and the next one gets it with the new text."""
    make.site()
    row = make.row("lane", 1)
    make.services.planning.plan(make.site_id, [with_text(row, tmp_path, "Old.\n")])
    new = with_text(row, tmp_path, "New.\n")
    prefix = Prefix(make.site_id, "validate", 2, 1, LEASE)
    one, other = play.actor("first"), play.actor("second")
    stop = one.after(plan.lock_early())
    ahead = one.does(lambda services: services.planning.plan(make.site_id, [new]))
    stop.reached()

    assert other.does(lambda services: services.work.claim([prefix], "worker")).result() == []
    stop.go()
    assert ahead.result() == Planned(busy=1)

    (claim,) = make.claim("validate")
    assert claim.draft is not None
    assert claim.draft.body == "New.\n"


def test_a_pass_that_moves_on_just_now_keeps_the_text_that_was_checked(
    play: Play, make: Factory, tmp_path: Path
) -> None:
    """To the plan it is still held, so it is left alone: the new text gets a pass of its own."""
    make.site()
    row = make.row("lane", 1)
    make.services.planning.plan(make.site_id, [with_text(row, tmp_path, "Old.\n")])
    (claim,) = make.claim("validate")
    new = with_text(row, tmp_path, "New.\n")
    one, other = play.actor("first"), play.actor("second")
    stop = one.before_commit()
    ahead = one.does(lambda services: services.work.acknowledge([Ack(claim, Verb.ADVANCE)], wait=True))
    stop.reached()

    planned = other.does(lambda services: services.planning.plan(make.site_id, [new])).result()
    stop.go()
    ahead.result()

    assert planned == Planned(busy=1)
    (claim,) = make.claim("publish")
    assert claim.draft is not None
    assert claim.draft.body == "Old.\n"
    make.say(claim)
    assert make.services.planning.plan(make.site_id, [new]) == Planned(changed=1)
