"""What readers find in a source; ground floor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MAX_FILE_BYTES = 1 << 30  # of one source; what is read as a whole has limits of its own
MAX_TEXT_BYTES = 1 << 20  # of one text, as of any draft
MAX_CELL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Text:
    """What becomes the first revision of a topic."""

    description: str
    body: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """One topic to be. ``name`` is what its slug is made of; ``own``: the source says the slug itself."""

    file: str
    line: int
    title: str
    name: str
    own: bool
    type: str  # empty: as asked for
    cells: Mapping[str, str]  # what rules of lane, slug and order look into; of a row also what it is made from
    keyword: str = ""
    text: Text | None = None
    source: str = ""  # of a text: what its source knows it by


@dataclass(frozen=True, slots=True)
class Refused:
    """What cannot be taken, and why."""

    file: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """What is not meant to be taken: a draft, a menu item, a picture."""

    file: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Note:
    """What a person should know of what was taken."""

    file: str
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Address:
    """Where a page of the existing site lives."""

    file: str
    line: int
    url: str


@dataclass(frozen=True, slots=True)
class Named:
    """The columns that the user's options name, as ``columns.key`` writes them, and what else readers must know."""

    title: str = ""
    columns: frozenset[str] = field(default_factory=frozenset)
    statuses: frozenset[str] = frozenset({"publish"})


Found: TypeAlias = Item | Refused | Left | Note | Address


class Unreadable(Exception):
    """A source of which nothing can be taken, with its line if that is known."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


def one_line(text: str) -> str:
    """The text with every run of blanks and line ends as one blank."""
    return " ".join(text.split())
