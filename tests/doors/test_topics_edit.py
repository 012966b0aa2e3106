"""``pipeline topics edit --draft`` and ``--resume``: a topic goes on where it stood, and nothing typed is lost."""

import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from pipeline.service.acknowledging import Verb
from pipeline.sql.tables import attempts, jobs, revisions, topics
from pipeline.states import JobState
from tests.doors.scene import STAGES, Door, Said
from tests.factories import Factory

Typed = Callable[..., Said]
CHECKS = """class Check(Stage):
    def run(self, topic, ctx):
        if topic.brief.get("mood") == "unsure" or "bad" in ctx.draft.body:
            return Repair("a person must look")
        if topic.brief.get("mood") == "reject" and "mended" not in ctx.draft.body:
            return Reject([Finding("too-short", "write more")])
        return Done()
"""
FILE = "sites/demo/topics.csv"
EDITED = {"site", "topic", "revision", "resumed", "dry_run"}


def editor(root: Path, script: str) -> dict[str, str]:
    """An editor that does as the script says with the file ``$1``."""
    path = root / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"EDITOR": str(path), "VISUAL": "", "TMPDIR": str(root / "tmp")}


def history(make: Factory) -> list[tuple[str, int, str, str]]:
    """``(topic, pass, stage, outcome)`` of all attempts, in the order of their reservations."""
    with make.engine.begin() as connection:
        found = connection.execute(
            select(topics.c.slug, jobs.c["pass"], attempts.c.stage, attempts.c.outcome)
            .select_from(
                attempts.join(jobs, jobs.c.id == attempts.c.job_id).join(topics, topics.c.id == jobs.c.topic_id)
            )
            .order_by(attempts.c.fence)
        )
        return [(row[0], row[1], row[2], row[3]) for row in found]


@pytest.mark.slow
def test_what_a_person_mends_goes_on_where_it_stood(door: Door, make: Factory) -> None:
    """A draft, one that was rejected in its last round, and a row: each from check on, at its place in the lane."""
    door.stages(re.sub(r"class Check.*?return Done\(\)\n", lambda _: CHECKS, STAGES, flags=re.DOTALL))
    door.rows(
        "a,1,a1,Fine,page,", "a,2,a2,A bad one,page,", "a,3,a3,Three,page,reject", "a,4,a4,Four,page,",
        "b,1,b1,One,page,unsure", "b,2,b2,Two,page,",
    )  # fmt: skip
    assert door("run", "--site", "demo", "--workers", "1").code == 1
    before = history(make)
    text = door.root / "mended.md"
    text.write_text("+++\ntitle = 'Good'\n+++\nGood, and mended.\n")

    draft = door("topics", "edit", "demo/a2", "--draft", "--from", "mended.md", "--resume", "--reason", "by hand")
    rejected = door("topics", "edit", "demo/a3", "--draft", "--from", "mended.md", "--resume", "--json").json
    row = door("topics", "edit", "demo/b1", "--set", "mood=", "--resume", "--json").json
    assert door("run", "--site", "demo", "--workers", "1").code == 0

    assert "the draft of topic demo/a2 was changed: revision 2\n" in draft.out
    assert "repair → pending at check\n" in draft.out
    assert (set(rejected), rejected["resumed"]["stage"]) == (EDITED, "check")
    assert (row["columns"], row["resumed"]["to"], row["resumed"]["stage"]) == (["mood"], "pending", "check")
    since = history(make)[len(before) :]
    assert [s for s in since if s[0] == "a2"] == [("a2", 1, "check", "done"), ("a2", 1, "release", "done")]
    assert [s for s in since if s[0] == "a3"] == [("a3", 1, "check", "done"), ("a3", 1, "release", "done")]
    assert [s for s in since if s[0] == "b1"][:2] == [("b1", 1, "check", "done"), ("b1", 1, "release", "done")]
    released = [slug for slug, number, stage, _ in history(make) if (number, stage) == (1, "release")]
    assert [slug for slug in released if slug[0] == "a"] == ["a1", "a2", "a3", "a4"]
    assert [slug for slug in released if slug[0] == "b"] == ["b1", "b2"]
    assert (door.root / "public/demo/a2/index.html").read_text() == "Good, and mended.\n"
    assert door("run", "--site", "demo", "--workers", "1", "--json").json["passes"] == 0


@pytest.fixture
def stood(door: Door, make: Factory, monkeypatch: pytest.MonkeyPatch) -> Factory:
    """A topic ``demo/lane-1`` that is to be repaired at validate; there is a place for temporary files to look at."""
    make.site("demo")
    make.advance_to("validate")
    make.say(make.claim("validate")[0], Verb.REPAIR, error_class="repair", error="a person must look")
    (door.root / "tmp").mkdir()
    for name, value in editor(door.root, 'sed -i "s/Body/Text/" "$1"').items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", None)
    return make


def kept(door: Door) -> list[Path]:
    return list((door.root / "tmp").rglob("*.md"))


def bodies(make: Factory) -> list[str]:
    with make.engine.begin() as connection:
        return list(connection.execute(select(revisions.c.body).order_by(revisions.c.number)).scalars())


def test_a_draft_is_opened_in_the_editor(door: Door, stood: Factory, typed: Typed) -> None:
    """Saved, it is a revision, and no file is left; the pass goes on only where that was asked."""
    said = typed("topics", "edit", "demo/lane-1", "--draft")
    assert (said.code, said.out) == (0, "the draft of topic demo/lane-1 was changed: revision 2\n")
    assert bodies(stood) == ["Body of lane-1, round 0.", "Text of lane-1, round 0.\n"]
    assert stood.state(stood.job_ids()[0]) is JobState.REPAIR

    again = typed("topics", "edit", "demo/lane-1", "--draft", "--resume")
    assert (again.code, again.out) == (0, "the draft of topic demo/lane-1 says so already; nothing was changed\n")
    assert "it is not resumed either" in again.err
    assert (len(bodies(stood)), kept(door)) == (2, [])


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ('echo mine >>"$1"; exit 3', 1, "ended with 3; nothing was changed"),
        ('printf "+++\\nmine" >"$1"', 2, "its header has no end"),
        ('printf "mine\\033" >"$1"', 2, "the draft:1: holds the control character"),
    ],
)
def test_what_was_typed_is_kept_when_it_is_refused(
    door: Door, stood: Factory, typed: Typed, script: str, code: int, message: str
) -> None:
    """In a file that is named, with the command that writes it again."""
    editor(door.root, script)

    said = typed("topics", "edit", "demo/lane-1", "--draft", "--resume")

    (file,) = kept(door)
    assert (said.code, said.out) == (code, "")
    assert message in said.err
    assert f"what you wrote is kept in {file}; to write it again: pipeline topics edit demo/lane-1 --draft" in said.err
    assert "mine" in file.read_text()
    assert bodies(stood) == ["Body of lane-1, round 0."]
    assert stood.state(stood.job_ids()[0]) is JobState.REPAIR


def test_another_draft_that_came_meanwhile_is_not_written_over(
    door: Door, stood: Factory, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one types, another saves: the first is told, keeps the text, and the topic stays as it is."""
    other = f"{sys.executable} -m pipeline.cli.main topics edit demo/lane-1 --draft --from other.md"
    (door.root / "other.md").write_text("The other's.\n")
    editor(door.root, f'echo mine >>"$1"; {other} >/dev/null 2>&1')
    monkeypatch.setenv("PYTHONPATH", door.environment()["PYTHONPATH"])

    said = typed("topics", "edit", "demo/lane-1", "--draft", "--resume")

    assert (said.code, said.out) == (1, "")
    assert "revision 2 came meanwhile, and yours was not written over it" in said.err
    assert "mine" in kept(door)[0].read_text()
    assert bodies(stood)[1:] == ["The other's.\n"]
    assert stood.state(stood.job_ids()[0]) is JobState.REPAIR


def test_a_draft_is_read_from_standard_input(
    door: Door, stood: Factory, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run writes nothing; what is refused is kept as well."""

    def give(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    give(b"Given.")
    dry = typed("topics", "edit", "demo/lane-1", "--draft", "--from", "-", "--resume", "--dry-run", "--json").json
    assert (dry["revision"], dry["resumed"]["to"], dry["dry_run"]) == (2, "pending", True)
    assert (len(bodies(stood)), stood.state(stood.job_ids()[0])) == (1, JobState.REPAIR)
    give(b"Broken\xff.")
    assert typed("topics", "edit", "demo/lane-1", "--draft", "--from", "-").code == 2
    assert kept(door)[0].read_bytes() == b"Broken\xff."
    give(b"Given.")
    assert typed("topics", "edit", "demo/lane-1", "--draft", "--from", "-", "--resume").code == 0
    assert bodies(stood)[1:] == ["Given.\n"]
    assert stood.state(stood.job_ids()[0]) is JobState.PENDING


def test_without_an_editor_the_other_way_is_named(
    door: Door, stood: Factory, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "")
    none = typed("topics", "edit", "demo/lane-1", "--draft")
    monkeypatch.setenv("EDITOR", "no-such-editor --wait")
    strange = typed("topics", "edit", "demo/lane-1", "--draft")

    assert (none.code, none.err) == (
        1, "error: no editor is named; set EDITOR, or give the draft with --from FILE\n"
    )  # fmt: skip
    assert strange.err == (
        "error: the editor 'no-such-editor' cannot be started: No such file or directory; set EDITOR\n"
    )
    assert os.listdir(door.root / "tmp") == []


@pytest.mark.parametrize("form", [("--set", "mood=x"), ("--draft", "--from", "text.md")], ids=["row", "draft"])
def test_what_does_not_stand_is_not_resumed(door: Door, make: Factory, typed: Typed, form: tuple[str, ...]) -> None:
    """Refused before anything is written: pending, running, over."""
    make.site("demo")
    rows = [make.row("a", 1, slug="a1", path="a1/")]
    make.services.planning.plan(make.site_id, rows)
    (door.root / "text.md").write_text("Text.\n")
    before = (door.root / FILE).read_bytes()

    pending = typed("topics", "edit", "demo/a1", *form, "--resume")
    claim = make.claim("generate")[0]
    running = typed("topics", "edit", "demo/a1", *form, "--resume")
    make.say(claim, Verb.FAIL, error_class="fail", error="no")
    make.services.operate.skip([claim.job_id], actor="test")
    over = typed("topics", "edit", "demo/a1", *form, "--resume")

    assert [(said.code, said.out) for said in (pending, running, over)] == [(1, "")] * 3
    for said, part in ((pending, "is pending at generate"), (running, "is running"), (over, "no unfinished pass")):
        assert part in said.err
    assert (door.root / FILE).read_bytes() == before


def test_a_draft_where_drafts_are_made_is_not_resumed_there(door: Door, make: Factory, typed: Typed) -> None:
    """It would be written over at once; how it goes on behind that stage is told, and works."""
    make.site("demo")
    (job,) = make.plan()
    make.say(make.claim("generate")[0], Verb.FAIL, error_class="fail", error="no")
    (door.root / "text.md").write_text("Text.\n")

    refused = typed("topics", "edit", "demo/lane-1", "--draft", "--from", "text.md", "--resume")
    assert (refused.code, refused.err.endswith(f"pipeline jobs requeue {job} --stage validate\n")) == (1, True)
    saved = typed("topics", "edit", "demo/lane-1", "--draft", "--from", "text.md")
    assert "which may write the draft anew" in saved.err
    assert typed("jobs", "requeue", str(job), "--stage", "validate").code == 0

    assert make.claim("validate")[0].draft is not None


def test_a_closed_lane_is_opened_first(door: Door, make: Factory) -> None:
    """A plan leaves its rows out, so the new row would not be what the pass goes on with."""
    make.site("demo")
    make.services.planning.plan(make.site_id, [make.row("a", 1, slug="a1", path="a1/")])
    make.say(make.claim("generate")[0], Verb.FAIL, error_class="fail", error="no")
    make.services.lanes.close(make.site_id, "a", actor="test")
    before = (door.root / FILE).read_bytes()

    said = door("topics", "edit", "demo/a1", "--set", "mood=x", "--resume")

    assert (said.code, said.err) == (1, "error: lane 'a' is closed; open it first: pipeline lanes open demo/a\n")
    assert (door.root / FILE).read_bytes() == before
