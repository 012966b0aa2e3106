"""``pipeline run``: what it answers, and how it stops."""

import signal

import pytest

from tests.doors.scene import CANARIES, Door

REPORT = {
    "site", "exit_code", "seconds", "output", "embedded", "planned", "topics", "live", "passes", "stages", "troubles",
    "later", "notes",
}  # fmt: skip
PLANNED = {"new", "changed", "unchanged", "busy", "absent", "appended", "closed"}
STAGE = {"stage", "waiting", "later", "ready", "running", "failed", "repair", "cancelled"}
JOB = {
    "id", "site", "lane", "topic", "position", "pass", "stage", "state", "round", "attempts", "max_attempts", "run_at",
    "reserved_by", "lease_expires_at", "error_class", "error",
}  # fmt: skip


def test_run_publishes_all_and_then_finds_nothing_to_do(door: Door) -> None:
    """The answer is on standard output, the talk on standard error; a second run changes nothing."""
    first = door.cold("run", "--site", "demo", "--workers", "1")

    assert first.code == 0, first.err
    assert first.out.splitlines()[:2] == ["demo: 6 of 6 topics live", "planned: 6 new, 0 changed, 0 unchanged"]
    assert first.out.splitlines()[3] == "result: public/demo"
    assert "demo: 0 of 6 done" in first.err
    assert (door.root / "public/demo/a1/index.html").read_text() == "Title of a1"

    again = door("run", "--site", "demo", env={"COLUMNS": "20"}).out

    assert "planned: 0 new, 0 changed, 6 unchanged" in again
    assert "worked: 0 passes" in again


def test_run_tells_what_needs_a_person_and_what_helps(door: Door) -> None:
    """Each job with its topic, stage, error, who waits behind it, and commands that work when they are typed."""
    door.moods(a1="fail", b2="reject", b3="later")

    said = door("run", "--site", "demo", "--workers", "1", "--json", "--wait", "0", env={"COLUMNS": "20"})

    assert said.code == 1
    report = said.json
    assert set(report) == REPORT
    assert set(report["planned"]) == PLANNED
    assert [set(row) for row in report["stages"]] == [STAGE] * 3
    assert [row["stage"] for row in report["stages"]] == ["write", "check", "release"]
    assert (report["live"], report["topics"], report["exit_code"]) == (1, 6, 1)
    assert [set(t) for t in report["troubles"]] == [{"job", "waiting_behind", "commands"}] * 2
    failed, rejected = report["troubles"]
    assert set(failed["job"]) == JOB
    assert (failed["job"]["topic"], failed["job"]["state"], failed["waiting_behind"]) == ("a1", "failed", 2)
    assert rejected["job"]["topic"] == "b2"
    assert rejected["commands"][0].endswith("--stage write")
    assert [(x["stage"], x["jobs"]) for x in report["later"]] == [("write", 1)]

    text = door("run", "--site", "demo", "--wait", "0").out

    assert f"job {failed['job']['id']}: a/a1 is failed at write; 2 wait behind it" in text
    assert r"no \x1b[31msuch\nplace [bold]here[/bold]" in text
    assert "too-short: write more; no-link: link somewhere" in text
    assert "waits: 1 job at write, until" in text

    door.moods(b3="later")
    for trouble in report["troubles"]:
        done = door(*trouble["commands"][0].split()[1:])
        assert done.code == 0, done.err
    assert "demo: 5 of 6 topics live" in door("run", "--site", "demo", "--workers", "1", "--wait", "0").out


@pytest.mark.slow
def test_run_notes_rows_that_left_or_came_late(door: Door) -> None:
    """A topic that the file no longer names stays, and one put before a planned one goes to the end; both are told."""
    door.rows("a,2,a2,Title,page,", "b,1,b1,Title,page,")
    assert door("run", "--site", "demo", "--workers", "1").code == 0
    door.rows("a,1,a1,Title,page,", "a,2,a2,Title,page,")

    said = door("run", "--site", "demo", "--workers", "1")

    assert "note: the file no longer names b1; they stay as they are" in said.out
    assert "note: a1 came late" in said.out


@pytest.mark.slow
def test_run_keeps_what_stages_print_out_of_the_answer(door: Door) -> None:
    """With --json, standard output is one document even if stages print, at import or at work."""
    door.stages((door.root / "stages/__init__.py").read_text() + '\nprint("noise at import")\n')
    door.moods(a1="talk")

    said = door("run", "--site", "demo", "--workers", "1", "--json")

    assert said.json["live"] == 6
    assert "noise at import" in said.err
    assert r"noise \x1b]0;title\x07 of a stage" in said.err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_interrupted_gives_back_and_goes_on(door: Door, number: int) -> None:
    """Ctrl-C or SIGTERM while a stage runs: 130, nothing stays reserved, and the same command finishes."""
    door.moods(a1="slow")
    process = door.start("run", "--site", "demo", "--workers", "1", env={"PIPELINE_GRACE": "PT0.2S"})
    door.wait_until_slow()

    process.send_signal(number)
    said = door.end(process)

    assert said.code == 130
    assert said.err.splitlines()[-1] == ("interrupted; what was in hand was given back; run the same command to go on")
    assert said.out == ""
    assert all(job["state"] != "reserved" for job in door("jobs", "list", "--json").json["jobs"])
    (door.root / "go").touch()
    assert door("run", "--site", "demo", "--workers", "1").code == 0


@pytest.mark.slow
def test_run_interrupted_twice_ends_at_once(door: Door) -> None:
    """The second Ctrl-C does not wait for stages; the next run takes back what they held."""
    door.moods(a1="slow")
    process = door.start("run", "--site", "demo", "--workers", "1", env={"PIPELINE_GRACE": "PT50S"})
    door.wait_until_slow()
    assert process.stderr is not None

    process.send_signal(signal.SIGINT)
    while not process.stderr.readline().startswith("stopping:"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = door.end(process)

    assert said.code == 130
    assert said.err.splitlines()[-1].startswith("interrupted at once; the next run takes back what was in hand")
    (door.root / "go").touch()
    assert door("run", "--site", "demo", "--workers", "1").code == 0


@pytest.mark.slow
def test_run_interrupted_before_it_began(door: Door) -> None:
    """Ctrl-C while workers still start leaves no traceback, theirs included, and nothing undone."""
    process = door.start("run", "--site", "demo", "--workers", "2")
    assert process.stderr is not None
    process.stderr.readline()  # the first line of progress: workers were just started

    process.send_signal(signal.SIGINT)
    said = door.end(process)

    assert said.code == 130
    assert door("run", "--site", "demo", "--workers", "1").code == 0


@pytest.mark.slow
def test_run_into_a_place_that_cannot_be_written(door: Door) -> None:
    """An output that cannot be written fails the job with the system's words, and the fix is one requeue away."""
    (door.root / "public").write_text("in the way")
    door.rows("a,1,a1,Title,page,")

    said = door("run", "--site", "demo", "--workers", "1")

    assert said.code == 1
    assert "Not a directory" in said.out
    (door.root / "public").unlink()
    assert door("jobs", "requeue", "--json", said.out.split("requeue ")[1].split()[0]).code == 0
    assert door("run", "--site", "demo", "--workers", "1").code == 0


def test_run_hides_the_password_that_a_stage_quotes(door: Door) -> None:
    """A stage that fails to load while it quotes the URL does not give its password away."""
    door.stages("import os\nraise RuntimeError('cannot use ' + os.environ['PIPELINE_DATABASE_URL'])\n")

    said = door("run", "--site", "demo")

    assert said.code == 2
    assert not any(canary in said.err for canary in CANARIES)
    assert "stages cannot be imported (stages/__init__.py, line 2): RuntimeError" in said.err
