"""The topics of a site, read from its CSV or TSV file; ground floor.

A file is taken whole or not at all: whatever is wrong is collected, and one error names every line. It only reads, and
never guesses what a bad cell may have meant.
"""

import csv
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import ProjectError
from pipeline.project.live import live_paths
from pipeline.project.site import MAX_SLUG_BYTES, SLUG, Site
from pipeline.views import TopicRow

REQUIRED = ("lane", "slug", "title", "type")
OWN = frozenset({*REQUIRED, "position"})  # all other columns are the brief
MAX_FILE_BYTES = 64 << 20
MAX_CELL_BYTES = 1 << 20
MAX_PLAIN = 1 << 16  # characters of a line that is not measured cell by cell
MAX_TITLE_BYTES = 1000
MAX_PATH_BYTES = 1000
MAX_POSITION = 1_000_000_000
SHOWN = 20
# Windows keeps these names to itself, with and without a suffix, so a checkout of the pages would fail there.
DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})

TYPE = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # tab and newline are text
BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}


@dataclass(slots=True)
class _Problems:
    """What is wrong, in the order found; only the first few are kept as text."""

    file: str
    found: set[tuple[int, str]] = field(default_factory=set)
    plain: bool = True  # the lines read since this was set hold nothing that a cell would have to be cleaned of

    def add(self, line: int, column: str, fact: str, remedy: str) -> None:
        where = f"column {column}: " if column else ""
        self.found.add((line, f"{self.file}:{line}: {where}{fact}; {remedy}"))

    def raise_if_any(self) -> None:
        if not self.found:
            return
        lines = [text for _, text in sorted(self.found)]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        raise ProjectError("\n".join([f"{self.file}: {count}, nothing was imported", *lines[:SHOWN], *more]))


def load_topics(site: Site, path: Path | None = None) -> list[TopicRow]:
    """The rows of the site's topics file, by lane (in order of first appearance), then position.

    ``path`` holds what is to become that file. ``input_hash`` is left empty. Raises ProjectError naming every bad line;
    then nothing was taken.
    """
    path = path or site.folder / site.topics
    problems = _Problems(f"sites/{site.slug}/{site.topics}")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ProjectError(f"{problems.file} is {size} bytes; at most {MAX_FILE_BYTES} are read: split the site")
        with path.open("rb") as stream:
            rows = list(_rows(site, stream, problems))
    except OSError as error:
        raise ProjectError(f"{problems.file}: {error.strerror}; {_remedy_for_missing(path)}") from error
    _refuse_twins(rows, problems)
    for row in rows if (live := live_paths(site)) else ():
        if where := live.get(row.path):
            fact = f"at {row.path!r} a page is live already ({where})"
            problems.add(row.line, "slug", fact, "choose another, or delete that line to take the address over")
    problems.raise_if_any()
    lanes = {lane: rank for rank, lane in enumerate(dict.fromkeys(row.lane for row in rows))}
    return sorted(rows, key=lambda row: (lanes[row.lane], row.order))


def _remedy_for_missing(path: Path) -> str:
    return "make it readable" if path.exists() else "create it, or name another file as `topics` in site.toml"


def _rows(site: Site, stream: BinaryIO, problems: _Problems) -> Iterator[TopicRow]:
    """Every row that is right in itself; the others go to ``problems``."""
    csv.field_size_limit(
        MAX_FILE_BYTES
    )  # process-wide, so it only ever grows; cells are measured below, with their line
    delimiter = "\t" if Path(site.topics).suffix.lower() in (".tsv", ".tab") else ","
    reader = csv.reader(_lines(stream, problems), delimiter=delimiter, strict=True)
    header: list[str] = []
    places: dict[str, int] = {}
    start = 1
    try:
        for cells in reader:
            line, start = start, reader.line_num + 1
            plain, problems.plain = problems.plain, True
            if not cells:
                continue  # a blank line
            if not header:
                header = [_clean(cell) for cell in cells]
                _check_header(header, line, problems)
            elif len(cells) != len(header):
                fact = f"{len(cells)} cells, but the header has {len(header)}"
                problems.add(
                    line, "", fact, f"give the row {len(header)} cells and quote those that hold {delimiter!r}"
                )
            else:
                clean = [cell.strip() for cell in cells] if plain else [_clean(cell) for cell in cells]
                if row := _row(site, dict(zip(header, clean, strict=True)), line, places, problems, plain=plain):
                    yield row
    except csv.Error as error:
        problems.add(start, "", f"not readable as CSV ({error})", 'close the quotes, and double each " inside a cell')
    if not header:
        problems.add(1, "", "the file is empty", f"begin with a header line: {','.join(REQUIRED)}")
        problems.raise_if_any()


def _lines(stream: BinaryIO, problems: _Problems) -> Iterator[str]:
    """The file's physical lines as text; a line that is not UTF-8 is reported and read on with marks in place."""
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            for bom, name in BOMS.items():
                if raw.startswith(bom):
                    raise ProjectError(f"{problems.file}: unknown encoding ({name}); save the file as UTF-8")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            text = raw.decode()
            # Line by line, since cell by cell this was half of what reading a file took.
            problems.plain &= (
                len(text) <= MAX_PLAIN
                and unicodedata.is_normalized("NFC", text)
                and not CONTROL.search(text.removesuffix("\n").removesuffix("\r"))
            )
            yield text
        except UnicodeDecodeError as error:
            fact = f"not UTF-8 (byte {raw[error.start]:#04x} at place {error.start + 1} of the line)"
            problems.add(number, "", fact, "save the file as UTF-8")
            yield raw.decode(errors="replace")


def _clean(cell: str) -> str:
    return unicodedata.normalize("NFC", cell.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _check_header(header: list[str], line: int, problems: _Problems) -> None:
    """Without a sound header no row can be read, so this one error stands alone."""
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        known = ", ".join(map(_show, header[:SHOWN]))
        remedy = "name the columns exactly so, in lower case"
        if len(header) == 1 and (other := re.search(r"[;\t,|]", header[0])):
            remedy = f"the cells seem to be divided by {other.group()!r}: save as CSV with ',' or as .tsv with tabs"
        problems.add(line, "", f"no column {', '.join(missing)} (found: {known})", remedy)
    for name in sorted({name for name in header if header.count(name) > 1}):
        problems.add(line, _show(name), "stands twice in the header", "rename or delete one")
    for place, name in enumerate(header, start=1):
        if not name or CONTROL.search(name) or len(name.encode(errors="replace")) > MAX_SLUG_BYTES:
            fact = f"the name {_show(name)} is empty, too long or holds control characters"
            problems.add(line, str(place), fact, "name the column or delete it")
    problems.raise_if_any()


def _row(
    site: Site, cells: dict[str, str], line: int, places: dict[str, int], problems: _Problems, *, plain: bool
) -> TopicRow | None:
    """One topic, or None after reporting what is wrong with it. ``places`` counts the rows of each lane."""
    before = len(problems.found)
    for column, value in cells.items() if not plain else ():
        if mark := CONTROL.search(value):
            problems.add(line, column, f"holds the control character U+{ord(mark.group()):04X}", "delete it")
        if len(value) > MAX_CELL_BYTES // 4 and (size := len(value.encode(errors="replace"))) > MAX_CELL_BYTES:
            problems.add(line, column, f"{size} bytes; a cell holds at most {MAX_CELL_BYTES}", "shorten it")
    for column in ("lane", "slug"):
        _check_slug(column, cells[column], line, problems)
    if not TYPE.fullmatch(cells["type"]) or len(cells["type"]) > MAX_SLUG_BYTES:
        problems.add(line, "type", f"{_show(cells['type'])} is no type", "use lower-case words joined by '-' or '_'")
    title = cells["title"]
    if not title:
        problems.add(line, "title", "is empty", "give the page a title")
    elif "\n" in title or "\t" in title:
        problems.add(line, "title", "holds a line break or a tab", "write it on one line")
    elif len(title.encode(errors="replace")) > MAX_TITLE_BYTES:
        problems.add(line, "title", f"is longer than {MAX_TITLE_BYTES} bytes", "shorten it")
    order = places[cells["lane"]] = places.get(cells["lane"], 0) + 1
    if "position" in cells:
        order = _position(cells["position"], line, problems)
    if len(problems.found) > before:
        return None
    path = site.path(type=cells["type"], lane=cells["lane"], slug=cells["slug"])
    if len(path.encode()) > MAX_PATH_BYTES:
        problems.add(line, "slug", f"its path is longer than {MAX_PATH_BYTES} bytes", "shorten slug or lane")
        return None
    brief = {column: value for column, value in cells.items() if column not in OWN}
    return TopicRow(cells["lane"], cells["slug"], title, cells["type"], path, order, brief, line)


def _check_slug(column: str, value: str, line: int, problems: _Problems) -> None:
    if not SLUG.fullmatch(value):
        fact = f"{_show(value)} is no slug" if value else "is empty"
        problems.add(line, column, fact, "use lower-case letters a-z and digits, words joined by '-'")
    elif len(value) > MAX_SLUG_BYTES:
        problems.add(line, column, f"is longer than {MAX_SLUG_BYTES} bytes", "shorten it")
    elif value in DEVICES:
        problems.add(line, column, f"{value!r} is a reserved name on some systems", "choose another")


def _position(value: str, line: int, problems: _Problems) -> int:
    if re.fullmatch(r"[0-9]{1,10}", value) and 1 <= int(value) <= MAX_POSITION:
        return int(value)
    fact = f"{_show(value)} is no position" if value else "is empty"
    problems.add(line, "position", fact, f"use a whole number from 1 to {MAX_POSITION}, or drop the column")
    return 0


def _refuse_twins(rows: list[TopicRow], problems: _Problems) -> None:
    """Report each row that repeats an earlier one's slug, place in a lane, or path; both lines are named."""
    slugs: dict[str, int] = {}
    orders: dict[tuple[str, int], int] = {}
    paths: dict[str, int] = {}
    for row in rows:
        first = slugs.setdefault(row.slug, row.line)
        if first != row.line:
            problems.add(row.line, "slug", f"{row.slug!r} is already on line {first}", "slugs are unique in a site")
        elif (same := paths.setdefault(row.path, row.line)) != row.line:
            fact = f"the page would live at {row.path!r} like that of line {same}"
            problems.add(row.line, "slug", fact, "change slug, lane or type, or `paths` in site.toml")
        first = orders.setdefault((row.lane, row.order), row.line)
        if first != row.line:
            fact = f"{row.order} in lane {row.lane!r} is already on line {first}"
            problems.add(row.line, "position", fact, "give each page of a lane a position of its own")


def _show(value: str) -> str:
    """The value as one harmless piece of a message."""
    return repr(value) if len(value) <= 60 else f"{value[:60]!r}…"
