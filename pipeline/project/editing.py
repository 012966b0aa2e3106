"""Change one row of a site's topics file, and nothing else of it; ground floor.

Every other byte stays: mark, line ends, quotes, blank lines. What comes out is judged by the loader before it takes the
file's place, by a rename, so that whoever reads sees the old file or the new one. It never guesses: a file with a
problem is not touched.
"""

import contextlib
import csv
import difflib
import fcntl
import io
import os
import tempfile
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pipeline.errors import NotFound, ProjectError, Refused, UsageError
from pipeline.project.site import Site
from pipeline.project.topics import OWN, REQUIRED, load_topics
from pipeline.views import TopicRow

BOM = b"\xef\xbb\xbf"
FIXED = {
    "slug": "the slug names the topic; remove it, and add another",
    "lane": "a topic cannot change its lane; remove it, and add another with a new slug",
}


@dataclass(frozen=True, slots=True)
class Edited:
    """What was changed of a file."""

    file: str  # as it is called in messages
    topic: TopicRow  # as it is now; as it was, for one that was taken out
    columns: tuple[str, ...] = ()  # that differ


@dataclass(slots=True)
class _Sheet:
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


def add_topic(site: Site, row: Mapping[str, str], data: Mapping[str, str]) -> Edited:
    """Put a row for a new topic at the end of the file. ``row`` has lane, slug and title, and may have type.

    Without a type it takes that of the lane's last topic, else ``page``; its position follows its lane's last. Raises
    UsageError for a column that the file does not have, Refused for a slug that it does, ProjectError for what the
    loader refuses.
    """
    with _opened(site) as (sheet, topics, replace):
        _refuse_columns(data, set(sheet.header) - OWN, sheet.name)
        twin = next((t for t in topics if t.slug == row["slug"]), None)
        if twin is not None:
            raise Refused(
                f"topic {twin.slug!r} is already on line {twin.line} of {sheet.name};"
                f" change it: pipeline topics edit {site.slug}/{twin.slug} --set COLUMN=VALUE"
            )
        mates = [t for t in topics if t.lane == row["lane"]]
        own = {
            "type": mates[-1].type if mates else "page",
            "position": str(max((t.order for t in mates), default=0) + 1),
        }
        cells = {**own, **row, **data}
        if sheet.lines and not sheet.lines[-1].endswith(b"\n"):
            sheet.lines[-1] += sheet.end.encode()
        sheet.lines.append(sheet.write([cells.get(name, "") for name in sheet.header]))
        after = replace()
        return Edited(sheet.name, _named(after, row["slug"]), tuple(name for name in sheet.header if cells.get(name)))


def edit_topic(site: Site, slug: str, values: Mapping[str, str]) -> Edited:
    """Write ``values`` into the row of a topic; the columns that differ then are told, and none may be.

    Raises NotFound for a slug that the file does not have, UsageError for a column, or a change that would move the
    page, ProjectError for what the loader refuses.
    """
    with _opened(site) as (sheet, topics, replace):
        for name in values:
            if name in FIXED:
                raise UsageError(f"column {name} cannot be changed: {FIXED[name]}")
        _refuse_columns(values, set(sheet.header) - set(FIXED), sheet.name)
        topic = _wanted(topics, slug, sheet.name)
        last, cells = sheet.records[topic.line]
        new = [values.get(name, cell) for name, cell in zip(sheet.header, cells, strict=True)]
        if new == cells:
            return Edited(sheet.name, topic)
        sheet.lines[topic.line - 1 : last] = [_like(sheet, topic.line, last, new)]
        after = _named(replace(check_only=True), slug)
        if after.path != topic.path:
            raise UsageError(
                f"the page of {slug!r} would move from {topic.path!r} to {after.path!r}, and a page cannot move;"
                " remove the topic, and add it with a new slug"
            )
        replace()
        pairs = zip(sheet.header, cells, new, strict=True)
        return Edited(sheet.name, after, tuple(name for name, old, now in pairs if old != now))


@contextmanager
def taking_out(site: Site, slug: str) -> Iterator[Edited | None]:
    """Take the row of a topic out of the file when the block ends well; None when the file has no such row.

    All that could be refused is refused before the block begins.
    """
    with _opened(site) as (sheet, topics, replace):
        topic = next((t for t in topics if t.slug == slug), None)
        if topic is None:
            yield None
            return
        last, _ = sheet.records[topic.line]
        del sheet.lines[topic.line - 1 : last]
        replace(check_only=True)
        yield Edited(sheet.name, topic)
        replace()


class _Replace:
    """Puts the sheet in the file's place, once the loader has accepted it."""

    def __init__(self, site: Site, path: Path, sheet: _Sheet, seen: os.stat_result) -> None:
        self._site, self._path, self._sheet, self._seen = site, path, sheet, seen

    def __call__(self, *, check_only: bool = False) -> list[TopicRow]:
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", suffix=".new", dir=self._path.parent)
        new = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.writelines(self._sheet.lines)
                stream.flush()
                os.fsync(stream.fileno())
                os.fchmod(stream.fileno(), self._seen.st_mode & 0o7777)
                with contextlib.suppress(OSError):  # whoever edits another's file keeps it theirs, where he may
                    os.fchown(stream.fileno(), self._seen.st_uid, self._seen.st_gid)
            try:
                topics = load_topics(self._site, new)
            except ProjectError as error:
                raise ProjectError(str(error).replace("nothing was imported", "nothing was written", 1)) from error
            if not check_only:
                if _version(self._path.stat()) != _version(self._seen):
                    raise Refused(f"{self._sheet.name} was changed by somebody else just now; try again")
                new.replace(self._path)
            return topics
        finally:
            new.unlink(missing_ok=True)


@contextmanager
def _opened(site: Site) -> Iterator[tuple[_Sheet, list[TopicRow], _Replace]]:
    """The file as it is, sound, and ours alone among those who edit it this way."""
    path = (site.folder / site.topics).resolve()  # what a link leads to is changed, not the link
    name = f"sites/{site.slug}/{site.topics}"
    topics = load_topics(site)  # tells of a missing or a broken file
    try:
        with _locked(path) as stream:
            seen = os.fstat(stream.fileno())
            sheet = _read(site, name, stream)
            topics = load_topics(site)
            yield sheet, topics, _Replace(site, path, sheet, seen)
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


def _read(site: Site, name: str, stream: IO[bytes]) -> _Sheet:
    lines = list(stream)
    first = lines[0] if lines else b""
    delimiter = "\t" if Path(site.topics).suffix.lower() in (".tsv", ".tab") else ","
    sheet = _Sheet(name, delimiter, lines, "\r\n" if first.endswith(b"\r\n") else "\n")
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


def _like(sheet: _Sheet, first: int, last: int, cells: list[str]) -> bytes:
    """The record in the place of these lines; a file without a line end at its end stays so."""
    written = sheet.write(cells)
    return written if sheet.lines[last - 1].endswith(b"\n") else written.removesuffix(sheet.end.encode())


def _wanted(topics: list[TopicRow], slug: str, file: str) -> TopicRow:
    found = next((t for t in topics if t.slug == slug), None)
    if found is not None:
        return found
    near = difflib.get_close_matches(slug, [t.slug for t in topics], n=2)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "; add it: pipeline topics add"
    raise NotFound(f"no topic {slug!r} in {file}{hint}")


def _named(topics: list[TopicRow], slug: str) -> TopicRow:
    return next(t for t in topics if t.slug == slug)


def _refuse_columns(values: Mapping[str, str], known: Collection[str], file: str) -> None:
    for name in values:
        if name in known:
            continue
        if name in OWN:
            raise UsageError(f"column {name} is not set so; see: pipeline topics add --help")
        near = difflib.get_close_matches(name, known, n=1)
        columns = [column for column in known if column not in REQUIRED]
        hint = (
            f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(sorted(columns)) or 'none to be set so'}"
        )
        raise UsageError(f"{file} has no column {name!r} to set; {hint}")
