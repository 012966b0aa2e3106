"""What crosses the pipe to a stage's process comes out as it went in, or is refused by name."""

import json
from datetime import timedelta
from typing import Any

import pytest

from pipeline import Done, Draft, Fail, Finding, Hold, Reject, Repair, Retry, Severity, Snooze, TopicView
from pipeline.errors import LeaseLost, PathTaken
from pipeline.wire import MAX_LINE, Unfit, line, meaning, outcome_in, outcome_out, topic_in, topic_out, words

ODD = "ä \U0001f600 \x00 \ud800 \u2028 \n"
DRAFT = Draft(ODD, "about", "body", {"n": [1, None, {"deep": 0.1}], "big": 2**80}, {"model": "m"})
FINDINGS = [Finding("rule", ODD, Severity.WARNING, 3, None), Finding("other", "text")]


@pytest.mark.parametrize(
    "outcome",
    [
        Done(findings=[]), Done(DRAFT, FINDINGS, {"tokens": 12, "x": ODD}), Reject(FINDINGS), Reject([], to="generate"),
        Retry("soon"), Retry("later", timedelta(seconds=1.5)), Snooze(timedelta(hours=1), "busy"),
        Snooze(timedelta.max), Hold("look"),
        Fail("no"), Repair("mend"),
    ],
)  # fmt: skip
def test_outcomes_come_out_as_they_went_in(outcome: Any) -> None:
    """All parts, whatever the text."""
    came = outcome_in(json.loads(line(outcome_out(outcome))))

    assert came == outcome


def test_topics_come_out_as_they_went_in() -> None:
    """The brief included."""
    topic = TopicView(1, "acme", "lane", "slug", ODD, "page", "lane/slug/", 3, {"n": [1, {"x": None}]}, 2, 1)

    assert topic_in(json.loads(line(topic_out(topic)))) == topic


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (42, "int; it must return an outcome"),
        (Done(draft="text"), "draft: it is a str, not a Draft"),  # type: ignore[arg-type]
        (Done(findings=[1]), "findings: one is a int"),  # type: ignore[list-item]
        (Done(metrics={"x": object()}), "metrics: Object of type object is not JSON serializable"),
        (Done(metrics={"x": float("inf")}), "metrics: Out of range float"),
        (Done(Draft("t", "", b"bytes")), "draft: Object of type bytes"),  # type: ignore[arg-type]
        (Retry("soon", after=5), "after: it is a int, not a timedelta"),  # type: ignore[arg-type]
        (Fail(ValueError("x")), "reason: Object of type ValueError"),  # type: ignore[arg-type]
        (Done(Draft("t", "", "x" * MAX_LINE)), "bytes as JSON; at most"),
    ],
)
def test_what_json_cannot_carry_is_named(outcome: Any, said: str) -> None:
    """The part, and why."""
    with pytest.raises(Unfit, match=said):
        line(outcome_out(outcome))


def test_what_goes_round_in_circles_is_refused() -> None:
    """As are values that are too deep."""
    circle: dict[str, Any] = {}
    circle["again"] = circle
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    for value in (circle, deep):
        with pytest.raises(Unfit):
            line(outcome_out(Done(metrics={"x": value})))


def test_exceptions_have_a_meaning() -> None:
    """What time cannot help, what was lost, and the rest; a message that cannot be read is none."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert [meaning(e) for e in (PathTaken(), UnicodeError(), LeaseLost(), KeyError())] == [
        "broken", "broken", "lost", "other"
    ]  # fmt: skip
    assert words(Mute()) == "Mute (its message cannot be read)"
    assert words(ValueError()) == "ValueError"
