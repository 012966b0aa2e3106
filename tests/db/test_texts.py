"""Topics that have a text: it is their first revision, and they begin behind the stage that makes drafts."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import ProjectError
from pipeline.project.texts import load_text, written
from pipeline.service.acknowledging import Verb
from pipeline.service.planning import StageSpec
from pipeline.states import JobState as S
from pipeline.views import Draft, Planned, TopicRow, TopicText
from tests.db.conftest import Sql
from tests.db.test_planning import finish, positions
from tests.factories import ACTOR, Factory


@pytest.fixture
def text(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Gives a topic a text with these words, and a hash that goes with them."""

    def give(row: TopicRow, body: str = "Words.\n") -> TopicRow:
        path = tmp_path / f"{row.slug}.md"
        path.write_bytes(written("Short", body, {"tags": ["a"]}, "old.md"))
        return replace(row, text=TopicText(path, body), input_hash=f"{row.input_hash} {body}")

    return give


def test_a_text_becomes_a_revision_and_its_pass_begins_at_validate(make: Factory, sql: Sql, text) -> None:  # type: ignore[no-untyped-def]
    """Among others of its lane, each at its position."""
    make.site()
    rows = [make.row("lane", 1), text(make.row("lane", 2)), text(make.row("lane", 3)), make.row("lane", 4)]

    assert make.services.planning.plan(make.site_id, rows) == Planned(new=4)

    assert positions(sql) == {f"lane-{n}": n for n in range(1, 5)}
    found = sql(
        "SELECT j.position, j.stage, j.state, r.origin, r.number FROM jobs j JOIN topics t ON t.id = j.topic_id"
        " LEFT JOIN revisions r ON r.id = t.revision_id ORDER BY j.position"
    )
    assert [tuple(row) for row in found] == [
        (1, "generate", "pending", None, None), (2, "validate", "pending", "imported", 1),
        (3, "validate", "pending", "imported", 1), (4, "generate", "pending", None, None),
    ]  # fmt: skip
    claim = make.claim("validate")[0]
    assert claim.draft is not None
    assert (claim.draft.title, claim.draft.description, claim.draft.body) == ("Title of lane-2", "Short", "Words.\n")
    assert claim.draft.fields == {"tags": ["a"]}
    assert claim.draft.lineage["source"] == "old.md"
    assert make.services.planning.plan(make.site_id, rows) == Planned(unchanged=4)


def test_at_a_strict_first_stage_nobody_waits_for_those_with_a_text(make: Factory, text) -> None:  # type: ignore[no-untyped-def]
    """They count as released from it, and take their turn at the next that is strict."""
    make.site(stages=(StageSpec("generate", 1, 5), StageSpec("validate", 1, 5), StageSpec("publish", 1, 5)))
    rows = [text(make.row("lane", 1)), make.row("lane", 2), text(make.row("lane", 3))]
    make.services.planning.plan(make.site_id, rows)
    first, second, third = make.job_ids()

    assert [make.state(id) for id in (first, second, third)] == [S.PENDING, S.PENDING, S.WAITING]
    make.say(make.claim("validate")[0])
    assert make.claim("validate") == []
    make.say(make.claim("generate")[0], draft=Draft("t", "", "b"))
    make.say(make.claim("validate")[0])
    assert [claim.job_id for claim in make.claim("validate")] == [third]


def test_a_pipeline_of_one_stage_begins_there(make: Factory, text) -> None:  # type: ignore[no-untyped-def]
    make.site(stages=(StageSpec("publish", 1, 5),))
    make.services.planning.plan(make.site_id, [text(make.row("lane", 1))])

    assert len(make.claim("publish")) == 1


def test_a_rejected_text_goes_through_the_first_stage_and_back(make: Factory, text) -> None:  # type: ignore[no-untyped-def]
    make.site()
    make.services.planning.plan(make.site_id, [text(make.row("lane", 1))])
    make.say(make.claim("validate")[0], Verb.REJECT)

    again = make.claim("generate")[0]
    assert again.draft is not None
    make.say(again)

    assert len(make.claim("validate")) == 1


def test_a_changed_text_is_a_new_pass_with_a_new_revision(make: Factory, sql: Sql, text) -> None:  # type: ignore[no-untyped-def]
    """A changed row with the same text is a new pass over the same revision."""
    make.site()
    row = make.row("lane", 1)
    make.services.planning.plan(make.site_id, [text(row)])
    finish(make)

    assert make.services.planning.plan(make.site_id, [text(row, "Other.\n")]) == Planned(changed=1)
    assert sql("SELECT pass, stage, state FROM jobs ORDER BY pass")[1:] == [(2, "validate", "pending")]
    assert sql("SELECT number FROM revisions ORDER BY number") == [(1,), (2,)]
    finish(make)

    changed = replace(text(row, "Other.\n"), type="post", input_hash="third")
    assert make.services.planning.plan(make.site_id, [changed]) == Planned(changed=1)
    assert sql("SELECT number FROM revisions ORDER BY number") == [(1,), (2,)]


def test_a_mended_text_is_there_when_its_pass_goes_on(make: Factory, sql: Sql, text) -> None:  # type: ignore[no-untyped-def]
    """What waits for a person at validate gets the new text at once; no second pass follows."""
    make.site()
    row = make.row("lane", 1)
    make.services.planning.plan(make.site_id, [text(row)])
    make.say(make.claim("validate")[0], Verb.REPAIR)
    mended = text(row, "Mended.\n")

    assert make.services.planning.plan(make.site_id, [mended]) == Planned(busy=1)
    assert make.services.planning.plan(make.site_id, [mended]) == Planned(unchanged=1)
    make.services.operate.requeue([make.job_ids()[0]], actor=ACTOR)
    claim = make.claim("validate")[0]
    assert claim.draft is not None
    assert claim.draft.body == "Mended.\n"


@pytest.mark.parametrize("stage", ["validate", "publish"])
def test_a_text_that_changes_while_it_is_held_or_later_waits_for_the_end(
    make: Factory, sql: Sql, text, stage: str  # type: ignore[no-untyped-def]
) -> None:  # fmt: skip
    """Nobody publishes what nobody checked: the pass ends with the text that it has, and another follows."""
    make.site()
    row = make.row("lane", 1)
    make.services.planning.plan(make.site_id, [text(row)])
    held = make.claim("validate")[0]
    if stage == "publish":
        make.say(held)
    changed = text(row, "Other.\n")

    assert make.services.planning.plan(make.site_id, [changed]) == Planned(busy=1)
    assert sql("SELECT number FROM revisions") == [(1,)]
    if stage == "validate":
        make.say(held)
    finish(make)

    assert make.services.planning.plan(make.site_id, [changed]) == Planned(changed=1)
    assert sql("SELECT number FROM revisions ORDER BY number") == [(1,), (2,)]


def test_a_text_that_goes_away_lets_its_topic_begin_at_the_first_stage(make: Factory, sql: Sql, text) -> None:  # type: ignore[no-untyped-def]
    make.site()
    row = make.row("lane", 1)
    make.services.planning.plan(make.site_id, [text(row)])
    finish(make)

    assert make.services.planning.plan(make.site_id, [row]) == Planned(changed=1)
    assert sql("SELECT stage FROM jobs WHERE pass = 2") == [("generate",)]


def test_texts_wait_in_a_paused_lane_like_others(make: Factory, text) -> None:  # type: ignore[no-untyped-def]
    make.plan()
    make.services.lanes.pause(make.site_id, "lane", actor=ACTOR)
    make.services.planning.plan(make.site_id, [make.row("lane", 1), text(make.row("lane", 2))])

    assert make.claim("validate") == []
    make.services.lanes.resume(make.site_id, "lane", actor=ACTOR)

    assert len(make.claim("validate")) == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"+++\ntitle = 3\n+++\n", "title is no text"),
        (b"+++\nx = 3\n+++\n", "has a 'x'"),
        (b"+++\ntitle\n+++\n", "no TOML"),
        (b"+++\n", "no end"),
        (b"a\nb\xff", ":2: not UTF-8"),
        (b"a\nb\x00", ":2: holds the control"),
        (b"x" * (3 << 20), "longer than"),
        (b"+++\nfields = 3\n+++\n", "fields is no table"),
    ],
)
def test_a_text_that_cannot_be_read_is_named(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "sites/a/texts/x.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)

    with pytest.raises(ProjectError, match=f"sites/a/texts/x.md.*{why}"):
        load_text(path, "Title")


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    fields = {"a": "b \x7f \"'\\ ü", "list": ["x", {"y": "z"}], "n": 1, "yes": True}
    path = tmp_path / "a.md"
    path.write_bytes(written('A "b" #1', "Body\n\n+++\n", fields, "old.md"))

    draft = load_text(path, "Title")

    assert (draft.title, draft.description, draft.body) == ("Title", 'A "b" #1', "Body\n\n+++\n")
    assert draft.fields == fields
