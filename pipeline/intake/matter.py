"""Front matter: YAML, TOML or JSON at the head of a text, as plain values; ground floor.

Nothing of it is run: YAML comes through the safe loader, and every scalar stays the text that it is, so that no country
becomes false and no date a type of its own. How deep and how often it refers to itself is limited.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import yaml

from pipeline.intake.found import Unreadable

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_VALUES = 10_000


class _Loader(yaml.SafeLoader):
    """The safe loader, with bounds, and with no guesses at what a scalar may be."""

    yaml_implicit_resolvers = {"~": [("tag:yaml.org,2002:null", re.compile(r"~"))]}  # noqa: RUF012
    aliases = depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > MAX_ALIASES:
                raise yaml.YAMLError(f"it refers to itself more than {MAX_ALIASES} times")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parted(text: str) -> tuple[dict[str, Any], str, int]:
    """The values at the head of a text, the text behind them, and its first line; without a head: none, all, 1.

    Raises Unreadable with the line for a head that has no end, or cannot be read.
    """
    lines = text.split("\n")
    fence = lines[0].rstrip()
    if fence in ("---", "+++"):
        ends = (fence, "...") if fence == "---" else (fence,)
        end = next((n for n, line in enumerate(lines[1:], start=1) if line.rstrip() in ends), None)
        if end is None:
            raise Unreadable(f"its front matter has no end; close it with a line of {fence}", 1)
        head = "\n".join(lines[1:end])
        values = _yaml(head) if fence == "---" else _toml(head)
        return values, "\n".join(lines[end + 1 :]), end + 2
    if fence == "{" or (fence.startswith("{") and not fence.startswith(("{{", "{%", "{#"))):
        return _json(text)
    return {}, text, 1


def _yaml(head: str) -> dict[str, Any]:
    _measure(head)
    loader = _Loader(head)
    try:
        values = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(
            f"its front matter is no YAML: {error.problem}; mend it", (mark.line if mark else 0) + 2
        ) from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError) as error:
        raise Unreadable(f"its front matter is no YAML: {str(error)[:200]}; mend it", 2) from error
    finally:
        loader.dispose()
    return _values(values)


def _toml(head: str) -> dict[str, Any]:
    _measure(head)
    try:
        return _values(tomllib.loads(head))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise Unreadable(f"its front matter is no TOML: {error}; mend it", int(found[1]) + 1 if found else 1) from error
    except RecursionError as error:
        raise Unreadable(f"its front matter is nested more than {MAX_DEPTH} deep", 2) from error


def _json(text: str) -> tuple[dict[str, Any], str, int]:
    try:
        values, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"its front matter is no JSON: {error.msg}; mend it", error.lineno) from error
    except RecursionError as error:
        raise Unreadable(f"its front matter is nested more than {MAX_DEPTH} deep", 1) from error
    _measure(text[:end])
    rest = text[end:]
    behind = rest.lstrip("\n")
    return _values(values), behind, text[: len(text) - len(behind)].count("\n") + 1


def _measure(head: str) -> None:
    if len(head) > MAX_BYTES // 4 and len(head.encode(errors="replace")) > MAX_BYTES:
        raise Unreadable(f"its front matter is longer than {MAX_BYTES} bytes", 1)


def _values(found: Any) -> dict[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise Unreadable("its front matter is no list of names and values; write NAME: VALUE", 2)
    left = MAX_VALUES

    def plain(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise Unreadable(
                f"its front matter is nested more than {MAX_DEPTH} deep, or has more than {MAX_VALUES} values", 2
            )
        if isinstance(value, Mapping):
            return {str(k): plain(v, depth + 1) for k, v in value.items() if v is not None}
        if isinstance(value, list | tuple | set):
            return [plain(v, depth + 1) for v in value if v is not None]
        if isinstance(value, bytes):
            raise Unreadable("its front matter holds binary data; take it out", 2)
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else value.isoformat() if hasattr(value, "isoformat") else str(value)

    return {str(k).strip(): plain(v, 1) for k, v in found.items() if v is not None}
