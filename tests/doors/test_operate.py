"""``pipeline status``, ``topics`` and ``jobs``: keys, answers, refusals."""

from collections.abc import Callable

import pytest

from pipeline.service.acknowledging import Verb
from pipeline.states import JobState
from tests.doors.scene import Door, Said
from tests.doors.test_run import JOB, STAGE
from tests.factories import Factory

TOPIC = {"slug", "title", "type", "lane", "position", "path", "pass", "job_id", "stage", "state", "live_path"}
DETAIL = {
    "id", "slug", "title", "type", "lane", "position", "path", "brief", "pass", "revisions", "draft_title",
    "description", "body", "content_hash",
}  # fmt: skip
PACE = {"overdue", "stuck", "halted", "per_minute", "left_seconds"}
SITE_STATUS = {"site", "topics", "live", "workers", "stages", "symptoms"} | PACE
ATTEMPT = {"stage", "round", "outcome", "reserved_at", "ended_at", "worker", "error_class", "error"}
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\nfake: line \u202e[red]x[/red]"


def test_status_counts_by_stage(door: Door, make: Factory) -> None:
    """One row a stage, in the order of the pipeline, with a column for each state."""
    make.in_state(JobState.WAITING)

    found = door("status", "--json", env={"COLUMNS": "20"}).json

    assert set(found) == {"sites"}
    assert [set(site) for site in found["sites"]] == [SITE_STATUS]
    assert [set(stage) for stage in found["sites"][0]["stages"]] == [STAGE | PACE] * 3
    assert [stage["stage"] for stage in found["sites"][0]["stages"]] == ["generate", "validate", "publish"]
    assert (found["sites"][0]["stages"][2]["waiting"], found["sites"][0]["stages"][2]["ready"]) == (1, 1)
    assert "acme: 0 of 2 topics live" in door("status", "--site", "acme").out


def test_topics_are_listed_and_shown(door: Door, make: Factory) -> None:
    """Rows are whole in a pipe, however narrow the terminal is said to be."""
    make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], Verb.FAIL, error_class="fail", error=HOSTILE)

    found = door("topics", "list", "--site", "acme", "--json").json
    text = door("topics", "list", "--site", "acme", "--lane", "lane", env={"COLUMNS": "20"})
    one = door("topics", "show", "acme/lane-1", "--json").json
    told = door("topics", "show", "acme/lane-1").out

    assert set(found) == {"site", "topics"}
    assert [set(topic) for topic in found["topics"]] == [TOPIC] * 2
    assert text.out.splitlines()[1].split() == [
        "lane",
        "1",
        "lane-1",
        "page",
        *["failed", "at", "publish", "Title", "of", "lane-1"],
    ]
    assert set(one) == {"site", "topic", "attempts", "live"}
    assert set(one["topic"]) == DETAIL
    assert [set(attempt) for attempt in one["attempts"]] == [ATTEMPT] * 3
    assert "Body of lane-1, round 0." in told
    assert r"\x1b]0;owned\x07\x1b[2J\r\nfake: line \u202e[red]x[/red]" in told


def test_jobs_are_listed_one_line_each(door: Door, make: Factory) -> None:
    """Hostile errors neither break a line nor reach the terminal; a limit is told."""
    ids = make.advance_to("publish", count=3)
    make.say(make.claim("publish")[0], Verb.FAIL, error_class="fail", error=HOSTILE)

    found = door("jobs", "list", "--state", "failed", "--site", "acme", "--json").json
    text = door("jobs", "list", "--limit", "2")

    assert set(found) == {"jobs", "more"}
    assert [set(job) for job in found["jobs"]] == [JOB]
    assert found["jobs"][0]["error"] == HOSTILE
    assert [line.split()[0] for line in text.out.splitlines()] == ["job", *map(str, ids[:2])]
    assert "there are more" in text.err


def test_jobs_move_all_or_none(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """Requeue, cancel and skip answer what moved; one wrong number, and nothing does."""
    first, second = make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], Verb.FAIL, error_class="fail", error="no")

    refused = inside(f"jobs requeue {first} {second}")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"error: job {second} is waiting; only cancelled, failed, repair can be requeued")
    assert make.state(first) is JobState.FAILED

    moved = inside(f"jobs requeue {first} --attempts 2 --reason mended --json").json
    assert moved == {
        "moved": [{"job": first, "from": "failed", "to": "pending", "stage": "publish"}], "count": 1, "dry_run": False
    }  # fmt: skip
    assert make.state(first) is JobState.PENDING  # promoted at once: it is the head
    assert inside(f"jobs cancel {first} --yes --json").json["moved"][0]["to"] == "cancelled"
    assert door("jobs", "skip", str(first)).out == f"job {first} cancelled → skipped at publish\n"
    assert make.state(second) is JobState.PENDING
    make.claim("publish")
    assert inside(f"jobs cancel {second} --yes").out == f"job {second} is asked to stop at publish\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("jobs requeue 999999", 2, "no job 999999; see: pipeline jobs list"),
        ("jobs skip 0", 2, "greater than or equal to 1"),
        ("jobs skip 99999999999999999999", 2, "less than or equal to 9223372036854775807"),
        ("jobs skip", 2, "name jobs by number, or pick them: --site NAME, and --lane, --at, --state or --error; see:"),
        ("jobs list --state fialed", 2, "no state 'fialed'; states: waiting, pending, reserved, done, failed"),
        ("jobs list --site acne", 2, "no site 'acne' in the database; did you mean 'acme'?"),
        ("status --site zzz", 2, "no site 'zzz' in the database; there is: acme"),
        ("status --site demo", 2, "site 'demo' was never run; run: pipeline run --site demo"),
        ("topics list", 2, "missing option '--site'"),
        ("topics list --site acme --lane lame", 2, "no lane 'lame' in site 'acme'; did you mean 'lane'?"),
        ("topics show acme", 2, "write SITE/SLUG"),
        ("topics show acme/lane-9", 2, "no topic 'lane-9' in site 'acme'; did you mean 'lane-1'?"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    door: Door, make: Factory, inside: Callable[[str], Said], words: str, code: int, message: str
) -> None:
    """The thing, the fact and the next step, on standard error alone."""
    make.plan()

    said = inside(words)

    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert message in said.err
