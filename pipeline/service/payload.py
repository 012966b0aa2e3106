"""What a caller may plan: a topic, checked to the last value before any SQL; floor 2.

A value goes through JSON, the database and back as it was, or it is refused with its place. Nothing is mended but the
title, which is taken as from a file: composed (NFC), without blanks around it.
"""

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import UsageError
from pipeline.project.site import MAX_SLUG_BYTES, SLUG, page_path
from pipeline.project.topics import CONTROL, DEVICES, MAX_PATH_BYTES, MAX_TITLE_BYTES, TYPE

MAX_BRIEF_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_INTEGER = 10**1000
MAX_FLOAT = 1e16  # from here on a float is written as an integer, and comes back as one

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Topic:
    """One page to be, as a caller plans it. ``brief`` is its data row: any JSON object."""

    lane: str
    slug: str
    title: str
    type: str
    brief: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """A topic that the database can hold. ``written`` is its brief as JSON text."""

    lane: str
    slug: str
    title: str
    type: str
    brief: Mapping[str, Any]
    written: str = field(compare=False)


def check(topic: Topic, number: int) -> Checked:
    """The topic, ready to be stored. Raises UsageError with the place of what cannot be: ``topics[3].brief['a']``."""
    if not isinstance(topic, Topic):
        raise _refusal(number, "", f"is of type {type(topic).__name__}", "make each a pipeline.Topic")
    _check_slug(number, ".lane", topic.lane)
    _check_slug(number, ".slug", topic.slug)
    if not isinstance(topic.type, str) or len(topic.type) > MAX_SLUG_BYTES or not TYPE.fullmatch(topic.type):
        fact = f"{_show(topic.type)} is no type"
        raise _refusal(number, ".type", fact, "use lower-case words joined by '-' or '_'")
    title = _title(number, topic.title)
    if not isinstance(topic.brief, Mapping):
        raise _refusal(number, ".brief", f"is of type {type(topic.brief).__name__}", "use a dict")
    brief = dict(topic.brief)
    if fault := _fault(brief, 1):
        raise _refusal(number, f".brief{fault[0]}", fault[1], fault[2])
    written = _as_json(brief)
    if len(written) > MAX_BRIEF_BYTES // 4 and (size := len(written.encode())) > MAX_BRIEF_BYTES:
        fact = f"is {size} bytes as JSON; at most {MAX_BRIEF_BYTES} are taken"
        raise _refusal(number, ".brief", fact, "shorten it")
    return Checked(topic.lane, topic.slug, title, topic.type, brief, written)


def path_of(topic: Checked, number: int, paths: Mapping[str, str]) -> str:
    """Where the page will live, by the site's patterns. Raises UsageError when that is too long."""
    path = page_path(paths, type=topic.type, lane=topic.lane, slug=topic.slug)
    if len(path) > MAX_PATH_BYTES:
        fact = f"its path is longer than {MAX_PATH_BYTES} bytes"
        raise _refusal(number, ".slug", fact, "shorten slug or lane")
    return path


def _check_slug(number: int, name: str, value: object) -> None:
    if not isinstance(value, str) or not SLUG.fullmatch(value):
        remedy = "use lower-case letters a-z and digits, words joined by '-'"
        raise _refusal(number, name, f"{_show(value)} is no slug", remedy)
    if len(value) > MAX_SLUG_BYTES:
        raise _refusal(number, name, f"is longer than {MAX_SLUG_BYTES} bytes", "shorten it")
    if value in DEVICES:
        raise _refusal(number, name, f"{value!r} is a reserved name on some systems", "choose another")


def _title(number: int, value: object) -> str:
    def refusal(fact: str, remedy: str) -> UsageError:
        return _refusal(number, ".title", fact, remedy)

    if not isinstance(value, str):
        raise refusal(f"is of type {type(value).__name__}", "give the page a title")
    if mark := CONTROL.search(value):
        raise refusal(f"holds the character U+{ord(mark.group()):04X}", "delete it")
    title = unicodedata.normalize("NFC", value).strip()
    if not title:
        raise refusal("is empty", "give the page a title")
    if "\n" in title or "\t" in title:
        raise refusal("holds a line break or a tab", "write it on one line")
    if len(title.encode()) > MAX_TITLE_BYTES:
        raise refusal(f"is longer than {MAX_TITLE_BYTES} bytes", "shorten it")
    return title


def _fault(value: Any, depth: int) -> tuple[str, str, str] | None:
    """What keeps the value from coming back as it is: where in it, the fact, the remedy."""
    if isinstance(value, str):
        return _text_fault(value)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return ("", "is an integer of more than 1000 digits", "write it as text") if abs(value) > MAX_INTEGER else None
    if isinstance(value, float):
        if not math.isfinite(value):
            return "", f"is {value}", "leave it out, or write None"
        return ("", f"is {value}, too large for a float", "use int, or text") if abs(value) >= MAX_FLOAT else None
    if not isinstance(value, dict | list):
        return (
            "",
            f"is of type {type(value).__name__}, which JSON does not have",
            "use str, int, float, bool, None, list or dict",
        )
    if depth > MAX_DEPTH:
        return "", f"is nested deeper than {MAX_DEPTH} levels", "flatten it"
    if isinstance(value, list):
        for index, item in enumerate(value):
            if fault := _fault(item, depth + 1):
                return f"[{index}]{fault[0]}", fault[1], fault[2]
        return None
    for key, item in value.items():
        if not isinstance(key, str):
            return "", f"has the key {_show(key)}", "use text as keys"
        if fault := _text_fault(key):
            return "", f"has a key that {fault[1]}", fault[2]
        if fault := _fault(item, depth + 1):
            return f"[{_show(key)}]{fault[0]}", fault[1], fault[2]
    return None


def _text_fault(value: str) -> tuple[str, str, str] | None:
    if "\x00" in value:
        return "", f"holds NUL at place {value.index(chr(0)) + 1}", "delete it"
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return "", f"holds a lone surrogate at place {error.start + 1}", "delete it"
    return None


def _refusal(number: int, place: str, fact: str, remedy: str) -> UsageError:
    return UsageError(f"topics[{number}]{place}: {fact}; {remedy}; nothing was planned")


def _show(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
