"""The rows of an XLSX workbook, without ever holding a sheet; ground floor.

Why not a library: those that stream still build each row as a tree, and a row of a hostile file has millions of cells.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import BinaryIO

from pipeline.intake.archives import Archive, unpacked
from pipeline.intake.found import Found, Named, Note, Unreadable
from pipeline.intake.markup import End, Said, Start, local, parse
from pipeline.intake.tables import MAX_COLUMNS, items

MAX_STRINGS = 32 << 20  # characters of all shared texts
MAX_SHEETS = 50
DATES = frozenset({*range(14, 23), *range(45, 48)})  # built-in formats
EPOCH = datetime(1899, 12, 30)


def read(file: str, stream: BinaryIO, size: int, named: Named) -> Iterator[Found]:
    """What the sheets of a workbook hold, each a table of its own; one without titles is left, if another has some."""
    with unpacked(stream, size) as archive:
        if "xl/workbook.xml" not in archive.names:
            raise Unreadable("no workbook; save it as .xlsx, or as CSV")
        book = _Book(archive)
        sheets = book.sheets()
        failed: list[tuple[str, Unreadable]] = []
        for name, part in sheets:
            label = file if len(sheets) == 1 else f"{file}#{name}"
            try:
                yield from items(label, book.rows(part), named, padded=True)
            except Unreadable as error:
                failed.append((label, error))
        if len(failed) == len(sheets):
            raise failed[0][1] if failed else Unreadable("it has no sheets")
        for label, reason in failed:
            yield Note(label, reason.line, f"left out: {reason.why}")


class _Book:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._strings = self._shared() if "xl/sharedStrings.xml" in archive.names else []
        self._dates = self._date_styles() if "xl/styles.xml" in archive.names else frozenset[int]()

    def sheets(self) -> list[tuple[str, str]]:
        """Name and part of each sheet, in their order."""
        found: list[tuple[str, str]] = []
        targets: dict[str, str] = {}

        def start(name: str, given: dict[str, str], line: int) -> None:
            if local(name) == "sheet":
                found.append((given.get("name", ""), next((v for k, v in given.items() if local(k) == "id"), "")))

        def related(name: str, given: dict[str, str], line: int) -> None:
            if local(name) == "Relationship":
                targets[given.get("Id", "")] = given.get("Target", "").removeprefix("/").removeprefix("xl/")

        self._parse("xl/workbook.xml", start)
        if "xl/_rels/workbook.xml.rels" in self._archive.names:
            self._parse("xl/_rels/workbook.xml.rels", related)
        parts = [(name, f"xl/{targets.get(key, '')}") for name, key in found[:MAX_SHEETS]]
        return [(name, part) for name, part in parts if part in self._archive.names]

    def rows(self, part: str) -> Iterator[tuple[int, list[str]]]:
        """The rows of a sheet with their numbers, as texts."""
        sheet = _Sheet(self._strings, self._dates)
        for _ in parse(self._archive.open(part), start=sheet.start, end=sheet.end, text=sheet.text):
            yield from sheet.done
            sheet.done.clear()

    def _parse(
        self, part: str, start: Start, end: End = lambda name, line: None, text: Said = lambda data: None
    ) -> None:
        for _ in parse(self._archive.open(part), start=start, end=end, text=text):
            pass

    def _shared(self) -> list[str]:
        strings: list[str] = []
        parts: list[str] = []
        length = 0
        inside = phonetic = False

        def start(name: str, given: dict[str, str], line: int) -> None:
            nonlocal inside, phonetic
            inside, phonetic = local(name) == "t", phonetic or local(name) == "rPh"

        def end(name: str, line: int) -> None:
            nonlocal inside, phonetic
            inside, phonetic = False, phonetic and local(name) != "rPh"
            if local(name) == "si":
                strings.append("".join(parts))
                parts.clear()

        def text(data: str) -> None:
            nonlocal length
            if inside and not phonetic:
                length += len(data) + 50
                if length > MAX_STRINGS:
                    raise Unreadable(f"its texts are more than {MAX_STRINGS} characters; save it as CSV")
                parts.append(data)

        self._parse("xl/sharedStrings.xml", start, end, text)
        return strings

    def _date_styles(self) -> frozenset[int]:
        own: set[int] = set(DATES)
        styles: list[int] = []
        cells = False

        def start(name: str, given: dict[str, str], line: int) -> None:
            nonlocal cells
            if local(name) == "numFmt" and re.search(
                r"[ymdhs]", re.sub(r'"[^"]*"|\[[^\]]*\]|\\.', "", given.get("formatCode", ""))
            ):
                own.add(_number(given.get("numFmtId")))
            elif local(name) == "cellXfs":
                cells = True
            elif cells and local(name) == "xf":
                styles.append(_number(given.get("numFmtId")))

        def end(name: str, line: int) -> None:
            nonlocal cells
            cells = cells and local(name) != "cellXfs"

        self._parse("xl/styles.xml", start, end)
        return frozenset(n for n, style in enumerate(styles) if style in own)


class _Sheet:
    """What is collected of one row."""

    def __init__(self, strings: list[str], dates: frozenset[int]) -> None:
        self._strings, self._dates = strings, dates
        self.done: list[tuple[int, list[str]]] = []
        self._row: list[str] = []
        self._number = self._at = 0
        self._given: dict[str, str] = {}
        self._parts: list[str] = []
        self._length = 0
        self._inside = False

    def start(self, name: str, given: dict[str, str], line: int) -> None:
        match local(name):
            case "row":
                self._row, self._at = [], 0
                self._number = _number(given.get("r")) or self._number + 1
            case "c":
                self._given, self._length = given, 0
                self._parts.clear()
                letters = re.match(r"[A-Z]{1,3}", given.get("r", ""))
                self._at = _place(letters.group()) if letters else self._at + 1
                if self._at > MAX_COLUMNS:
                    raise Unreadable(
                        f"row {self._number} has more than {MAX_COLUMNS} columns; export fewer", self._number
                    )
            case "v" | "t":
                self._inside = True

    def text(self, data: str) -> None:
        if self._inside:
            self._length += len(data)
            if self._length > 1 << 22:
                raise Unreadable(f"a cell of row {self._number} is too long; shorten it", self._number)
            self._parts.append(data)

    def end(self, name: str, line: int) -> None:
        match local(name):
            case "v" | "t":
                self._inside = False
            case "c":
                self._row += [""] * (self._at - len(self._row))
                self._row[self._at - 1] = self._cell("".join(self._parts))
            case "row":
                self.done.append((self._number, self._row))

    def _cell(self, said: str) -> str:
        kind = self._given.get("t", "n")
        if kind == "s":
            number = _number(said)
            return self._strings[number] if 0 <= number < len(self._strings) else ""
        if kind == "b":
            return "true" if said == "1" else "false"
        if kind == "e":
            return ""
        if kind == "n" and said and _number(self._given.get("s")) in self._dates:
            return _date(said)
        if kind == "n" and re.fullmatch(r"-?\d+\.\d{12,}", said):
            return repr(float(f"{float(said):.12g}"))  # 0.1 + 0.2, as spreadsheets keep it
        return said


def _number(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else 0


def _place(letters: str) -> int:
    place = 0
    for letter in letters:
        place = place * 26 + ord(letter) - 64
    return place


def _date(said: str) -> str:
    try:
        at = EPOCH + timedelta(days=float(said))
    except (ValueError, OverflowError):
        return said
    at = (at + timedelta(milliseconds=500)).replace(microsecond=0)
    return at.date().isoformat() if at.time() == at.time().min else at.isoformat()
