"""The addresses in a sitemap; ground floor."""

from collections.abc import Iterator
from typing import BinaryIO

from pipeline.intake.found import Address, Found, Note
from pipeline.intake.markup import local, parse


class _Reader:
    def __init__(self, file: str) -> None:
        self.found: list[Found] = []
        self._file = file
        self._inside: list[str] = []
        self._parts: list[str] = []
        self.others = 0

    def start(self, name: str, given: dict[str, str], line: int) -> None:
        self._inside.append(local(name))
        self._parts.clear()

    def text(self, data: str) -> None:
        self._parts.append(data)

    def end(self, name: str, line: int) -> None:
        self._inside.pop()
        if local(name) == "loc" and self._inside[-1:] == ["url"]:
            self.found.append(Address(self._file, line, "".join(self._parts).strip()))
        elif local(name) == "loc" and self._inside[-1:] == ["sitemap"]:
            self.others += 1
        self._parts.clear()


def read(file: str, stream: BinaryIO) -> Iterator[Found]:
    """Its addresses. An index is only told of: nothing is fetched. Raises Unreadable for what is no XML."""
    reader = _Reader(file)
    for _ in parse(stream, start=reader.start, end=reader.end, text=reader.text):
        yield from reader.found
        reader.found.clear()
    if reader.others:
        yield Note(file, 0, f"it names {reader.others} sitemaps; import their files too, nothing is fetched")
