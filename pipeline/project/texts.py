"""Texts that are there before anything is generated: ``sites/<site>/texts/<slug>.md``; ground floor.

Each begins with TOML between two lines of ``+++`` (description, source, a title if it is another than the topic's, and
a table of further fields), then comes Markdown. A topic of the site's file that has one begins with it as a revision,
behind the stage that makes drafts.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import ProjectError
from pipeline.project.site import Site
from pipeline.project.topics import CONTROL, MAX_TITLE_BYTES
from pipeline.views import Draft, TopicText, TopicView

FOLDER = "texts"
FENCE = "+++"
MAX_BYTES = 1 << 21
KEYS = ("title", "description", "source", "fields")


def text_file(site: Site, slug: str) -> Path:
    """Where the text of a topic is, if it has one."""
    return site.folder / FOLDER / f"{slug}.md"


def text_of(site: Site, topic: TopicView) -> Draft | None:
    """The text that the site's folder has of a topic, so that there is nothing to generate. Raises as ``load_text``."""
    path = text_file(site, topic.slug)
    return load_text(path, topic.title) if path.is_file() else None


def texts(site: Site) -> dict[str, TopicText]:
    """The texts of a site by slug, each with the hash of its bytes. Raises ProjectError for what cannot be read."""
    found = {}
    try:
        for path in sorted((site.folder / FOLDER).glob("*.md")):
            with path.open("rb") as stream:
                found[path.stem] = TopicText(path, hashlib.file_digest(stream, "sha256").hexdigest())
    except OSError as error:
        raise ProjectError(f"sites/{site.slug}/{FOLDER}: {error.strerror}; make it readable") from error
    return found


def written(description: str, body: str, fields: Mapping[str, Any], source: str) -> bytes:
    """The text as its file has it; its title is the topic's, and stands in the topics file."""
    head = [f"description = {_toml(description)}", f"source = {_toml(source)}"]
    if fields:
        head += ["", "[fields]", *(f"{_key(key)} = {_toml(value)}" for key, value in fields.items())]
    return "\n".join([FENCE, *head, FENCE, "", body]).encode()


def load_text(path: Path, title: str) -> Draft:
    """The text as a draft; without a title of its own, with the topic's. Raises ProjectError with line and remedy."""
    name = "/".join(path.parts[-4:])
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProjectError(f"{name}: {error.strerror}; make it readable") from error
    if len(raw) > MAX_BYTES:
        raise ProjectError(f"{name} is longer than {MAX_BYTES} bytes; shorten it")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ProjectError(f"{name}:{raw[: error.start].count(10) + 1}: not UTF-8; save it as UTF-8") from error
    if mark := CONTROL.search(text):
        line = text[: mark.start()].count("\n") + 1
        raise ProjectError(f"{name}:{line}: holds the control character U+{ord(mark.group()):04X}; delete it")
    head, body = _parted(text, name)
    own = [head.get(key, default) for key, default in (("title", title), ("description", ""), ("source", ""))]
    for key, value in zip(KEYS, own, strict=False):
        if not isinstance(value, str) or "\n" in value or len(value.encode()) > MAX_TITLE_BYTES:
            raise ProjectError(
                f'{name}: {key} is no text on one line of at most {MAX_TITLE_BYTES} bytes; write {key} = "…"'
            )
    title, description, source = map(str, own)
    fields = head.get("fields", {})
    if not isinstance(fields, dict):
        raise ProjectError(f"{name}: fields is no table; write [fields], then NAME = VALUE")
    lineage = {"imported": f"{FOLDER}/{path.name}", "bytes": hashlib.sha256(raw).hexdigest(), "source": source}
    return Draft(title, description, body.strip("\n") + "\n", json.loads(json.dumps(fields, default=str)), lineage)


def source_of(site: Site, slug: str) -> str:
    """What the text of a topic was imported from; empty when it has none, or was not imported."""
    path = text_file(site, slug)
    return str(load_text(path, "").lineage["source"]) if path.is_file() else ""


def _parted(text: str, name: str) -> tuple[dict[str, Any], str]:
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return {}, text
    end = next((n for n, line in enumerate(lines[1:], start=1) if line.rstrip() == FENCE), None)
    if end is None:
        raise ProjectError(f"{name}: its header has no end; close it with a line of {FENCE}")
    try:
        head = tomllib.loads("\n".join(lines[1:end]))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ProjectError(f"{name}: the header between the lines of {FENCE} is no TOML: {error}") from error
    for key in head:
        if key not in KEYS:
            raise ProjectError(
                f"{name}: the header has a {key[:60]!r}; it has {', '.join(KEYS)}; others go below [fields]"
            )
    return head, "\n".join(lines[end + 1 :])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    """A plain value as TOML: JSON's texts are all among its own, but DEL must be escaped as well."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value if isinstance(value, str | int | float | bool) else str(value), ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )
