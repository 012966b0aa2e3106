"""``pipeline lanes``: keys, answers, refusals."""

import re
from collections.abc import Callable

import pytest

from pipeline.states import JobState
from tests.doors.scene import Door, Said
from tests.factories import Factory

LANE = {"lane", "state", "topics", "live", "waiting", "head", "paused"}
HEAD = {"position", "topic", "stage", "state", "job"}
PAUSED = {"at", "by", "reason"}
TURNED = {"site", "lane", "from", "to", "jobs", "running"}
HOSTILE = "\x1b]0;owned\x07\u202e[red]x[/red]"


@pytest.mark.parametrize("words", ["lanes", "lanes list", "lanes pause", "lanes resume"])
def test_help_opens_with_an_imperative_and_ends_with_an_example(inside: Callable[[str], Said], words: str) -> None:
    said = inside(f"{words} --help")

    assert said.code == 0
    assert said.out.split("\n\n", 1)[1].split()[0] in {"List", "Let"}
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
    assert paused == {"site": "acme", "lane": "lane", "from": "active", "to": "paused", "jobs": 1, "running": 0}
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
