"""Which of the found becomes a topic, and under which slug; ground floor.

Pure: it compares what was found with what the site has, and writes nothing. A topic that is there stays as it is, its
slug for good; a slug that two would have is no one's by accident: a rule tells them apart, or the later is refused by
name.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pipeline.intake.found import Item, Note, Refused, one_line
from pipeline.intake.rules import Rules, cell
from pipeline.intake.slugs import RESERVED, Neighbours, likeness, slug
from pipeline.intake.tables import column
from pipeline.project.site import MAX_SLUG_BYTES
from pipeline.project.topics import MAX_PATH_BYTES, MAX_TITLE_BYTES
from pipeline.views import TopicRow

MAX_NEAR = 1000  # notes on near titles; who has more has read enough


@dataclass(frozen=True, slots=True)
class Topic:
    """One that is new: ``number`` is its place among the items."""

    number: int
    item: Item
    lane: str
    slug: str
    title: str
    type: str
    brief: Mapping[str, str]


@dataclass(slots=True)
class Decision:
    """What is to be done."""

    new: list[Topic] = field(default_factory=list)  # by lane as they come, in order
    unchanged: int = 0
    same: list[tuple[Item, str]] = field(default_factory=list)  # what is there already, and its slug
    refused: list[Refused] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    apart: list[Note] = field(default_factory=list)  # names that several have, and what tells them apart


@dataclass(slots=True)
class _Open:
    """A topic that has no slug yet."""

    number: int
    item: Item
    lane: str
    names: list[str]
    level: int = 0

    @property
    def said(self) -> list[str]:
        """The names up to its level, without blanks and repetitions."""
        found: list[str] = []
        for name in self.names[: self.level + 1]:
            if one_line(name) and name not in found:
                found.append(one_line(name))
        return found

    @property
    def slug(self) -> str:
        return slug(" ".join(self.said))

    @property
    def title(self) -> str:
        return ", ".join(self.said) if self.level and not self.item.own else self.item.title

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(likeness(name) for name in self.names)


class Site:
    """What the site has: topics, and addresses that are live elsewhere."""

    def __init__(
        self,
        file: str,
        topics: Sequence[TopicRow],
        path: Callable[..., str],
        live: Mapping[str, str],
        source_of: Callable[[str], str] = lambda slug: "",
    ) -> None:
        """``live``: where each of those addresses is noted; ``source_of``: where a topic's text came from, by slug."""
        self.file, self.path, self.live, self.source_of = file, path, live, source_of
        self.topics = {topic.slug: topic for topic in topics}


def decide(items: Iterable[Item], site: Site, rules: Rules) -> Decision:
    """What becomes of each item."""
    decision = Decision()
    fresh: list[_Open] = []
    seen: dict[tuple[str, ...], Item] = {}
    for number, item in enumerate(items):
        try:
            one = _Open(number, item, rules.lane_of(item), rules.names_of(item))
        except ValueError as error:
            decision.refused.append(Refused(item.file, item.line, str(error)))
            continue
        if not slug(" ".join(one.names)):
            decision.refused.append(
                Refused(item.file, item.line, f"{item.title!r} has no letters to make a slug of; give it one")
            )
        elif (twin := seen.setdefault(one.identity, item)) is not item:
            what = f"the same {'slug' if item.own and not rules.slug else 'keyword or title'} as {_at(twin)}"
            decision.refused.append(Refused(item.file, item.line, f"{item.title!r}: {what}"))
        elif not _is_there(one, site, rules, decision):
            fresh.append(one)
    _tell_apart(fresh, site, decision)
    _place(fresh, site, rules, decision)
    if rules.order:
        decision.new.sort(key=lambda topic: rules.place_of(topic.item))
    return decision


def _is_there(one: _Open, site: Site, rules: Rules, decision: Decision) -> bool:
    """Whether the site has this topic already, under any slug that it may have got."""
    item = one.item
    for level in range(len(one.names)):
        one.level = level
        topic = site.topics.get(one.slug)
        if topic is None or not _is_same(one, topic, site, rules):
            continue
        decision.same.append((item, topic.slug))
        differ = [n for n, v in item.cells.items() if topic.brief.get(n, v) != v] if not item.source else []
        if topic.lane != one.lane:
            differ.append("lane")
        if item.source and topic.title != item.title:
            differ.append("title")
        if not differ:
            decision.unchanged += 1
        else:
            what = f"topic {topic.slug!r} ({site.file}:{topic.line}) is there already and stays; other in the source: "
            decision.notes.append(Note(item.file, item.line, what + ", ".join(differ)))
        return True
    one.level = 0
    return False


def _is_same(one: _Open, topic: TopicRow, site: Site, rules: Rules) -> bool:
    if one.item.source:
        return site.source_of(topic.slug) in ("", one.item.source)
    known = [column(name) for name in rules.slug if column(name) in topic.brief]
    if known:
        return all(topic.brief[name] == cell(one.item.cells, name) for name in known)
    return one.item.own or likeness(topic.title) in (likeness(one.item.title), likeness(", ".join(one.said)))


def _tell_apart(fresh: list[_Open], site: Site, decision: Decision) -> None:
    """Raise the level of all that share a slug, with each other or with what the site has, until none can rise."""
    groups: dict[str, list[_Open]] = defaultdict(list)
    for one in fresh:
        groups[one.slug].append(one)
    first = {name: list(group) for name, group in groups.items() if len(group) > 1 or _is_taken(name, site)}
    crowded = set(first)
    while crowded:
        name = crowded.pop()
        group = groups[name]
        rising = [one for one in group if one.level + 1 < len(one.names)]
        if not rising or (len(group) < 2 and not _is_taken(name, site)):
            continue
        groups[name] = [one for one in group if one.level + 1 >= len(one.names)]
        for one in rising:
            before = one.said
            while one.said == before and one.level + 1 < len(one.names):  # a blank tells nobody apart
                one.level += 1
            groups[one.slug].append(one)
            crowded.add(one.slug)
    for name, group in first.items():
        apart = [one for one in group if one.level]
        if apart and name:
            shown = ", ".join(f"{_at(one.item)} {one.slug!r}" for one in islice(apart, 10))
            more = f" and {len(apart) - 10} more" if len(apart) > 10 else ""
            what = f"{name!r} is shared by {len(group)}, told apart: {shown}{more}"
            decision.apart.append(Note(group[0].item.file, group[0].item.line, what))


def _is_taken(name: str, site: Site) -> bool:
    return not name or name in RESERVED or name in site.topics


class _Taken:
    """Who has what by now: topics of the site, then items, the earlier first."""

    def __init__(self, site: Site) -> None:
        self._site = site
        there = site.topics.values()
        self.slugs: dict[str, TopicRow | Item] = dict(site.topics)
        self.paths: dict[str, TopicRow | Item] = {t.path: t for t in there}
        self.titles: dict[str, TopicRow | Item] = {likeness(t.title): t for t in there}
        self.keywords: dict[str, TopicRow | Item] = {
            likeness(word): t for t in there if (word := t.brief.get("keyword"))
        }

    def why_not(self, one: _Open, path: str) -> str:
        """What forbids it; empty when nothing does."""
        item, title, name = one.item, one.title, one.slug
        if name in RESERVED:
            return f"{name!r} is a reserved name; give it another slug"
        if other := self.slugs.get(name):
            who = self.named(other)
            return f"{item.title!r} would have the slug {name!r} of {who}; tell them apart: --slug COLUMN,COLUMN"
        if other := self.paths.get(path):
            return f"{item.title!r} would live at {path!r} like {self.named(other)}; change slug, lane or type"
        if live := self._site.live.get(path):
            return f"{item.title!r} would live at {path!r}, where a page is live already ({live})"
        if not item.own and (other := self.titles.get(likeness(title)) or self._same_keyword(item, title)):
            return f"{item.title!r}: the same keyword or title as {self.named(other)}"
        if len(one.lane) > MAX_SLUG_BYTES or len(path) > MAX_PATH_BYTES or len(title.encode()) > MAX_TITLE_BYTES:
            return f"{item.title[:100]!r}: its lane, path or title is too long; shorten it"
        return ""

    def _same_keyword(self, item: Item, title: str) -> TopicRow | Item | None:
        return self.keywords.get(likeness(item.keyword or title))

    def take(self, one: _Open, path: str) -> None:
        self.slugs[one.slug] = self.paths[path] = self.titles[likeness(one.title)] = one.item
        if one.item.keyword:
            self.keywords[likeness(one.item.keyword)] = one.item

    def named(self, other: TopicRow | Item) -> str:
        return _at(other) if isinstance(other, Item) else f"topic {other.slug!r} ({self._site.file}:{other.line})"


def _place(fresh: list[_Open], site: Site, rules: Rules, decision: Decision) -> None:
    """Give each its slug, the earlier first; refuse what is taken by then."""
    taken = _Taken(site)
    known: list[TopicRow | Item] = list(site.topics.values())
    near = Neighbours([*(t.title for t in site.topics.values()), *(one.title for one in fresh)])
    for t in site.topics.values():
        near.near(t.title)
    told = 0
    for one in fresh:
        item, title, kind = one.item, one.title, rules.type_of(one.item)
        path = site.path(type=kind, lane=one.lane, slug=one.slug)
        if why := taken.why_not(one, path):
            decision.refused.append(Refused(item.file, item.line, why))
            continue
        place = near.near(title)
        if item.own and (other := taken.titles.get(likeness(title))):
            what = f"{title!r} is also the title of {taken.named(other)}; tell the pages apart"
            decision.notes.append(Note(item.file, item.line, what))
        elif place is not None:
            told += 1
            if told <= MAX_NEAR:
                what = f"{title!r} says nearly the same as {taken.named(known[place])}"
                decision.notes.append(Note(item.file, item.line, what))
        known.append(item)
        taken.take(one, path)
        brief = {} if item.source else rules.brief_of(item)
        decision.new.append(Topic(one.number, item, one.lane, one.slug, title, kind, brief))
        if item.own and one.slug != item.name.lower() and not one.level:
            decision.notes.append(Note(item.file, item.line, f"its slug {item.name!r} is written {one.slug!r} here"))
    if told > MAX_NEAR:
        decision.notes.append(Note(site.file, 0, f"{told - MAX_NEAR} more titles that are near to others"))


def _at(item: Item) -> str:
    return f"{item.file}:{item.line}" if item.line else item.file
