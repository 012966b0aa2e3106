"""What leaves a command: text made harmless, one JSON document, tables; floor 4.

The answer goes to standard output, the talk to standard error. Whatever comes from data passes ``safe`` first.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any, TextIO

from pipeline.errors import Refused

# C0, DEL, C1, line and paragraph separators, marks that turn the direction of text, lone surrogates.
HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
URL_PASSWORD = re.compile(r"(\w+://[^\s:/@]*:)\S+@")
NAMED_PASSWORD = re.compile(r"(?i)(password\s*=\s*)[^\s&]+")
WIDEST = 1_000_000  # columns of what is no terminal: nothing is cut or folded there


def safe(text: object) -> str:
    """The text on one line, with control characters and the like shown as escapes."""
    return HARMFUL.sub(lambda found: repr(found.group())[1:-1], str(text))


def safe_lines(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
    return "\n".join(safe(line) for line in text.split("\n"))


def masked(text: str) -> str:
    """The text without the passwords of URLs and connection strings that it may quote."""
    return NAMED_PASSWORD.sub(r"\1***", URL_PASSWORD.sub(r"\1***@", text))


def out(text: str) -> None:
    """One piece of the answer."""
    _write(text, sys.stdout)


def say(text: str) -> None:
    """One piece of the talk."""
    _write(masked(safe_lines(text)), sys.stderr)


def as_json(value: Any) -> str:
    """The value as one document on one line; characters beyond ASCII are escaped, so no terminal can trip over them."""
    return json.dumps(value, default=_plain)


def columns(value: object) -> dict[str, Any]:
    """A job as JSON shows it, its keys in a fixed order."""
    assert is_dataclass(value)
    assert not isinstance(value, type)
    found = asdict(value)
    if "number" in found:
        found["pass"] = found.pop("number")
    return found


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> str:
    """Rows under headers. Folded to fit a terminal; in a pipe every row is one line, whole."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout is not None and sys.stdout.isatty()
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold" if terminal else "")
    for name in headers:
        grid.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*("" if cell is None else Text(safe(cell)) for cell in row))
    # Into a text: the library would flush standard output by the way, and meet its troubles.
    drawn = io.StringIO()
    width = None if terminal else WIDEST
    Console(file=drawn, force_terminal=terminal, width=width, highlight=False, markup=False, emoji=False).print(grid)
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines())


def count(number: int, thing: str, things: str | None = None) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return columns(value)
    return str(value)


def _write(text: str, stream: TextIO | None) -> None:
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        # What is still buffered must not fail again when the process ends.
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # A reader that leaves has seen enough; the loss of talk is told to nobody.
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            raise Refused(f"the answer cannot be written: {error.strerror}") from error
