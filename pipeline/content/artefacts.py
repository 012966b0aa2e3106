"""What belongs to the site and to no single topic: home, sitemap, feed, robots; beside the floors.

Made from live pages only, and every date in it is that of a page's last significant change, never that of the build.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from pipeline.content import links
from pipeline.content.markup import clean
from pipeline.content.pages import Lane, Link, lane_name
from pipeline.content.theming import fill
from pipeline.project.site import Site
from pipeline.views import LivePage, PageCard

MAX_URLS = 50_000  # of one sitemap, and below
MAX_SITEMAP_BYTES = 50 << 20  # by sitemaps.org
MAX_ENTRIES = 50
SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
ATOM = "http://www.w3.org/2005/Atom"
DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'
START = datetime(1970, 1, 1, tzinfo=UTC)  # of a site that has no page yet


@dataclass(frozen=True, slots=True)
class Entry:
    """One live page as maps and feeds see it."""

    topic_id: int
    path: str
    title: str
    description: str
    first_at: datetime
    changed_at: datetime


def entry_of(page: LivePage, card: PageCard) -> Entry:
    """A live page of a topic, as maps and feeds see it: at the address where it is live."""
    path = page.path.removesuffix("index.html")
    path = card.path if path == card.path else path  # one text, and not two: there may be very many
    return Entry(card.topic_id, path, card.title, card.description, page.first_at, page.changed_at)


def home(site: Site, lanes: Mapping[str, Lane]) -> bytes:
    """The home page: every lane that has a live page, with its live pages."""
    shown = [lane for name, pages in lanes.items() if (lane := _lane(site, name, pages))]
    page = {
        "title": clean(site.name),
        "description": clean(site.description),
        "canonical": links.canonical(site, ""),
        "kind": "home",
    }
    return fill("home.html", site, page=page, lanes=shown).encode()


def _lane(site: Site, name: str, lane: Lane) -> dict[str, Any] | None:
    members = [Link(clean(card.title), links.href(site, card.path)) for card in lane.members]
    href, text = None, ""
    if lane.pillar and lane.pillar.live:
        href, text = links.href(site, lane.pillar.path), clean(lane.pillar.description)
    elif not members:
        return None
    return {"title": lane_name(site, name), "href": href, "text": text, "members": members}


def sitemaps(site: Site, entries: Sequence[Entry]) -> dict[str, bytes]:
    """``sitemap.xml``; past 50,000 addresses or 50 MiB an index of that name, and its parts, parts first."""
    # The home page has no date: it lists others, and when one of them changes it has not changed itself.
    found = [(links.canonical(site, ""), None), *((links.canonical(site, e.path), e.changed_at) for e in entries)]
    parts: list[list[tuple[str, datetime | None]]] = [[]]
    size = 0
    for address in found:
        size += len(address[0].encode()) + 100  # its tags and date
        if len(parts[-1]) == MAX_URLS or size > MAX_SITEMAP_BYTES:
            parts.append([])
            size = len(address[0].encode()) + 100
        parts[-1].append(address)
    if len(parts) == 1:
        return {"sitemap.xml": _sitemap("urlset", "url", parts[0])}
    files = {f"sitemap-{number}.xml": part for number, part in enumerate(parts, start=1)}
    index = [
        (links.canonical(site, name), max((at for _, at in part if at), default=None)) for name, part in files.items()
    ]
    made = {name: _sitemap("urlset", "url", part) for name, part in files.items()}
    return made | {"sitemap.xml": _sitemap("sitemapindex", "sitemap", index)}


def _sitemap(root: str, each: str, addresses: Iterable[tuple[str, datetime | None]]) -> bytes:
    # By hand: a tree of all addresses took six times as long.
    lines = [DECLARATION, f'<{root} xmlns="{SITEMAP}">']
    for address, changed_at in addresses:
        lines += (f"<{each}>", f"<loc>{escape(clean(address))}</loc>")
        if changed_at:
            lines.append(f"<lastmod>{_moment(changed_at)}</lastmod>")
        lines.append(f"</{each}>")
    return "\n".join([*lines, f"</{root}>", ""]).encode()


def feed(site: Site, entries: Sequence[Entry]) -> bytes:
    """An Atom feed of the pages that changed last. Ids stay when a page moves: they name the topic, not the address."""
    newest = heapq.nlargest(MAX_ENTRIES, entries, key=lambda entry: (entry.changed_at, entry.topic_id))
    tree = ElementTree.Element("feed", {"xmlns": ATOM, "xml:lang": site.locale})
    home, own = links.canonical(site, ""), links.canonical(site, "feed.xml")
    _text(tree, "id", home)
    _text(tree, "title", site.name)
    if site.tagline:
        _text(tree, "subtitle", site.tagline)
    _text(tree, "updated", _moment(newest[0].changed_at if newest else START))
    _text(ElementTree.SubElement(tree, "author"), "name", site.name)
    ElementTree.SubElement(tree, "link", rel="self", type="application/atom+xml", href=own)
    ElementTree.SubElement(tree, "link", rel="alternate", type="text/html", href=home)
    host = urlsplit(site.base_url).hostname or ""
    for entry in newest:
        node = ElementTree.SubElement(tree, "entry")
        _text(node, "id", f"tag:{host},{entry.first_at.astimezone(UTC):%Y-%m-%d}:{site.slug}/{entry.topic_id}")
        _text(node, "title", entry.title)
        _text(node, "published", _moment(entry.first_at))
        _text(node, "updated", _moment(entry.changed_at))
        ElementTree.SubElement(node, "link", rel="alternate", type="text/html", href=links.canonical(site, entry.path))
        if entry.description:
            _text(node, "summary", entry.description)
    return _xml(tree)


def robots(site: Site) -> bytes:
    return f"User-agent: *\nAllow: /\n\nSitemap: {links.canonical(site, 'sitemap.xml')}\n".encode()


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = clean(text)


def _moment(at: datetime) -> str:
    """W3C form, in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _xml(tree: ElementTree.Element) -> bytes:
    ElementTree.indent(tree, "")
    text = ElementTree.tostring(tree, encoding="unicode")
    return f"{DECLARATION}\n{text}\n".encode()
