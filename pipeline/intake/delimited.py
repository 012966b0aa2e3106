"""CSV, TSV and what goes by those names, row by row; ground floor."""

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

from pipeline.intake.encodings import encoding_of
from pipeline.intake.found import Found, Named, Note, Unreadable
from pipeline.intake.tables import SAMPLE, header_at, items

DELIMITERS = ("\t", ",", ";", "|")
MAX_LINE = 8 << 20  # characters of one line
MAX_RECORD = 8 << 20  # of all lines of one row: a quote that is never closed ends there
MAX_SAMPLE = 1 << 16


def read(file: str, stream: BinaryIO, named: Named) -> Iterator[Found]:
    """What a delimited text holds. Raises Unreadable for what cannot be read to its end."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD))  # process-wide, so it only ever grows
    encoding, errors = encoding_of(stream)
    if encoding == "cp1252":
        yield Note(file, 0, "it is not UTF-8, and was read as Windows-1252; look at its special letters")
    text = io.TextIOWrapper(stream, encoding, errors, newline="")
    try:
        delimiter = _delimiter(text.read(MAX_SAMPLE), named)
        text.seek(0)
        yield from items(file, _rows(text, delimiter), named, comma=delimiter == ";")
    finally:
        text.detach()


def _rows(text: io.TextIOWrapper, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    lines = _Lines(text)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    while True:
        lines.length = 0
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            what = 'close the quotes, and double each " inside a cell'
            raise Unreadable(f"not readable as a table from this line on ({error}); {what}", start) from error
        yield start, cells
        start = reader.line_num + 1


class _Lines:
    """The physical lines, none too long, and not too many for one row."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self._number = 0
        self.length = 0  # since the row began

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_LINE)
        if not line:
            raise StopIteration
        self._number += 1
        self.length += len(line)
        if len(line) == MAX_LINE or self.length > MAX_RECORD:
            raise Unreadable(
                f"a row that ends here is longer than {MAX_RECORD} characters; close its quotes", self._number
            )
        return line


def _delimiter(sample: str, named: Named) -> str:
    """The one under which the sample has the surest header, then the widest."""
    lines = sample.splitlines(keepends=True)
    if len(sample) == MAX_SAMPLE and len(lines) > 1:
        lines.pop()

    def weight(delimiter: str) -> tuple[int, int]:
        rows = []
        try:
            for row in csv.reader(lines, delimiter=delimiter):
                if row:
                    rows.append(row)
                if len(rows) == SAMPLE:
                    break
        except csv.Error:
            pass
        if not rows:
            return 0, 0
        at, score = header_at(rows, named)
        return score, len(rows[at])

    return max(DELIMITERS, key=weight)
