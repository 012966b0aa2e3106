"""What must not be left in a text: marks of templates and machines, characters nobody sees; beside the floors.

It works on lines, so that every hit has its place; which parts are code is told by the parser's tokens.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from markdown_it.token import Token

from pipeline.content.markup import CONTROL
from pipeline.views import Severity

Hit = tuple[str, str, Severity, int, int]  # rule, message, severity, line, column

# Every pattern is bounded, so that no hostile text takes long.
MARKS = tuple(
    (re.compile(pattern, flags), what)
    for pattern, flags, what in (
        (r"\{\{.*?\}\}|\{\{|\}\}", 0, "a template's variable"),
        (r"\{%.*?%\}|\{%|%\}", 0, "a template's statement"),
        (r"\{#.{0,200}?#\}", 0, "a template's comment"),
        (r"\[(?:TODO|TBD|FIXME|TK)\b[^\]]*\](?!\()", 0, "a note to fill in later"),
        (r"^\W*(?:TODO|FIXME|TBD):", 0, "a note to fill in later"),
        (r"\[(?:insert|your)\s[^\]]{1,80}\](?![(\[])", re.IGNORECASE, "a slot to fill in"),
        (r"\bX{4}-X{2}-X{2}\b", re.IGNORECASE, "a date to fill in"),
        (r"\blorem ipsum\b", re.IGNORECASE, "filler text"),
        (
            r"【[^】]{0,40}†[^】]{0,80}】|:?contentReference\[oaicite|\bturn\d+(?:search|view|news)\d+\b",
            0,
            "a machine's citation mark",
        ),
        (
            r"^\W*(?:as an ai (?:language )?model\b|(?:sure|certainly|of course)[,!] here(?:'s|’s| is| are)\b)",
            re.IGNORECASE,
            "a machine's preamble",
        ),
    )
)
# Joiners (U+200C, U+200D) are left alone: Persian and emoji need them.
INVISIBLE = re.compile(r"[\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")


def marks(lines: Sequence[str]) -> Iterator[Hit]:
    """Left-over marks, each kind once a line."""
    for number, line in enumerate(lines, start=1):
        for pattern, what in MARKS:
            if hit := pattern.search(line):
                message = f"still holds {what}, {hit.group()[:40]!r}; fill it in or take it out"
                yield "template-marks", message, Severity.ERROR, number, hit.start() + 1


def characters(lines: Sequence[str]) -> Iterator[Hit]:
    """Control characters, which no page may hold, and invisible ones, which are hardly ever meant; once a line."""
    for number, line in enumerate(lines, start=1):
        if hit := CONTROL.search(line):
            message = f"holds the control character U+{ord(hit.group()):04X}; delete it"
            yield "control-characters", message, Severity.ERROR, number, hit.start() + 1
        if hit := INVISIBLE.search(line):
            message = f"holds the invisible character U+{ord(hit.group()):04X}; delete it unless it is meant"
            yield "invisible-characters", message, Severity.WARNING, number, hit.start() + 1


def without_code(lines: Sequence[str], tokens: Sequence[Token]) -> list[str]:
    """The lines with all code blanked out; what is left stands where it stood."""
    left = list(lines)
    for token in tokens:
        first, last = token.map or (0, 0)
        if token.type in ("fence", "code_block"):
            left[first:last] = [" " * len(line) for line in left[first:last]]
        elif any(child.type == "code_inline" for child in token.children or ()):
            text = "\n".join(left[first:last])
            parts, at = [], 0
            for start, end in _spans(text):
                parts += [text[at:start], re.sub(r"[^\n]", " ", text[start:end])]
                at = end
            left[first:last] = ("".join(parts) + text[at:]).split("\n")
    return left


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where code stands within a text: from one run of backticks to the next of the same length.

    By hand, since a pattern that looks back takes quadratic time on a hostile text.
    """
    runs = [match.span() for match in re.finditer("`+", text)]
    places: dict[int, deque[int]] = defaultdict(deque)
    for number, (start, end) in enumerate(runs):
        places[end - start].append(number)
    number = 0
    while number < len(runs):
        start, end = runs[number]
        same = places[end - start]
        while same and same[0] <= number:
            same.popleft()
        if same:
            number = same[0]
            yield start, runs[number][1]
        number += 1
