"""What crosses the pipe between a worker and a stage's process: one JSON document a line, never pickle; engine room.

Both sides use this module, so it knows no database. What JSON cannot carry raises Unfit with the part that cannot go.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from pipeline.errors import LeaseLost, PathTaken
from pipeline.stages import Done, Fail, Hold, Outcome, Reject, Repair, Retry, Snooze
from pipeline.views import Draft, Finding, Severity, TopicView

MAX_LINE = 64 << 20  # bytes of one message: far above any page, far below what would hurt a worker

Message = dict[str, Any]


class Unfit(Exception):
    """A value that cannot cross the pipe."""


def line(message: Message) -> bytes:
    """The message as it crosses the pipe. Raises Unfit when it cannot."""
    try:
        data = json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise Unfit(_part(message, error)) from error
    if len(data) > MAX_LINE:
        raise Unfit(f"it has {len(data)} bytes as JSON; at most {MAX_LINE} can be passed on")
    return data


def _part(message: Message, error: Exception) -> str:
    """Which part of the message cannot go, and why."""
    for name, value in message.items():
        try:
            json.dumps(value, allow_nan=False)
        except Exception as fault:
            return f"{name}: {fault}"
    return str(error)


def meaning(error: BaseException) -> str:
    """What an exception means for its job: ``broken``, ``lost``, or ``other``, which is tried again."""
    if isinstance(error, PathTaken | ValidationError | UnicodeError):
        return "broken"
    return "lost" if isinstance(error, LeaseLost) else "other"


def words(error: BaseException) -> str:
    """Its text, or its name when it has none, or none that can be read."""
    name = type(error).__name__
    try:
        return str(error) or name
    except Exception:
        return f"{name} (its message cannot be read)"


def topic_out(topic: TopicView) -> Message:
    return asdict(topic)


def topic_in(message: Message) -> TopicView:
    return TopicView(**message)


def draft_out(draft: Draft | None) -> Message | None:
    if draft is None:
        return None
    if not isinstance(draft, Draft):
        raise Unfit(f"draft: it is a {type(draft).__name__}, not a Draft")
    return {
        "title": draft.title,
        "description": draft.description,
        "body": draft.body,
        "fields": dict(draft.fields),
        "lineage": dict(draft.lineage),
    }


def draft_in(message: Message | None) -> Draft | None:
    return None if message is None else Draft(**message)


def finding_out(finding: Finding) -> Message:
    if not isinstance(finding, Finding):
        raise Unfit(f"findings: one is a {type(finding).__name__}, not a Finding")
    return asdict(finding)


def finding_in(message: Message) -> Finding:
    return Finding(**{**message, "severity": Severity(message["severity"])})


def outcome_out(outcome: object) -> Message:
    """An outcome as a message. Raises Unfit when a part of it cannot cross."""
    try:
        return {"say": "outcome", "kind": type(outcome).__name__, **_parts(outcome)}
    except (TypeError, ValueError, AttributeError) as error:
        raise Unfit(str(error)) from error


def _parts(outcome: object) -> Message:
    match outcome:
        case Done(draft, findings, metrics):
            return {
                "draft": draft_out(draft),
                "findings": [finding_out(f) for f in findings],
                "metrics": dict(metrics),
            }
        case Reject(findings, to):
            return {"findings": [finding_out(f) for f in findings], "to": to}
        case Retry(reason, after):
            return {"reason": reason, "after": None if after is None else _time_out("after", after)}
        case Snooze(until, reason):
            return {"until": _time_out("until", until), "reason": reason}
        case Hold(reason) | Fail(reason) | Repair(reason):
            return {"reason": reason}
        case _:
            raise Unfit(f"{type(outcome).__name__}; it must return an outcome")


def _time_out(name: str, value: object) -> list[int]:
    if not isinstance(value, timedelta):
        raise Unfit(f"{name}: it is a {type(value).__name__}, not a timedelta")
    return [value.days, value.seconds, value.microseconds]


def outcome_in(message: Mapping[str, Any]) -> Outcome:
    match message["kind"]:
        case "Done":
            findings = [finding_in(f) for f in message["findings"]]
            return Done(draft_in(message["draft"]), findings, message["metrics"])
        case "Reject":
            return Reject([finding_in(f) for f in message["findings"]], message["to"])
        case "Retry":
            after = message["after"]
            return Retry(message["reason"], None if after is None else timedelta(*after))
        case "Snooze":
            return Snooze(timedelta(*message["until"]), message["reason"])
        case "Hold":
            return Hold(message["reason"])
        case "Fail":
            return Fail(message["reason"])
        case "Repair":
            return Repair(message["reason"])
    raise Unfit(f"no outcome is called {message['kind']!r}")
