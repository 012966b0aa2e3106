"""``pipeline lanes``: keys, answers, refusals."""

import re
from collections.abc import Callable

import pytest

from pipeline.states import JobState
from tests.doors.scene import Door, Said
from tests.factories import Factory

LANE = {"lane", "state", "topics", "live", "waiting", "head", "paused", "on_failed", "overrides"}
HEAD = {"position", "topic", "stage", "state", "job"}
PAUSED = {"at", "by", "reason"}
TURNED = {"site", "lane", "from", "to", "jobs", "running", "dry_run"}
HOSTILE = "\x1b]0;owned\x07\u202e[red]x[/red]"


@pytest.mark.parametrize(
    "words", ["lanes", *(f"lanes {v}" for v in ("list", "pause", "resume", "close", "open", "set"))]
)
def test_help_opens_with_an_imperative_and_ends_with_an_example(inside: Callable[[str], Said], words: str) -> None:
    said = inside(f"{words} --help")

    assert said.code == 0
    assert said.out.split("\n\n", 1)[1].split()[0] in {"List", "Let", "Open"}
    assert re.search(r"\n  Example: pipeline lanes .*\n\n(Arguments|Options):", said.out)


def test_a_lane_is_paused_listed_and_resumed(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """Each answer tells what moved; who paused it, when and why is seen until it goes on."""
    first, second = make.advance_to("publish", count=2)

    paused = inside("lanes pause acme/lane --reason prices --json").json
    found = inside("lanes list --site acme --json").json
    text = inside("lanes list --site acme --state paused").out
    none = inside("lanes list --site acme --state active")
    run = door("status", "--site", "acme", "--json").json

    assert set(paused) == TURNED
    assert (paused["from"], paused["to"], paused["jobs"], paused["running"]) == ("active", "paused", 1, 0)
    assert set(found) == {"site", "lanes"}
    (lane,) = found["lanes"]
    assert (set(lane), set(lane["head"]), set(lane["paused"])) == (LANE, HEAD, PAUSED)
    assert (lane["topics"], lane["live"], lane["waiting"]) == (2, 0, 2)
    assert lane["head"] == {"position": 1, "topic": "lane-1", "stage": "publish", "state": "waiting", "job": first}
    assert lane["paused"]["reason"] == "prices"
    assert "1 lane-1, waiting at publish" in text
    assert ": prices" in text
    assert (none.code, none.out, none.err) == (0, "", "no lane of site 'acme' is active\n")
    assert run["sites"][0]["stages"][2]["waiting"] == 2
    assert make.state(second) is JobState.WAITING

    resumed = inside("lanes resume acme/lane")

    assert resumed.out == "lane acme/lane paused → active; 1 job is ready\n"
    assert "pipeline run --site acme" in resumed.err
    assert inside("lanes list --site acme --json").json["lanes"][0]["paused"] is None
    assert make.state(first) is JobState.PENDING


def test_what_runs_is_told(make: Factory, door: Door, inside: Callable[[str], Said]) -> None:
    """A pause does not stop it."""
    make.advance_to("publish", count=2)
    make.claim("publish")

    assert inside("lanes pause acme/lane").out == (
        "lane acme/lane active → paused; 0 jobs wait; 1 running job may finish\n"
    )


def test_a_lane_of_a_paused_site_is_told_so(make: Factory, door: Door, inside: Callable[[str], Said]) -> None:
    make.plan()
    inside("lanes pause acme/lane")
    inside("sites pause acme")

    assert "pipeline sites resume acme" in inside("lanes resume acme/lane").err


def test_hostile_reasons_reach_no_terminal(make: Factory, door: Door, inside: Callable[[str], Said]) -> None:
    make.plan()
    make.services.lanes.pause(make.site_id, "lane", actor=HOSTILE, reason=HOSTILE)

    assert r"by \x1b]0;owned\x07\u202e[red]x[/red]: \x1b]0;owned\x07" in inside("lanes list --site acme").out
    assert inside("lanes list --site acme --json").json["lanes"][0]["paused"]["reason"] == HOSTILE


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("lanes list", 2, "missing option '--site'"),
        ("lanes list --site acne", 2, "no site 'acne' in the database; did you mean 'acme'?"),
        ("lanes list --site acme --state stopped", 2, "no state 'stopped' of a lane"),
        ("lanes pause acme", 2, "'acme' names no lane; write SITE/LANE, such as acme/japan"),
        ("lanes pause acme/lame", 2, "no lane 'lame' in site 'acme'; did you mean 'lane'?"),
        ("lanes pause demo/a", 2, "site 'demo' was never run; run: pipeline run --site demo"),
        ("lanes resume acme/lane", 1, "lane 'lane' is active already"),
        ("lanes pause acme/\x1b[2J", 2, r"no lane '\x1b[2J' in site 'acme'"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    door: Door, make: Factory, inside: Callable[[str], Said], words: str, code: int, message: str
) -> None:
    make.plan()

    said = inside(words)

    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert message in said.err


def test_nobody_starts_a_server_to_find_no_lane(homeless: Door, inside: Callable[[str], Said]) -> None:
    said = inside("lanes list --site demo")

    assert (said.code, said.err) == (1, "error: nothing here yet; run: pipeline run --site demo\n")
    assert not (homeless.root / ".pipeline").exists()


@pytest.mark.slow
def test_a_run_leaves_a_paused_lane_alone_and_says_so(door: Door) -> None:
    """Topics that are new there are planned and wait; the other lane is published; then it goes on where it stood."""
    door.rows("a,1,a1,Title,page,", "b,1,b1,Title,page,")
    assert door("run", "--site", "demo", "--workers", "1").code == 0
    assert door("lanes", "pause", "demo/a").code == 0
    door.rows("a,1,a1,Title,page,", "a,2,a2,Title,page,", "b,1,b1,Title,page,", "b,2,b2,Title,page,")

    said = door("run", "--site", "demo", "--workers", "1")

    assert said.code == 1
    assert "demo: 3 of 4 topics live" in said.out
    assert "note: lane a is paused; go on with: pipeline lanes resume demo/a" in said.out
    assert door("lanes", "resume", "demo/a").code == 0
    assert "demo: 4 of 4 topics live" in door("run", "--site", "demo", "--workers", "1").out


# Closed and opened.


def test_a_lane_is_closed_and_opened(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """Nothing of it begins; who closed it and why is seen; resume is not what opens it."""
    (job,) = make.plan()

    dry = inside("lanes close acme/lane --dry-run").out
    assert (dry, make.state(job)) == ("lane acme/lane would go active → closed; 1 job would wait\n", JobState.PENDING)
    assert inside("lanes close acme/lane --reason over").out == "lane acme/lane active → closed; 1 job waits\n"
    assert ": over" in inside("lanes list --site acme --state closed").out
    refused = inside("lanes resume acme/lane")
    assert (refused.code, refused.err) == (1, "error: lane 'lane' is closed; open it: pipeline lanes open SITE/LANE\n")
    assert inside("lanes open acme/lane --json").json["to"] == "active"
    assert make.state(job) is JobState.PENDING


# What it has otherwise.


def test_a_lane_differs_from_its_stages(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """Each value is told with what it was; default takes it away again; a dry run sets nothing."""
    make.plan()

    said = inside("lanes set acme/lane --stage publish --width 3 --lease 2m --attempts 4 --dry-run")
    assert (
        said.out
        == "lane acme/lane at publish would have: width default → 3, lease default → 2m, attempts default → 4\n"
    )
    assert inside("lanes list --site acme --json").json["lanes"][0]["overrides"] == {}

    done = inside(
        "lanes set acme/lane --stage publish --width none --lease PT90S --deadline 1h --on-failed skip --json"
    )
    after = {"width": None, "lease_seconds": 90.0, "deadline_seconds": 3600.0}
    assert set(done.json) == {"site", "lane", "stage", "before", "after", "jobs", "dry_run"}
    assert (done.json["before"], done.json["after"]) == ({"on_failed": "halt"}, {"on_failed": "skip", **after})
    (lane,) = inside("lanes list --site acme --json").json["lanes"]
    assert (lane["on_failed"], lane["overrides"]) == ("skip", {"publish": after})
    text = inside("lanes list --site acme").out
    assert "skips what failed; publish: " in text
    assert {"width none", "lease 90s", "deadline 1h"} <= set(text.split("publish: ")[1].strip().split(", "))

    back = inside("lanes set acme/lane --stage publish --lease default --deadline default --on-failed halt")
    assert "lease 90s → default" in back.out
    again = inside("lanes set acme/lane --stage publish --lease default")
    assert again.out == "lane acme/lane at publish: all that already; nothing changes\n"
    assert inside("lanes list --site acme --json").json["lanes"][0]["overrides"] == {"publish": {"width": None}}


def test_what_failed_before_a_lane_skips_is_named(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """The policy counts from now on; the command that brings the lane on is told, and does."""
    job = make.in_state(JobState.FAILED)

    said = inside("lanes set acme/lane --on-failed skip")

    assert said.out == "lane acme/lane: on failed halt → skip\n"
    command = "pipeline jobs skip --site acme --lane lane --state failed"
    assert said.err == f"what failed there already still halts the lane; skip it: {command}\n"
    assert inside(f"{command.removeprefix('pipeline ')} --yes").code == 0
    assert make.state(job) is JobState.SKIPPED


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("", 2, "nothing to set: name --on-failed, or --stage"),
        ("--on-failed stop", 2, "--on-failed 'stop': write halt or skip"),
        ("--width 3", 2, "are of a stage: name it with --stage"),
        ("--stage publish", 2, "--stage: say what is set there"),
        ("--stage publish --width 0", 2, "--width '0': write a whole number from 1 to 1000000, none for no limit, or"),
        ("--stage publish --lease 0.5", 2, "--lease '0.5': write a time from 1 second to 1d"),
        ("--stage publish --lease 25h", 2, "--lease '25h': write a time from 1 second to 1d"),
        ("--stage publish --lease soon", 2, "--lease 'soon': write a time such as 90, 90s, 2m or 1h, or default"),
        ("--stage publish --deadline 31d", 2, "--deadline '31d': write a time from 1 second to 30d"),
        ("--stage publish --attempts many", 2, "--attempts 'many': write a whole number from 1 to 1000, or default"),
        ("--stage publsh --width 2", 2, "no stage 'publsh' in this site; there is: generate, validate, publish"),
        ("--stage generate --width 2", 1, "no limit at stage 'generate' and is at work"),
    ],
)
def test_what_cannot_be_set_is_refused(
    door: Door, make: Factory, inside: Callable[[str], Said], words: str, code: int, message: str
) -> None:
    make.plan()

    said = inside(f"lanes set acme/lane {words}")

    assert (said.code, said.out) == (code, "")
    assert message in said.err
