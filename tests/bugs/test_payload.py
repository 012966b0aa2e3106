"""Public bug reports of comparable systems, tried on ours: values that cannot be stored (O-39 to O-42)."""

import random
import string
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from pipeline import Done, Draft, Fail, Finding, Hold, Outcome, Reject, Repair, Retry, Snooze, Stage
from pipeline.db import sqlstate
from pipeline.errors import ProjectError
from pipeline.project.site import Site
from pipeline.project.topics import load_topics
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.planning import StageSpec
from pipeline.states import JobState
from pipeline.verdict import raised, said
from pipeline.views import Claim, TopicView
from tests.db.conftest import Sql
from tests.factories import Factory

ONE = (StageSpec("generate", None, 5),)
BAD_TEXTS = {"nul": "a\x00b", "lone surrogate": "\ud83d"}


class Generate(Stage):
    def run(self, topic: TopicView, ctx: Any) -> Done:
        return Done()


def deep(value: Any) -> dict[str, Any]:
    return {"one": [{"two": {"three": value}}]}


def settle(make: Factory, claim: Claim, ack: Ack) -> JobState:
    """Say it beside others that are well; the job's state afterwards."""
    others = make.claim("generate", 5)
    acks = [Ack(others[0], Verb.RELEASE), ack, *(Ack(c, Verb.RELEASE) for c in others[1:])]
    settled = make.services.work.acknowledge(acks, wait=True)
    assert set(settled.fates.values()) == {Fate.WRITTEN}
    return make.state(claim.job_id)


OUTCOMES: dict[str, Callable[[str], Outcome]] = {
    "body": lambda t: Done(Draft("t", "d", t)),
    "title": lambda t: Done(Draft(t, "d", "b")),
    "field": lambda t: Done(Draft("t", "d", "b", deep(t))),
    "field's name": lambda t: Done(Draft("t", "d", "b", deep({t: 1}))),
    "lineage": lambda t: Done(Draft("t", "d", "b", {}, deep(t))),
    "finding": lambda t: Done(Draft("t", "d", "b"), [Finding(t, t)]),
    "metrics": lambda t: Done(Draft("t", "d", "b"), metrics=deep(t)),
    "reject": lambda t: Reject([Finding(t, t)]),
    "retry": Retry,
    "snooze": lambda t: Snooze(timedelta(seconds=1), t),
    "hold": Hold,
    "fail": Fail,
    "repair": Repair,
}
KEPT = {"body", "title", "field", "field's name", "lineage", "metrics"}  # content: not changed in silence


@pytest.mark.parametrize("text", BAD_TEXTS)
@pytest.mark.parametrize("where", OUTCOMES)
def test_o39_no_text_of_a_stage_leaves_its_job_reserved(make: Factory, sql: Sql, where: str, text: str) -> None:
    """NUL and lone surrogates wherever a stage can put them: content that cannot be kept as it is goes to a person,
    words about it are stored with a mark in place of the sign; the job is never stuck, nor are its neighbours."""
    make.site(stages=ONE)
    make.plan(count=3)
    (claim,) = make.claim("generate")

    state = settle(make, claim, said(claim, OUTCOMES[where](BAD_TEXTS[text]), Generate()))

    assert state is not JobState.RESERVED
    if where in KEPT:
        assert state is JobState.REPAIR
        assert make.job(claim.job_id).error_class
        assert sql("SELECT count(*) FROM revisions")[0][0] == 0
    else:
        stored = "".join(str(row) for table in ("jobs", "attempts", "findings") for row in sql(f"TABLE {table}"))
        assert "\N{REPLACEMENT CHARACTER}" in stored or "?" in stored


def test_o39_what_only_looks_like_a_nul_is_kept(make: Factory, sql: Sql) -> None:
    """The six signs of a JSON escape, and a backslash before them, are ordinary text."""
    text = r"\u0000 and \\u0000 and \ud83d"
    make.site(stages=ONE)
    make.services.planning.plan(make.site_id, [make.row("lane", 1, brief={text: [text]})])
    (claim,) = make.claim("generate")
    assert claim.topic is not None
    assert claim.topic.brief == {text: [text]}

    make.say(claim, draft=Draft("t", "d", text, {text: text}), metrics={text: text})

    row = sql("SELECT body, front_matter FROM revisions")[0]
    assert (row.body, row.front_matter) == (text, {text: text})
    assert sql("SELECT metrics FROM attempts")[0][0] == {text: text}


def test_o39_an_operator_may_say_anything(make: Factory, sql: Sql) -> None:
    """Actor and reason of a verb are stored clean."""
    (job_id,) = make.plan()

    make.services.operate.cancel([job_id], actor="a\x00\ud83d", reason="\x00" + "x" * 100_000)

    row = sql("SELECT actor, reason FROM events WHERE job_id = :id", id=job_id)[0]
    assert row.actor == "a\N{REPLACEMENT CHARACTER}?"
    assert len(row.reason.encode()) <= 4000


def site_with(folder: Path, rows: str) -> Site:
    (folder / "topics.csv").write_bytes(b"lane,position,slug,title,type,note\n" + rows.encode("utf-8", "surrogatepass"))
    return Site(slug="acme", folder=folder, output=folder, name="Acme", base_url="https://acme.example")


@pytest.mark.parametrize("note", ["a\x00b", "\ud83d"])
def test_o39_a_file_with_such_text_is_refused_with_its_place(tmp_path: Path, note: str) -> None:
    """Line and column are named, and nothing of it comes to the database."""
    site = site_with(tmp_path, f"lane,1,good,Good,page,fine\nlane,2,bad,Bad,page,{note}\n")

    with pytest.raises(ProjectError, match=r"topics\.csv:3: ") as caught:
        load_topics(site)

    assert "nothing was imported" in str(caught.value)


NO_JSON: dict[str, Callable[[], Any]] = {
    "nan": lambda: float("nan"),
    "infinity": lambda: float("-inf"),
    "1e400": lambda: float("1e400"),
    "date": lambda: datetime(2026, 1, 1),
    "set": lambda: {1},
    "bytes": lambda: b"x",
    "far too deep": lambda: _tower(100_000),
    "circle": lambda: _circle(),
}


def _tower(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("place", ["front matter", "metrics"])
@pytest.mark.parametrize("what", NO_JSON)
def test_o40_what_json_cannot_say_goes_to_a_person(make: Factory, sql: Sql, what: str, place: str) -> None:
    """Numbers that are none, and things that are no JSON: repair, with the reason, and no word of it stored."""
    make.site(stages=ONE)
    make.plan(count=3)
    (claim,) = make.claim("generate")
    value = deep(NO_JSON[what]())
    done = Done(Draft("t", "d", "b", value)) if place == "front matter" else Done(Draft("t", "d", "b"), metrics=value)

    state = settle(make, claim, said(claim, done, Generate()))

    assert state is JobState.REPAIR
    assert sql("SELECT error FROM attempts WHERE job_id = :id", id=claim.job_id)[0][0]
    assert sql("SELECT count(*) FROM revisions")[0][0] == 0


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class Endless(Exception):
    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return str(self)


FAILURES: Mapping[str, Callable[[], BaseException]] = {
    "10 MiB": lambda: RuntimeError("x" * (10 << 20)),
    "10 MiB of snow": lambda: RuntimeError("\N{SNOWMAN}" * (10 << 20)),
    "nul": lambda: RuntimeError("a\x00" * 5000),
    "surrogate": lambda: RuntimeError("\ud83d" * 5000),
    "mute": Mute,
    "endless": Endless,
    "long name": lambda: type("E" * 100_000, (Exception,), {})("why"),
    "arguments": lambda: KeyError("\x00", b"\xff", "\udfff"),
    "group": lambda: ExceptionGroup("many\x00", [ValueError("a" * 5000)] * 50),
}


@pytest.mark.parametrize("what", FAILURES)
def test_o41_a_failure_is_recorded_whatever_it_says(make: Factory, sql: Sql, what: str) -> None:
    """A message of any length, with any sign, or none that can be read: a failed attempt with a clean text, cut at a
    character within 4000 bytes; and the job is tried again."""
    make.site(stages=ONE)
    make.plan(count=3)
    (claim,) = make.claim("generate")

    state = settle(make, claim, raised(claim, Generate(), FAILURES[what]()))

    assert state is JobState.PENDING
    row = sql("SELECT outcome, error, error_class FROM attempts WHERE job_id = :id", id=claim.job_id)[0]
    assert (row.outcome, bool(row.error)) == ("retry", True)
    assert len(row.error.encode()) <= 4000
    assert len(row.error_class.encode()) <= 200
    assert "\x00" not in row.error


LONG = {
    "3,000 random": "".join(random.Random(1).choices(string.ascii_lowercase + string.digits, k=3000)),
    "100,000 equal": "a" * 100_000,
    "201 bytes": "a" * 201,
}


@pytest.mark.parametrize("column", ["lane", "slug"])
@pytest.mark.parametrize("length", LONG)
def test_o42_a_name_that_is_too_long_for_an_index_is_refused_before(
    make: Factory, tmp_path: Path, column: str, length: str
) -> None:
    """By the file with line and column; and by the database's own rule of lengths (23514), never by its index
    (54000)."""
    lane, slug = (LONG[length] if column == name else name for name in ("lane", "slug"))
    site = site_with(tmp_path, f"{lane},1,{slug},Title,page,x\n")

    with pytest.raises(ProjectError, match=rf"topics\.csv:2: column {column}: is longer than"):
        load_topics(site)

    make.site()
    with pytest.raises(DBAPIError) as refused:
        make.services.planning.plan(make.site_id, [replace(make.row("lane", 1), lane=lane, slug=slug)])
    assert sqlstate(refused.value) == "23514"
    make.plan()  # a name of an ordinary length is no worse for it
    assert make.job_ids()


@pytest.mark.parametrize("length", ["3,000 random", "100,000 equal"])
def test_o42_so_is_a_path(make: Factory, length: str) -> None:
    """The address of a page, which is unique too."""
    make.site()

    with pytest.raises(DBAPIError) as refused:
        make.services.planning.plan(make.site_id, [make.row("lane", 1, path=LONG[length])])

    assert sqlstate(refused.value) == "23514"
    assert make.job_ids() == []


@pytest.mark.parametrize("length", ["3,000 random", "100,000 equal"])
def test_o42_titles_and_findings_of_any_length_are_found_again_by_their_hash(
    make: Factory, sql: Sql, length: str
) -> None:
    """What twins are looked for by is a key of fixed length; a finding's rule is cut."""
    make.site(stages=ONE)
    make.plan()
    (claim,) = make.claim("generate")

    make.say(claim, draft=Draft(LONG[length], LONG[length], "b"), findings=[Finding(LONG[length], "m")])

    assert make.state(claim.job_id) is JobState.DONE
    assert sql("SELECT title FROM revisions")[0][0] == LONG[length]
    assert max(len(row[0]) for row in sql("SELECT title_key FROM revisions")) <= 64
    assert len(sql("SELECT rule FROM findings")[0][0].encode()) <= 100
    assert make.services.reading.twins(make.site_id, 0, Draft(LONG[length], "", ""))["title"] == ["lane-1"]
    make.services.lanes.list(make.site_id)
    assert make.services.reading.jobs(make.site_id, [JobState.DONE], 5)[0].topic == "lane-1"
