"""Change one row of a site's topics file, and nothing else of it; ground floor.

Each change is a block: all that could be refused is refused before it begins, and the file takes its new form when it
ends well, so that a verb of the database may stand in between.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.errors import Refused, UsageError
from pipeline.project.sheet import Sheet, like, named, opened, wanted
from pipeline.project.site import Site
from pipeline.project.topics import OWN, REQUIRED
from pipeline.views import TopicRow

FIXED = {
    "slug": "the slug names the topic; remove it, and add another",
    "lane": "a topic changes its lane in the database as well: pipeline topics move SITE/SLUG --lane LANE",
}


@dataclass(frozen=True, slots=True)
class Edited:
    """What is changed of a file."""

    file: str  # as it is called in messages
    topic: TopicRow  # as it is then; as it was, for one that is taken out
    columns: tuple[str, ...] = ()  # that differ


@contextmanager
def adding(
    site: Site, row: Mapping[str, str], data: Mapping[str, str], *, before: str | None = None, dry_run: bool = False
) -> Iterator[Edited]:
    """Put a row for a new topic at the end of its lane, or right before another of it, when the block ends well.

    ``row`` has lane, slug and title, and may have type; without one it takes that of the lane's last topic, else
    ``page``. Raises UsageError for a column that the file does not have, Refused for a slug that it does, NotFound for
    the other topic, ProjectError for what the loader refuses.
    """
    with opened(site) as (sheet, topics, replace):
        _refuse_columns(data, set(sheet.header) - OWN, sheet.name)
        twin = next((t for t in topics if t.slug == row["slug"]), None)
        if twin is not None:
            raise Refused(
                f"topic {twin.slug!r} is already on line {twin.line} of {sheet.name};"
                f" change it: pipeline topics edit {site.slug}/{twin.slug} --set COLUMN=VALUE"
            )
        mates = [t for t in topics if t.lane == row["lane"]]
        last = max((t.order for t in mates), default=0) + 1
        own = {"type": mates[-1].type if mates else "page", "position": str(last)}
        cells = {**own, **row, **data}
        at = len(sheet.lines)
        if before is not None:
            mate = _mate(topics, before, row["lane"], sheet.name)
            if "position" in sheet.header:
                order = [*mates]
                order.insert(order.index(mate), TopicRow(row["lane"], row["slug"], "", "", "", last, {}))
                cells["position"] = str(_deal(sheet, order)[row["slug"]])
            else:
                at = mate.line - 1
        if sheet.lines and not sheet.lines[-1].endswith(b"\n"):
            sheet.lines[-1] += sheet.end.encode()
        sheet.lines.insert(at, sheet.write([cells.get(name, "") for name in sheet.header]))
        columns = tuple(name for name in sheet.header if cells.get(name))
        yield Edited(sheet.name, named(replace(check_only=True), row["slug"]), columns)
        if not dry_run:
            replace()


@contextmanager
def changing(site: Site, slug: str, values: Mapping[str, str], *, dry_run: bool = False) -> Iterator[Edited]:
    """Write ``values`` into the row of a topic when the block ends well; the columns that differ then may be none.

    Raises NotFound for a slug that the file does not have, UsageError for a column, or a change that would move the
    page, ProjectError for what the loader refuses.
    """
    with opened(site) as (sheet, topics, replace):
        for name in values:
            if name in FIXED:
                raise UsageError(f"column {name} cannot be changed: {FIXED[name]}")
        _refuse_columns(values, set(sheet.header) - set(FIXED), sheet.name)
        topic = wanted(topics, slug, sheet.name)
        last, cells = sheet.records[topic.line]
        new = [values.get(name, cell) for name, cell in zip(sheet.header, cells, strict=True)]
        if new == cells:
            yield Edited(sheet.name, topic)
            return
        sheet.lines[topic.line - 1 : last] = [like(sheet, topic.line, last, new)]
        after = named(replace(check_only=True), slug)
        _refuse_new_path(topic, after)
        pairs = zip(sheet.header, cells, new, strict=True)
        yield Edited(sheet.name, after, tuple(name for name, old, now in pairs if old != now))
        if not dry_run:
            replace()


@contextmanager
def moving(
    site: Site, slug: str, *, before: str | None = None, after: str | None = None, dry_run: bool = False
) -> Iterator[Edited]:
    """Let a topic's row stand right before or right after another of its lane when the block ends well.

    In a file with positions those of the lane are dealt out anew in the new order; else the row itself moves. Raises as
    ``changing``, and Refused when the other is of another lane.
    """
    with opened(site) as (sheet, topics, replace):
        topic = wanted(topics, slug, sheet.name)
        mate = _mate(topics, before or after or "", topic.lane, sheet.name)
        if mate is topic:
            raise Refused(f"topic {slug!r} cannot stand before or after itself")
        mates = [t for t in topics if t.lane == topic.lane]
        order = [t for t in mates if t is not topic]
        order.insert(order.index(mate) + (before is None), topic)
        if order == mates:
            yield Edited(sheet.name, topic)
            return
        if "position" in sheet.header:
            _deal(sheet, order)
        else:
            _carry(sheet, topic, mate.line - 1 if before is not None else sheet.records[mate.line][0])
        yield Edited(sheet.name, named(replace(check_only=True), slug), ("position",))
        if not dry_run:
            replace()


@contextmanager
def moving_to_lane(site: Site, slug: str, lane: str, *, dry_run: bool = False) -> Iterator[Edited]:
    """Let a topic's row be the last of another lane when the block ends well. Raises as ``changing``."""
    with opened(site) as (sheet, topics, replace):
        topic = wanted(topics, slug, sheet.name)
        if topic.lane == lane:
            yield Edited(sheet.name, topic)
            return
        mates = [t for t in topics if t.lane == lane]
        last, cells = sheet.records[topic.line]
        own = {"lane": lane, "position": str(max((t.order for t in mates), default=0) + 1)}
        new = [own.get(name, cell) for name, cell in zip(sheet.header, cells, strict=True)]
        sheet.lines[topic.line - 1 : last] = [like(sheet, topic.line, last, new), *[b""] * (last - topic.line)]
        end = max((sheet.records[t.line][0] for t in mates), default=0)
        if "position" not in sheet.header and end > topic.line:
            _carry(sheet, topic, end)
        moved = named(replace(check_only=True), slug)
        _refuse_new_path(topic, moved)
        yield Edited(sheet.name, moved, ("lane",))
        if not dry_run:
            replace()


@contextmanager
def taking_out(site: Site, slug: str) -> Iterator[Edited | None]:
    """Take the row of a topic out of the file when the block ends well; None when the file has no such row."""
    with opened(site) as (sheet, topics, replace):
        topic = next((t for t in topics if t.slug == slug), None)
        if topic is None:
            yield None
            return
        last, _ = sheet.records[topic.line]
        del sheet.lines[topic.line - 1 : last]
        replace(check_only=True)
        yield Edited(sheet.name, topic)
        replace()


def _mate(topics: list[TopicRow], slug: str, lane: str, file: str) -> TopicRow:
    """The topic beside which another is to stand. Raises NotFound, and Refused when it is of another lane."""
    mate = wanted(topics, slug, file)
    if mate.lane != lane:
        raise Refused(f"topic {slug!r} is in lane {mate.lane!r}, not in {lane!r}; see {file}, line {mate.line}")
    return mate


def _deal(sheet: Sheet, order: list[TopicRow]) -> dict[str, int]:
    """Give the positions that these topics have to them in this order; by slug. One that has no line is left out."""
    column = sheet.header.index("position")
    dealt = dict(zip((t.slug for t in order), sorted(t.order for t in order), strict=True))
    for topic in sorted(order, key=lambda t: -t.line):  # from the end, so that lines keep their numbers
        if topic.line and dealt[topic.slug] != topic.order:
            last, cells = sheet.records[topic.line]
            new = [*cells[:column], str(dealt[topic.slug]), *cells[column + 1 :]]
            sheet.lines[topic.line - 1 : last] = [like(sheet, topic.line, last, new)]
    return dealt


def _carry(sheet: Sheet, topic: TopicRow, to: int) -> None:
    """Move the lines of a topic in front of the line with the index ``to``."""
    ended = sheet.lines[-1].endswith(b"\n")
    if not ended:
        sheet.lines[-1] += sheet.end.encode()
    first, last = topic.line - 1, sheet.records[topic.line][0]
    block = sheet.lines[first:last]
    sheet.lines[to:to] = block
    start = first + len(block) if to <= first else first
    del sheet.lines[start : start + len(block)]
    if not ended:
        sheet.lines[-1] = sheet.lines[-1].removesuffix(sheet.end.encode())


def _refuse_new_path(topic: TopicRow, after: TopicRow) -> None:
    if after.path != topic.path:
        raise UsageError(
            f"the page of {topic.slug!r} would move from {topic.path!r} to {after.path!r}, and a page cannot move;"
            " remove the topic, and add it with a new slug"
        )


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
