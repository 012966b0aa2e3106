"""``pipeline status``: pace, the three symptoms, and ``--watch``."""

import json
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import IO

from pipeline.build import Services
from pipeline.service.acknowledging import Verb
from tests.db.conftest import sql as _sql
from tests.doors.scene import Door, Said
from tests.doors.test_terminal import Terminal
from tests.factories import Factory

sql = _sql
Inside = Callable[[str], Said]
SYMPTOMS = ["reserved without heartbeat", "failing fast again and again", "never leaves pending"]


def rows(said: Said) -> dict[str, dict[str, object]]:
    return {row["stage"]: row for row in said.json["sites"][0]["stages"]}


def test_the_pace_and_what_is_left_at_it(door: Door, make: Factory, services: Services, inside: Inside) -> None:
    """Done in the last five minutes; what stands before a stage is to pass it as well. Nobody at work: nobody knows."""
    make.plan(count=4)
    for claim in make.claim("generate", 3):
        make.say(claim)
    idle = rows(inside("status --json"))
    services.roster.see("w", 7, None, {"generate": timedelta(seconds=30)})

    found = rows(inside("status --json"))
    text = inside("status").out

    assert (found["generate"]["per_minute"], found["generate"]["left_seconds"]) == (0.6, 100.0)
    assert (found["validate"]["per_minute"], found["validate"]["left_seconds"]) == (0.0, None)
    assert idle["generate"]["left_seconds"] is None
    assert text.startswith("acme: 0 of 4 topics live; 1 worker at work\n")
    assert "100 s" in text


def test_the_three_symptoms_are_named(door: Door, make: Factory, inside: Inside, sql: Callable[..., object]) -> None:
    """With their jobs and the command that helps; overdue, stuck and halted are counted by stage."""
    lost, fast, due, halted = make.plan(count=4)
    for turn in range(4):
        for claim in make.claim("generate", 4 if turn == 0 else 1):
            if claim.job_id == fast and turn < 3:
                make.say(claim, Verb.RETRY, error="boom", delay=timedelta(0))
            elif claim.job_id == due:
                make.say(claim, Verb.RELEASE)
            elif claim.job_id == halted:
                make.say(claim, Verb.FAIL, error="no")
        sql("UPDATE jobs SET run_at = now() + interval '1 hour' WHERE id = :id", id=due)
    sql("UPDATE jobs SET given_back = 0, run_at = now() - interval '5 minutes' WHERE id = :id", id=due)
    make.expire(lost)

    found = inside("status --json").json["sites"][0]
    text = inside("status").out

    assert [s["symptom"] for s in found["symptoms"]] == SYMPTOMS
    assert [[job["job"] for job in s["jobs"]] for s in found["symptoms"]] == [[lost], [fast], [due]]
    assert (found["overdue"], found["stuck"], found["halted"]) == (1, 1, 1)
    for line in (
        f"reserved without heartbeat: 1 job\n  - job {lost} (lane-1): held by test-worker, whose lease is over",
        f"failing fast again and again: 1 job\n  - job {fast} (lane-2): ",
        f"never leaves pending: 1 job\n  - 1 at generate, due for up to 5 min, such as job {due}\n"
        "      nobody works on site acme\n      → pipeline run --site acme",
    ):
        assert line in text


def test_watch_streams_a_document_a_line_until_ctrl_c(door: Door, make: Factory) -> None:
    """Each whole; the end is 130, as of any command."""
    make.plan()
    process = door.start("status", "--watch", "--json")
    stream: IO[str] | None = process.stdout
    assert stream is not None

    lines = [stream.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    said = door.end(process)

    assert [json.loads(line)["sites"][0]["site"] for line in lines] == ["acme", "acme"]
    assert (said.code, said.err) == (130, "interrupted\n")


def test_watch_ends_when_nobody_reads_any_more(door: Door, make: Factory) -> None:
    """``pipeline status --watch | head -1`` comes to an end."""
    make.plan()
    process = door.start("status", "--watch")
    assert process.stdout is not None
    process.stdout.readline()
    os.close(process.stdout.fileno())

    assert process.wait(timeout=30) == 0


def test_watch_on_a_terminal_draws_over_itself(door: Door, make: Factory) -> None:
    """The cursor is hidden while it lasts, and back afterwards."""
    make.plan()
    terminal = Terminal(door, ("status", "--watch"))
    terminal.until("generate")
    terminal.type("\x03")

    assert terminal.end() == 130
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")
    assert "interrupted" in terminal.seen
