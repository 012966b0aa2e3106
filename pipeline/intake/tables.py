"""Rows of a table as topics to be, by what its header calls the columns; ground floor.

It knows the headers of the usual tools, and takes any other table that has a column for titles. Numbers are written
plainly; all else stays as it is.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from anyascii import anyascii

from pipeline.intake.found import MAX_CELL_BYTES, Address, Found, Item, Left, Named, Note, Refused, Unreadable, one_line
from pipeline.intake.numbers import number
from pipeline.intake.slugs import slug, unescaped
from pipeline.project.topics import CONTROL, MAX_TITLE_BYTES, OWN

SAMPLE = 30  # rows among which the header is looked for
MAX_COLUMNS = 500

KEYWORDS = ("keyword", "keywords", "query", "queries", "top queries", "search term", "mot-clé", "mot clé", "mots-clés",
            "mots clés", "requête", "requêtes", "requêtes les plus fréquentes", "từ khóa", "palabra clave",
            "palabras clave", "suchbegriff", "suchanfrage", "häufigste suchanfragen")  # fmt: skip
TITLES = ("title", "name", "headline", "task name", "titre", "titel", "título", "tiêu đề", "nom", "topic")
PAGES = ("top pages", "address", "url", "pages les plus populaires", "beliebteste seiten")
FACTS = ("lane", "slug", "type", "status code", "indexability", "volume", "search volume", "clicks", "position",
         "impressions", "ctr", "country", "currency", "cpc", "difficulty", "keyword difficulty", "intent")  # fmt: skip
# What Search Console puts beside its queries: counts of a day, a country, a device.
BESIDE = frozenset({"country", "device", "date", "search appearance", "filter"})
METRICS = frozenset({"clicks", "impressions", "ctr", "position", "value"})
KNOWN = frozenset({*KEYWORDS, *TITLES, *PAGES, *FACTS})
COUNTED = re.compile(
    r"volume|^vol$|^vol\.|searches|clicks|impressions|\bctr$|position$|traffic|\bcp[cs]\b|^kd$|difficulty|^competition"
    r"|competitive density|^comp$|number of results|change$|bid|return rate|click potential"
)
TAKEN = OWN | {"site"}  # what a template knows under these names is not the row's


def key(name: str) -> str:
    """A column's name as it is compared: blanks, case and forms of letters folded."""
    return one_line(unicodedata.normalize("NFC", name)).casefold().strip("'\"\ufeff")


def column(name: str) -> str:
    """A column's name as a template can write it: ``CPC (USD)`` is ``cpc_usd``."""
    words = re.sub(r"[^a-z0-9]+", "_", anyascii(name).lower()).strip("_")
    return f"source_{words}" if words in TAKEN or words[:1].isdigit() else words


def header_at(rows: Sequence[Sequence[str]], named: Named) -> tuple[int, int]:
    """Which of the rows is the header, and how surely: of most known names, else the first as wide as most are."""
    known = KNOWN | named.columns
    scores = [len({key(cell) for cell in row} & known) for row in rows]
    best = max(scores, default=0)
    if best:
        return scores.index(best), best
    widths = [len(row) for row in rows if len(row) > 1]
    if not widths:
        return 0, 0
    usual = max(set(widths), key=widths.count)
    return next(n for n, row in enumerate(rows) if len(row) == usual), 0


def items(
    file: str, rows: Iterable[tuple[int, list[str]]], named: Named, *, comma: bool = False, padded: bool = False
) -> Iterator[Found]:
    """The topics of a table, whose rows come with their lines. Raises Unreadable when it has no column for titles.

    ``comma``: decimals are written with one. ``padded``: a row may end before its last columns, if they are empty.
    """
    given = ((line, row) for line, row in rows if any(cell.strip() for cell in row))
    first = list(islice(given, SAMPLE))
    if not first:
        raise Unreadable("the file is empty; export it again")
    at, _ = header_at([row for _, row in first], named)
    line, names = first[at]
    table = _Table(file, line, names, named, comma)
    yield from table.notes()
    for line, row in chain(first[at + 1 :], given):
        if padded:
            row += [""] * (len(names) - len(row))
        yield from table.row(line, row)


class _Table:
    def __init__(self, file: str, line: int, names: Sequence[str], named: Named, comma: bool) -> None:
        self._file, self._line, self._comma = file, line, comma
        while names and not names[-1].strip():
            names = names[:-1]
        if len(names) > MAX_COLUMNS:
            raise Unreadable(f"it has {len(names)} columns; at most {MAX_COLUMNS} are read: export fewer", line)
        self._width = len(names)
        self._twice: list[str] = []
        self._at: dict[str, int] = {}  # by key
        self._names: dict[str, str] = {}  # by key, as a template writes it
        for n, name in enumerate(names):
            if key(name) in self._at or (column(name) and column(name) in self._names.values()):
                self._twice.append(one_line(name))
            elif key(name):
                self._at[key(name)] = n
                if column(name):
                    self._names[key(name)] = column(name)
        self._counts = {name for name in self._at if COUNTED.search(name)}
        self._keyword = next((name for name in KEYWORDS if name in self._at), "")
        titles = [name for name in TITLES if name in self._at]
        by_column = {word: name for name, word in self._names.items()}
        asked = by_column.get(named.title, named.title)
        self._title = asked or next((t for t in titles if t != "topic" or not self._keyword), "") or self._keyword
        self._page = next((name for name in PAGES if name in self._at), "")
        crawled = self._at.keys() & {"status code", "indexability"}
        self._is_inventory = not asked and bool(self._page) and (bool(crawled) or not self._title)
        others = self._at.keys() - {key(names[0])}
        self._is_beside = not (self._title or self._page) and key(names[0]) in BESIDE and others <= METRICS
        if self._is_inventory or self._is_beside:
            return
        for name in sorted(named.columns - {*self._at, *by_column}):
            raise Unreadable(f"it has no column {name!r}; its columns are: {self._shown()}", line)
        if not self._title:
            raise Unreadable(f"no column for titles; name one: --title COLUMN (its columns are: {self._shown()})", line)

    def _shown(self) -> str:
        names = list(self._at)
        return ", ".join(repr(name[:60]) for name in names[:20]) + (", …" if len(names) > 20 else "")

    def notes(self) -> Iterator[Found]:
        for name in self._twice:
            yield Note(self._file, self._line, f"column {name[:60]!r} stands twice; the first is taken")
        if self._is_beside:
            yield Left(self._file, 0, "it counts, and names no topics")

    def row(self, line: int, row: list[str]) -> Iterator[Found]:
        if self._is_beside:
            return
        while len(row) > self._width and not row[-1].strip():
            row = row[:-1]
        if len(row) != self._width:
            fact = f"{len(row)} cells, but the header has {self._width}"
            yield Refused(self._file, line, f"{fact}; quote cells that hold a separator")
            return
        cells: dict[str, str] = {}
        for name, n in self._at.items():
            cell = row[n]
            if not cell.isascii():
                cell = unicodedata.normalize("NFC", cell)
            cell = cell.replace("\r\n", "\n").replace("\r", "\n").strip()
            if mark := CONTROL.search(cell) or re.search("\ufffd", cell):
                code = f"U+{ord(mark.group()):04X}"
                broken = "\ud800" <= mark.group() <= "\udfff" or mark.group() == "\ufffd"
                what = "bytes that are no text in the file's encoding" if broken else f"the control character {code}"
                yield Refused(self._file, line, f"column {name!r} holds {what}; mend the cell")
                return
            if len(cell) > MAX_CELL_BYTES // 4 and len(cell.encode()) > MAX_CELL_BYTES:
                yield Refused(self._file, line, f"column {name!r} holds more than {MAX_CELL_BYTES} bytes; shorten it")
                return
            cells[name] = number(cell, comma=self._comma) if name in self._counts else cell
        if self._is_inventory:
            yield self._address(line, cells)
            return
        title = one_line(cells[self._title])
        if not title:
            yield Refused(self._file, line, f"column {self._title!r} is empty; a topic needs a title")
        elif len(title.encode()) > MAX_TITLE_BYTES:
            yield Refused(self._file, line, f"its title is longer than {MAX_TITLE_BYTES} bytes; shorten it")
        else:
            own = cells.get("slug", "")
            keyword = one_line(cells.get(self._keyword, ""))
            brief = {self._names[name]: cells[name] for name in self._names if name not in OWN or name == "position"}
            looked = brief | {name: cells[name] for name in ("lane", "type") if cells.get(name)}
            yield Item(
                self._file, line, title, unescaped(own) if own else title, bool(own), slug(cells.get("type", "")),
                looked, keyword,
            )  # fmt: skip

    def _address(self, line: int, cells: dict[str, str]) -> Found:
        url, status = cells[self._page], cells.get("status code", "200")
        if status != "200":
            return Left(self._file, line, f"{url[:200]!r} answered {status or 'nothing'}")
        kind = cells.get("content type", "text/html")
        if kind and not kind.startswith(("text/html", "application/xhtml")):
            return Left(self._file, line, f"{url[:200]!r} is no page but {kind[:60]}")
        return Address(self._file, line, url)
