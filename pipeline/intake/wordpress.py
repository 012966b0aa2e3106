"""A WordPress export (WXR) as topics with texts: its posts and pages; ground floor."""

from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

from pipeline.intake.dates import moment
from pipeline.intake.found import MAX_TEXT_BYTES, Found, Item, Left, Named, Note, Refused, Text, one_line
from pipeline.intake.html import to_markdown
from pipeline.intake.markup import local, parse
from pipeline.intake.slugs import slug, unescaped
from pipeline.intake.texts import shortened
from pipeline.project.topics import CONTROL, MAX_TITLE_BYTES

TAKEN = ("post", "page")
FIELDS = frozenset({"title", "link", "creator", "post_id", "post_date", "post_date_gmt", "post_name", "status",
                    "post_type", "post_password", "post_parent"})  # fmt: skip


class _Reader:
    """Collects items as the parser comes by them; ``found`` is emptied by who reads."""

    def __init__(self, file: str, named: Named) -> None:
        self.found: list[Found] = []
        self._file, self._named = file, named
        self._item: dict[str, str] | None = None
        self._line = 0
        self._parts: list[str] = []
        self._wanted = False
        self._terms: list[tuple[str, str]] = []
        self._term: tuple[str, str] | None = None
        self._others: Counter[str] = Counter()

    def start(self, name: str, given: dict[str, str], line: int) -> None:
        tag = local(name)
        if tag == "item":
            self._item, self._line, self._terms = {}, line, []
        if self._item is None:
            return
        self._wanted = tag in FIELDS or tag in ("encoded", "category")
        self._term = (given.get("domain", ""), given.get("nicename", "")) if tag == "category" else None
        self._parts.clear()

    def text(self, data: str) -> None:
        if self._wanted:
            self._parts.append(data)

    def end(self, name: str, line: int) -> None:
        tag = local(name)
        if self._item is None:
            return
        said = "".join(self._parts) if self._wanted else ""
        self._wanted = False
        self._parts.clear()
        if tag == "item":
            self._finish(self._item)
            self._item = None
        elif tag == "encoded":
            self._item["excerpt" if "excerpt" in name else "content"] = said
        elif tag == "category" and self._term is not None:
            self._terms.append((self._term[0], said.strip() or self._term[1]))
        elif tag in FIELDS:
            self._item.setdefault(tag, said.strip())

    def close(self) -> None:
        for kind, count in sorted(self._others.items()):
            self.found.append(Left(self._file, 0, f"{count} of type {kind or 'unknown'}: no posts and no pages"))

    def _finish(self, item: dict[str, str]) -> None:
        kind, status = item.get("post_type", ""), item.get("status", "")
        if kind not in TAKEN:
            self._others[kind] += 1
            return
        label = f"{kind} {item.get('title') or item.get('post_name') or item.get('post_id', '')!r}"[:200]
        if status not in self._named.statuses:
            when = f" for {item.get('post_date', '')}" if status == "future" else ""
            why = f"{label}: its status is {status or 'unknown'}{when} (take such too: --status publish,{status})"
            self.found.append(Left(self._file, self._line, why))
        elif item.get("post_password"):
            self.found.append(Left(self._file, self._line, f"{label}: it is protected by a password"))
        else:
            self.found += self._topic(item, kind, label)

    def _topic(self, item: dict[str, str], kind: str, label: str) -> Iterator[Found]:
        name = unescaped(item.get("post_name", ""))
        title = one_line(item.get("title", ""))
        if not title:
            title = one_line(name.replace("-", " "))
            yield Note(self._file, self._line, f"{label}: it has no title, so its name was taken: {title!r}")
        if not title:
            yield Refused(self._file, self._line, f"{label}: it has neither a title nor a name")
            return
        if len(title.encode()) > MAX_TITLE_BYTES or any(CONTROL.search(text) for text in item.values()):
            yield Refused(self._file, self._line, f"{label}: its title is too long, or it holds control characters")
            return
        found = moment(item.get("post_date", ""))
        tags = [text for domain, text in self._terms if domain == "post_tag"]
        categories = [text for domain, text in self._terms if domain == "category"]
        fields = {
            "date": found[0] if found else "",
            "author": item.get("creator", ""),
            "categories": categories,
            "tags": tags,
            "link": item.get("link", ""),
            "wordpress_id": item.get("post_id", ""),
        }
        body = to_markdown(item.get("content", ""))
        if len(body.encode()) > MAX_TEXT_BYTES:
            yield Refused(self._file, self._line, f"{label}: its text has more than {MAX_TEXT_BYTES} bytes; divide it")
            return
        description = one_line(to_markdown(item.get("excerpt", "")))
        cells = {
            "date": str(fields["date"]), "author": item.get("creator", ""), "id": item.get("post_id", ""),
            "parent": item.get("post_parent", ""), "category": categories[0] if categories else "",
            "name": name or title, "type": kind, "status": item.get("status", ""),
        }  # fmt: skip
        yield Item(
            self._file, self._line, title, name or title, True, slug(kind), cells, "",
            Text(shortened(description), body, {k: v for k, v in fields.items() if v}),
            f"wordpress:{item.get('post_id', '')}",
        )  # fmt: skip


def read(file: str, stream: BinaryIO, named: Named) -> Iterator[Found]:
    """Its posts and pages, item by item. Raises Unreadable where the file breaks off."""
    reader = _Reader(file, named)
    for _ in parse(stream, start=reader.start, end=reader.end, text=reader.text):
        yield from reader.found
        reader.found.clear()
    reader.close()
    yield from reader.found
