"""``pipeline explain``: forms, keys, answers, refusals."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from pipeline.build import Services
from pipeline.service.acknowledging import Verb
from tests.doors.scene import Door, Said
from tests.factories import Factory

TOPIC = {"kind", "site", "topic", "lane", "position", "pass", "job", "stage", "state", "since", "live", "reasons"}
LANE = {"kind", "site", "lane", "state", "on_failed", "gates", "unfinished", "reasons"}
GATE = {"stage", "width", "passed", "used", "waiting", "head"}
SITE = {"kind", "site", "state", "workers", "unfinished", "still", "lanes", "reasons"}
WORKER = {"worker", "pid", "started_at", "seen_at", "site", "stages"}
REASON = {"code", "text", "since", "job", "topic", "details", "commands", "because"}
HOSTILE = "\x1b]0;owned\x07\u202e[red]x[/red]"

Inside = Callable[[str], Said]


@pytest.fixture
def halted(make: Factory) -> int:
    """A job that failed at its gate, with one behind it; returns its id."""
    first, _ = make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], Verb.FAIL, error_class="fail", error=f"no such block {HOSTILE}")
    return first


def test_a_topic_is_explained(door: Door, halted: int, inside: Inside) -> None:
    """In words with the commands on lines of their own; as JSON by stable keys and codes."""
    text = inside("explain acme/lane-2").out
    found = inside("explain acme/lane-2 --json").json

    assert text.splitlines()[0].startswith("acme/lane-2: waiting at publish since ")
    assert "the head of lane lane is lane-1, which is failed at publish" in text
    assert f"      → pipeline jobs requeue {halted}\n      or: pipeline jobs skip {halted}" in text
    assert r"no such block \x1b]0;owned\x07" in text
    assert set(found) == TOPIC
    (reason,) = found["reasons"]
    assert set(reason) == set(reason["because"][0]) == REASON
    assert (found["kind"], reason["code"], reason["because"][0]["code"]) == ("topic", "behind", "failed")


def test_a_lane_may_bear_the_name_of_a_topic(door: Door, make: Factory, inside: Inside) -> None:
    """Only a flag says that a lane is meant."""
    make.services.planning.plan(make.site(), [make.row("kyoto", 1, slug="kyoto")])

    topic = inside("explain acme/kyoto --json").json
    lane = inside("explain --lane acme/kyoto --json").json
    same = inside("explain acme/kyoto --lane").out

    assert (topic["kind"], lane["kind"]) == ("topic", "lane")
    assert set(lane) == LANE
    assert [set(gate) for gate in lane["gates"]] == [GATE]
    assert same.startswith("lane acme/kyoto: active\n  gate publish: strict, passed up to 0, 0 wait there\n")


def test_a_site_is_explained(door: Door, halted: int, services: Services, inside: Inside) -> None:
    """Who works on it, and each lane that stands, by why."""
    services.roster.see("vm/1a2b/40/77/123", 77, None, {"publish": timedelta(seconds=30)})

    found = inside("explain acme --json").json
    text = inside("explain acme").out

    assert set(found) == SITE
    assert [set(worker) for worker in found["workers"]] == [WORKER]
    assert found["still"] == {"failed": 1}
    assert found["lanes"][0]["reasons"][0]["because"][0]["code"] == "failed"
    assert "site acme: active; unfinished jobs: 1 failed, 1 waiting\n  at work: process 77 on vm\n" in text
    assert "1 lane stands: failed\n  - lane: its head is lane-1" in text


def test_a_topic_in_the_file_alone_was_never_planned(door: Door, make: Factory, inside: Inside) -> None:
    """Whether the database knows its site or not."""
    make.plan()

    found = inside("explain demo/a1 --json").json

    assert (set(found), found["job"], found["state"]) == (TOPIC, None, None)
    assert [r["code"] for r in found["reasons"]] == ["not-planned"]
    assert found["reasons"][0]["commands"] == ["pipeline run --site demo"]


def test_nobody_starts_a_server_to_find_nothing(homeless: Door, inside: Inside) -> None:
    assert "demo/a1: not planned" in inside("explain demo/a1").out
    assert inside("explain demo").code == 1
    assert not (homeless.root / ".pipeline").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("explain", "missing argument 'SITE[/NAME]'"),
        ("explain acne", "no site 'acne' in the database; did you mean 'acme'?"),
        ("explain acme/lane-7", "no topic 'lane-7' in site 'acme'; did you mean 'lane-1'?"),
        ("explain acme/a/b", "'acme/a/b' names no topic; write SITE/SLUG"),
        ("explain --lane acme", "'acme' names no lane; write SITE/LANE"),
        ("explain --lane acme/lame", "no lane 'lame' in site 'acme'; did you mean 'lane'?"),
        ("explain demo", "site 'demo' was never run; run: pipeline run --site demo"),
        ("explain zzz/a", "no site 'zzz' here; there is: acme, demo"),
        ("explain acme/\x1b[2J", r"no topic '\x1b[2J' in site 'acme'"),
    ],
)
def test_mistakes_are_answered_in_one_line(door: Door, make: Factory, inside: Inside, words: str, message: str) -> None:
    make.plan()

    said = inside(words)

    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert message in said.err
