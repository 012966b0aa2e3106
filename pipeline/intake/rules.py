"""The user's rules: which lane, which order, which slug; ground floor.

A lane is ``=NAME`` for all, a column's value, or the year or month of a date in it (``date:year``), then in the order
of these dates. A slug is made of the first of its columns; topics that would share one are told apart by the next, and
so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation

from pipeline.errors import UsageError
from pipeline.intake.dates import instant, moment
from pipeline.intake.found import Item, Named
from pipeline.intake.slugs import slug
from pipeline.intake.tables import column, key

PARTS = {"year": 4, "month": 7}


@dataclass(frozen=True, slots=True)
class Rules:
    """What a command's options say."""

    lane: str = ""  # a column; empty: the source's own lane, else the type
    constant: str = ""
    part: str = ""  # of a date
    order: str = ""
    slug: tuple[str, ...] = ()  # columns; empty: the name that the source gives, else the title
    title: str = ""
    type: str = ""
    columns: frozenset[str] | None = None  # of the brief; None: all
    zone: tzinfo = UTC
    named: Named = field(default_factory=Named)

    def lane_of(self, item: Item) -> str:
        """The lane's slug. Raises ValueError with what is wrong."""
        if self.constant:
            return self.constant
        if not self.lane:
            return slug(item.cells.get("lane", "")) or self.type_of(item)
        value = cell(item.cells, self.lane)
        if self.part:
            found = moment(value)
            if found is None:
                raise ValueError(f"it has no date in {self.lane!r}, and its lane is the {self.part} of that")
            return found[0][: PARTS[self.part]]
        if not slug(value):
            raise ValueError(f"column {self.lane!r} is empty or has no letters, and its lane is named by that")
        return slug(value)

    def type_of(self, item: Item) -> str:
        return self.type or item.type or "page"

    def brief_of(self, item: Item) -> dict[str, str]:
        """What the topic's row keeps of it."""
        wanted = item.cells if self.columns is None else self.columns
        return {name: value for name, value in item.cells.items() if name in wanted and name not in ("lane", "type")}

    def place_of(self, item: Item) -> tuple[int, datetime | Decimal | str]:
        """What topics of a lane are sorted by: dates first, then numbers, then texts, then what has nothing."""
        value = cell(item.cells, self.order)
        if not value:
            return 3, ""
        if (at := instant(value, self.zone)) is not None:
            return 0, at
        try:
            return 1, Decimal(value).normalize() if Decimal(value).is_finite() else Decimal(0)
        except InvalidOperation:
            return 2, value

    def names_of(self, item: Item) -> list[str]:
        """What tells it from others of its name: the name, then one more at each step."""
        if not self.slug:
            return [item.name]
        first = cell(item.cells, self.slug[0]) or item.name
        return [first, *(cell(item.cells, name) for name in self.slug[1:])]


def rules(
    *, lane: str = "", order: str = "", slug: str = "", title: str = "", type: str = "", columns: str = "",
    status: str = "publish", zone: tzinfo = UTC,
) -> Rules:  # fmt: skip
    """The options as rules. Raises UsageError."""
    from pipeline.intake.slugs import slug as made

    constant = part = ""
    if lane.startswith("="):
        constant, lane = lane[1:].strip(), ""
        if made(constant) != constant or not constant:
            raise UsageError(
                f"--lane ={constant}: a lane is named by lower-case words joined by '-'; write ={made(constant)}"
            )
    elif ":" in lane and lane.rpartition(":")[2] in PARTS:
        lane, _, part = lane.rpartition(":")
    if type and made(type) != type:
        raise UsageError(f"--type {type!r}: a type is lower-case words joined by '-'")
    chain = tuple(key(name) for name in slug.split(",") if name.strip())
    listed = (
        None
        if columns in ("", "all")
        else frozenset(column(n) for n in columns.split(",") if n.strip() and n != "none")
    )
    statuses = frozenset(word.strip() for word in status.split(",") if word.strip())
    asked = {key(name) for name in (lane, order, title) if name} | set(chain)
    named = Named(key(title), frozenset(asked), statuses)
    return Rules(
        key(lane),
        constant,
        part,
        key(order) or (key(lane) if part else ""),
        chain,
        key(title),
        type,
        listed,
        zone,
        named,
    )


def cell(cells: Mapping[str, str], name: str) -> str:
    """The value of a column, called as its table calls it or as a template does."""
    return cells.get(name) or cells.get(column(name), "")
