"""A draft as a text that people edit: a header with title and description, then Markdown; ground floor.

The header is TOML between two lines of ``+++``. All else of a draft (its fields, where it came from) is not shown, and
stays.
"""

import json
import tomllib

from pipeline.errors import UsageError
from pipeline.project.topics import CONTROL, MAX_TITLE_BYTES
from pipeline.views import Draft

FENCE = "+++"
KEYS = ("title", "description")
MAX_BYTES = 1 << 20


def written(draft: Draft) -> str:
    """The draft as a text to be edited."""
    head = [f"{key} = {_quoted(getattr(draft, key))}" for key in KEYS]
    return "\n".join([FENCE, *head, FENCE, "", draft.body])


def read(data: bytes, name: str, draft: Draft) -> Draft:
    """What was written, as the next version of ``draft``; the same draft when nothing of it was changed.

    Without a header title and description stay. Raises UsageError with ``name``, the line and what to do.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} has {len(data)} bytes; a draft has at most {MAX_BYTES}: shorten it")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{name}:{line}: not UTF-8; save it as UTF-8") from error
    for number, words in enumerate(text.split("\n"), start=1):
        if found := CONTROL.search(words):
            raise UsageError(f"{name}:{number}: holds the control character {found.group()!r}; take it out")
    head, body = _parted(text, name)
    title, description = (_line(name, key, head.get(key, getattr(draft, key))) for key in KEYS)
    if not title.strip():
        raise UsageError(f"{name}: title is empty; give the page a title")
    if (title, description, body.strip("\n")) == (draft.title, draft.description, draft.body.strip("\n")):
        return draft
    return Draft(title, description, body.strip("\n") + "\n", draft.fields, draft.lineage)


def _line(name: str, key: str, value: object) -> str:
    if not isinstance(value, str) or "\n" in value or "\t" in value or CONTROL.search(value):
        raise UsageError(f'{name}: {key} is no text on one line; write {key} = "…"')
    if len(value.encode()) > MAX_TITLE_BYTES:
        raise UsageError(f"{name}: {key} is longer than {MAX_TITLE_BYTES} bytes; shorten it")
    return value


def _parted(text: str, name: str) -> tuple[dict[str, object], str]:
    lines = text.split("\n")
    if lines[0].rstrip() == "---":
        raise UsageError(f"{name}: begins with ---; write its header as TOML, between two lines of {FENCE}")
    if lines[0].rstrip() != FENCE:
        return {}, text
    end = next((n for n, line in enumerate(lines[1:], start=1) if line.rstrip() == FENCE), None)
    if end is None:
        raise UsageError(f"{name}: its header has no end; close it with a line of {FENCE}")
    try:
        head = tomllib.loads("\n".join(lines[1:end]))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name}: the header between the lines of {FENCE} is no TOML: {error}") from error
    for key in head:
        if key not in KEYS:
            raise UsageError(f"{name}: the header has a {key[:60]!r}; it has {' and '.join(KEYS)} only")
    return head, "\n".join(lines[end + 1 :])


def _quoted(text: str) -> str:
    """The text as a basic string of TOML: JSON's escapes are all among its own, but DEL must be escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
