"""``pipeline jobs`` with a filter, with ``--force`` and ``--dry-run``: what is picked, what is told, what is asked."""

from collections.abc import Callable

import pytest

from pipeline.service.acknowledging import Verb
from pipeline.states import JobState
from tests.doors.scene import Door, Said
from tests.doors.test_terminal import Terminal
from tests.factories import Factory

Inside = Callable[[str], Said]


def two_lanes(make: Factory) -> dict[str, list[int]]:
    """Three jobs at generate in each of two lanes: the first failed, with an error class of its own lane."""
    ids = {lane: make.plan(lane=lane, count=3) for lane in ("here", "there")}
    for claim in make.claim("generate", 6):
        assert claim.topic is not None
        if claim.topic.position == 1:
            make.say(claim, Verb.FAIL, error_class=f"{claim.topic.lane}-error", error="no")
        else:
            make.say(claim, Verb.RELEASE)
    return ids


def test_a_filter_moves_what_it_picks(door: Door, make: Factory, inside: Inside) -> None:
    """By lane, stage, state and class of error; a dry run says what would be, and leaves it."""
    ids = two_lanes(make)
    here, there = ids["here"][0], ids["there"][0]

    dry = inside("jobs requeue --site acme --lane here --state failed --dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert [line.split() for line in dry.out.splitlines()] == [
        ["job", "is", "would", "be", "stage"],
        [str(here), "failed", "pending", "generate"],
        ["1", "job", "would", "be", "requeued"],
    ]
    assert make.state(here) is JobState.FAILED

    done = inside("jobs requeue --site acme --error here-error --json").json
    assert done == {
        "moved": [{"job": here, "from": "failed", "to": "pending", "stage": "generate"}], "count": 1, "dry_run": False
    }  # fmt: skip
    assert make.state(there) is JobState.FAILED
    skipped = inside("jobs skip --site acme --lane there --at generate --yes").out.splitlines()
    assert skipped[-1] == "3 jobs were skipped"
    assert {make.state(i) for i in ids["there"]} == {JobState.SKIPPED}
    assert {make.state(i) for i in ids["here"]} == {JobState.PENDING}


def test_a_filter_that_picks_nothing_says_so(door: Door, make: Factory, inside: Inside) -> None:
    """That is no mistake: whoever repeats a command finds it done."""
    make.plan()

    text = inside("jobs requeue --site acme --lane lane --state failed")
    json = inside("jobs requeue --site acme --state failed --json")

    assert (text.code, text.out) == (0, "")
    assert text.err == "no job of site acme, lane lane, failed can be requeued; see: pipeline jobs list --site acme\n"
    assert (json.code, json.json) == (0, {"moved": [], "count": 0, "dry_run": False})


def test_jobs_are_listed_by_the_same_filters(door: Door, make: Factory, inside: Inside) -> None:
    ids = two_lanes(make)

    def listed(words: str) -> list[int]:
        return [job["id"] for job in inside(f"jobs list {words} --json").json["jobs"]]

    assert listed("--site acme --lane there") == ids["there"]
    assert listed("--error here-error") == [ids["here"][0]]
    assert listed("--site acme --lane here --state pending --at generate") == ids["here"][1:]
    assert listed("--at publish") == []
    assert inside("jobs list --site acme --lane her").err.startswith("error: no lane 'her' in site 'acme'; did you")


def test_force_takes_a_reservation(door: Door, make: Factory, inside: Inside) -> None:
    """Without it a running job is asked to stop, and cannot be skipped; with it its holder has nothing any more."""
    first, second = make.plan(count=2)
    claims = make.claim("generate", 2)

    assert inside(f"jobs skip {first}").err == (
        f"error: job {first} is reserved; only cancelled, failed, pending, repair, waiting can be skipped;"
        " cancel it first, or take it from its holder: --force\n"
    )
    assert inside(f"jobs cancel {first} --dry-run").out == f"job {first} would be asked to stop at generate\n"
    assert inside(f"jobs cancel {first} --force --dry-run").out == (
        f"job {first} would go reserved → cancelled at generate\n"
    )
    assert make.state(first) is JobState.RESERVED
    assert inside(f"jobs cancel {first} --force").out == f"job {first} reserved → cancelled at generate\n"
    assert inside("jobs skip --site acme --state reserved --force --json").json["moved"] == [
        {"job": second, "from": "reserved", "to": "skipped", "stage": "generate"}
    ]
    assert make.say(claims[0]).outcomes == {}
    assert (make.state(first), make.state(second)) == (JobState.CANCELLED, JobState.SKIPPED)


def test_attempts_are_granted(door: Door, make: Factory, inside: Inside) -> None:
    """To what still moves, by number and by filter."""
    first, second = make.plan(count=2)

    assert inside(f"jobs grant {first} --attempts 1 --dry-run").out == (
        f"job {first} (pending) might be tried 1 time more at generate\n"
    )
    assert inside(f"jobs grant {first} --attempts 2").out == (
        f"job {first} (pending) may be tried 2 times more at generate\n"
    )
    assert inside("jobs grant --site acme --attempts 3 --json").json["count"] == 2
    assert [make.job(i).max_attempts for i in (first, second)] == [10, 8]


def test_what_is_held_is_approved(door: Door, make: Factory, inside: Inside) -> None:
    """It goes on at its place; what explain says of it names this very command."""
    (job_id,) = make.advance_to("publish")
    make.say(make.claim("publish")[0], Verb.HOLD, hold="read it first")
    assert f"pipeline jobs approve {job_id}" in inside("explain acme/lane-1").out

    assert inside(f"jobs approve {job_id}").out == f"job {job_id} waiting → pending at publish\n"

    assert make.claim("publish")[0].approved


def test_on_a_terminal_it_says_how_many_and_asks(door: Door, make: Factory) -> None:
    """No leaves all as it is; of nothing nobody is asked."""
    ids = two_lanes(make)
    for answer, code in (("n\n", 1), ("y\n", 0)):
        terminal = Terminal(door, ("jobs", "skip", "--site", "acme", "--lane", "here"))
        terminal.until("give 3 jobs of site acme, lane here up for good? nothing brings a skipped one back [y/N]")
        terminal.type(answer)
        assert terminal.end() == code, terminal.seen
        assert {make.state(i) for i in ids["here"][1:]} == {JobState.PENDING if code else JobState.SKIPPED}
    nothing = Terminal(door, ("jobs", "skip", "--site", "acme", "--lane", "here"))
    assert nothing.end() == 0, nothing.seen


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("jobs requeue", "name jobs by number, or pick them: --site NAME, and --lane, --at, --state or --error"),
        ("jobs requeue 1 --site acme --at generate", "name jobs by number, or pick them by --site, --at; not both"),
        ("jobs cancel --lane lane --state pending", "--lane, --state: name the site as well: --site NAME"),
        ("jobs requeue --site acme --state done", "--state done: only cancelled, failed, repair can be requeued"),
        (
            "jobs skip --site acme --state reserved",
            "--state reserved: only cancelled, failed, pending, repair, waiting",
        ),
        ("jobs grant --site acme --state pendig", "no state 'pendig'; states: waiting"),
        ("jobs cancel --site acme --lane lame", "no lane 'lame' in site 'acme'; did you mean 'lane'?"),
        ("jobs cancel --site acme --at generat", "no stage 'generat' in site 'acme'; did you mean 'generate'?"),
        ("jobs cancel --site acne", "no site 'acne' in the database; did you mean 'acme'?"),
        ("jobs list --lane lane", "--lane: lanes are named within their site"),
        ("jobs grant 1 --attempts 0", "--attempts"),
    ],
)
def test_half_a_filter_is_wrong_usage(door: Door, make: Factory, inside: Inside, words: str, message: str) -> None:
    (job,) = make.plan()

    said = inside(words)

    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert make.state(job) is JobState.PENDING
