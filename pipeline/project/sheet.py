"""A site's topics file in memory, to be changed and put back; ground floor.

Every byte that is not to change stays: mark, line ends, quotes, blank lines. What comes out is judged by the loader
before it takes the file's place, by a rename, so that whoever reads sees the old file or the new one. It never guesses:
a file with a problem is not touched.
"""

import csv
import difflib
import fcntl
import io
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pipeline.errors import NotFound, ProjectError, Refused
from pipeline.project.site import Site
from pipeline.project.topics import load_topics
from pipeline.project.whole import whole
from pipeline.views import TopicRow

BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Sheet:
    """A topics file in memory: its lines, and where each record of it stands."""

    name: str
    delimiter: str
    lines: list[bytes]
    end: str  # of a line
    header: list[str] = field(default_factory=list)
    records: dict[int, tuple[int, list[str]]] = field(default_factory=dict)  # by first line: the last one, and cells

    def write(self, cells: list[str]) -> bytes:
        """One record, as this file is written."""
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self.delimiter, lineterminator=self.end).writerow(cells)
        return text.getvalue().encode(errors="surrogatepass")  # which the loader names as what it is


class Replace:
    """Puts the sheet in the file's place, once the loader has accepted it."""

    def __init__(self, site: Site, path: Path, sheet: Sheet, seen: os.stat_result) -> None:
        self._site, self._path, self._sheet, self._seen = site, path, sheet, seen

    def __call__(self, *, check_only: bool = False) -> list[TopicRow]:
        with whole(self._path, self._sheet.lines, self._seen) as new:
            try:
                topics = load_topics(self._site, new)
            except ProjectError as error:
                raise ProjectError(str(error).replace("nothing was imported", "nothing was written", 1)) from error
            if not check_only:
                if _version(self._path.stat()) != _version(self._seen):
                    raise Refused(f"{self._sheet.name} was changed by somebody else just now; try again")
                new.replace(self._path)
            return topics


@contextmanager
def opened(site: Site) -> Iterator[tuple[Sheet, list[TopicRow], Replace]]:
    """The file as it is, sound, and ours alone among those who edit it this way."""
    path = (site.folder / site.topics).resolve()  # what a link leads to is changed, not the link
    name = f"sites/{site.slug}/{site.topics}"
    topics = load_topics(site)  # tells of a missing or a broken file
    try:
        with _locked(path) as stream:
            seen = os.fstat(stream.fileno())
            sheet = _read(site, name, stream)
            topics = load_topics(site)
            yield sheet, topics, Replace(site, path, sheet, seen)
    except OSError as error:
        raise ProjectError(f"{name}: {error.strerror}; nothing was written") from error


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file, locked; again when it was replaced meanwhile. One that may not be written is not replaced either."""
    while True:
        with path.open("r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                yield stream
                return


def _read(site: Site, name: str, stream: IO[bytes]) -> Sheet:
    lines = list(stream)
    first = lines[0] if lines else b""
    delimiter = "\t" if Path(site.topics).suffix.lower() in (".tsv", ".tab") else ","
    sheet = Sheet(name, delimiter, lines, "\r\n" if first.endswith(b"\r\n") else "\n")
    texts = (raw.removeprefix(BOM if n == 0 else b"").decode() for n, raw in enumerate(lines))
    reader = csv.reader(texts, delimiter=delimiter, strict=True)
    start = 1
    for cells in reader:
        line, start = start, reader.line_num + 1
        if not cells:
            continue
        if not sheet.header:
            sheet.header = [unicodedata.normalize("NFC", cell).strip() for cell in cells]
        else:
            sheet.records[line] = (reader.line_num, cells)
    return sheet


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_size


def like(sheet: Sheet, first: int, last: int, cells: list[str]) -> bytes:
    """The record in the place of these lines; a file without a line end at its end stays so."""
    written = sheet.write(cells)
    return written if sheet.lines[last - 1].endswith(b"\n") else written.removesuffix(sheet.end.encode())


def wanted(topics: list[TopicRow], slug: str, file: str) -> TopicRow:
    found = next((t for t in topics if t.slug == slug), None)
    if found is not None:
        return found
    near = difflib.get_close_matches(slug, [t.slug for t in topics], n=2)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "; add it: pipeline topics add"
    raise NotFound(f"no topic {slug!r} in {file}{hint}")


def named(topics: list[TopicRow], slug: str) -> TopicRow:
    return next(t for t in topics if t.slug == slug)
