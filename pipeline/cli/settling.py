"""What a lane or a stage is set to, as it is written and shown: widths, times, counts; floor 4."""

import re
from collections.abc import Mapping
from typing import Any

from pipeline.errors import UsageError

DEFAULT = "default"
DAY = 86_400.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)")
MOST = 1_000_000  # at once, or attempts
NAMES = {"lease_seconds": "lease", "deadline_seconds": "deadline", "max_attempts": "attempts", "on_failed": "on failed"}


def lane_changes(
    *, width: str | None, lease: str | None, deadline: str | None, attempts: str | None
) -> tuple[dict[str, Any], list[str]]:
    """What ``lanes set`` names, as the service takes it: changes, and what is to be as its stage says again.

    Raises UsageError for what is no such value.
    """
    changes: dict[str, Any] = {}
    default: list[str] = []
    for key, text in (("width", width), ("lease_seconds", lease), ("deadline_seconds", deadline),
                      ("max_attempts", attempts)):  # fmt: skip
        if text is None:
            continue
        if text == DEFAULT:
            default.append(key)
        elif key == "width":
            changes[key] = a_width(text, or_default=True)
        elif key == "max_attempts":
            changes[key] = _number("--attempts", text, 1000, f"a whole number from 1 to 1000, or {DEFAULT}")
        else:
            changes[key] = _seconds(f"--{NAMES[key]}", text, DAY if key == "lease_seconds" else 30 * DAY)
    return changes, default


def a_width(text: str, *, or_default: bool = False) -> int | None:
    """A width as it is written; None is no limit. Raises UsageError."""
    if text == "none":
        return None
    words = f"a whole number from 1 to {MOST}, none for no limit" + (f", or {DEFAULT}" if or_default else "")
    return _number("--width", text, MOST, words)


def _number(option: str, text: str, most: int, wanted: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise UsageError(f"{option} {text!r}: write {wanted}")
    return int(text)


def _seconds(option: str, text: str, most: float) -> float:
    """A time, as settings have it (a number of seconds, or such as PT2M), or with a unit."""
    if plain := TIME.fullmatch(text):
        seconds = float(plain[1]) * UNITS[plain[2] or "s"]
    else:
        from pydantic import TypeAdapter, ValidationError

        from pipeline.settings import Duration

        try:
            seconds = TypeAdapter(Duration).validate_python(text).total_seconds()
        except ValidationError as error:
            raise UsageError(f"{option} {text!r}: write a time such as 90, 90s, 2m or 1h, or {DEFAULT}") from error
    if not 1 <= seconds <= most:
        raise UsageError(f"{option} {text!r}: write a time from 1 second to {_time(most)}")
    return seconds


def shown(key: str, values: Mapping[str, Any], *, name: bool = True) -> str:
    """One of ``values`` for people: ``lease 2m``; without its name: ``2m``."""
    value = values.get(key, DEFAULT)
    text = "none" if value is None else _time(value) if key.endswith("_seconds") and value != DEFAULT else str(value)
    return f"{NAMES.get(key, key)} {text}" if name else text


def _time(seconds: float) -> str:
    """``120`` is ``2m``; the largest unit of which it is a whole number."""
    unit = next((u for u in ("d", "h", "m") if seconds % UNITS[u] == 0), "s")
    return f"{seconds / UNITS[unit]:g}{unit}"
