"""Markdown files as topics with a text of their own; ground floor."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from pipeline.intake.dates import moment
from pipeline.intake.encodings import decoded
from pipeline.intake.found import MAX_TEXT_BYTES, Found, Item, Left, Named, Refused, Text, Unreadable, one_line
from pipeline.intake.matter import parted
from pipeline.intake.slugs import slug, unescaped
from pipeline.intake.tables import key
from pipeline.project.topics import CONTROL, MAX_TITLE_BYTES

DATED = re.compile(r"(\d{4}-\d\d?-\d\d?)-(.+)")
DATES = ("date", "publishdate", "published_at", "pubdate", "published", "created", "created_at")
DESCRIPTIONS = ("description", "summary", "excerpt")
NO, YES = ("false", "no", "off", "0"), ("true", "yes", "on", "1")


def read(file: str, stream: BinaryIO, named: Named) -> Found:
    """The topic of one Markdown file, whose name within its folder is ``file``."""
    raw = stream.read(MAX_TEXT_BYTES + 1)
    if len(raw) > MAX_TEXT_BYTES:
        return Refused(file, 0, f"it has more than {MAX_TEXT_BYTES} bytes; a text has at most as many: divide it")
    text = decoded(raw)
    if text is None:
        return Refused(file, 0, "it is no text in UTF-8; save it as UTF-8")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if mark := CONTROL.search(text):
        line = text[: mark.start()].count("\n") + 1
        return Refused(file, line, f"it holds the control character U+{ord(mark.group()):04X}; take it out")
    try:
        values, body, _ = parted(text)
    except Unreadable as error:
        return Refused(file, error.line, error.why)
    return topic(file, 0, PurePosixPath(file), values, body, named)


def topic(file: str, line: int, path: PurePosixPath, values: Mapping[str, Any], body: str, named: Named) -> Found:
    """The topic of a text with these values at its head."""
    known = {key(name).replace("-", "_"): value for name, value in values.items()}
    hidden = _word(known, "draft") in YES or _word(known, "published") in NO
    if hidden and "draft" not in named.statuses:
        return Left(file, line, "it is a draft (take drafts too: --status publish,draft)")
    stem = path.parent.name if path.stem.lower() in ("index", "_index") and path.parent.name else path.stem
    dated = DATED.fullmatch(stem)
    name = (
        _word(known, "slug", lower=False)
        or _last(_word(known, "permalink", lower=False))
        or (dated[2] if dated else stem)
    )
    body, heading = _without_title(body, _word(known, "title", lower=False))
    title = (
        one_line(_word(known, "title", lower=False)) or heading or one_line(name.replace("-", " ").replace("_", " "))
    )
    if len(title.encode()) > MAX_TITLE_BYTES:
        return Refused(file, line, f"its title is longer than {MAX_TITLE_BYTES} bytes; shorten it")
    date = next((found[0] for n in DATES if (found := moment(_word(known, n, lower=False)))), "")
    if not date and dated and (found := moment(dated[1])):
        date = found[0]
    kind = slug(_word(known, "type") or _word(known, "layout") or ("post" if date else "page"))
    description = next((text for n in DESCRIPTIONS if (text := one_line(_word(known, n, lower=False)))), "")
    folder = path.parent.name or "."
    cells = {n: text for n in known if (text := _word(known, n, lower=False))}
    cells |= {"date": date, "name": unescaped(name), "folder": folder, "type": kind}
    return Item(
        file, line, title, unescaped(name), True, kind, cells, _word(known, "keyword", lower=False),
        Text(shortened(description), body.strip("\n") + "\n", dict(values)),
        path.name if stem == path.stem else f"{path.parent.name}/{path.name}",
    )  # fmt: skip


def shortened(text: str) -> str:
    """The text within what a description may have, cut after a word."""
    if len(text.encode()) <= MAX_TITLE_BYTES:
        return text
    head = text.encode()[: MAX_TITLE_BYTES - 4].decode(errors="ignore")
    return (head.rpartition(" ")[0] or head) + "…"


def _word(values: Mapping[str, Any], name: str, *, lower: bool = True) -> str:
    """The value as a text; of a list its first."""
    value = values.get(name, "")
    while isinstance(value, list):
        value = value[0] if value else ""
    word = value.strip() if isinstance(value, str) else ""
    return word.lower() if lower else word


def _last(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2].removesuffix(".html") if ":" not in address else ""


def _without_title(body: str, title: str) -> tuple[str, str]:
    """The body without a first heading that is its title, and that heading."""
    found = re.match(r"\s*#[ \t]+(.+?)[ \t]*#*[ \t]*(?:\n|$)", body)
    if found is None or (title and one_line(found[1]) != one_line(title)):
        return body, ""
    return body[found.end() :], one_line(found[1])
