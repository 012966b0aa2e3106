"""Topic pages: what a page says of itself and its neighbours (the model), and its bytes; beside the floors.

``inputs`` tells cheaply, without making a model, whether a live page must be built again, and whether its text can be
taken over from the page as it is. There is no clock in here. A page looks at its own lane only: it must not change
because something elsewhere went live.
"""

import hashlib
import json
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from markupsafe import Markup

from pipeline.content import links
from pipeline.content.markup import clean, to_html
from pipeline.content.theming import facts_hash, fill, site_facts, theme_hash
from pipeline.project.site import Site
from pipeline.stages import Corpus
from pipeline.views import Draft, PageCard, TopicView, content_hash

RENDERER = 1  # raise it when the same inputs give other bytes
RELATED = 4
LATELY = 30.0  # seconds
# Where a page's text stands in its bytes. No text can hold either: the tag is not among those that are let through.
BEGIN, END = b'<article class="prose">\n    ', b"\n  </article>"


@dataclass(frozen=True, slots=True)
class Link:
    """A named way to a page; ``href`` is None for the page itself and for one that is not live."""

    title: str
    href: str | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class PageModel:
    """All that a page shows beside its body."""

    title: str
    description: str
    canonical: str
    kind: str  # pillar: it has pages below it; else page
    breadcrumbs: tuple[Link, ...]
    members: tuple[Link, ...]
    members_title: str
    related: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """The pages of one lane by position; ``members``: the live ones without the pillar; ``places``: where they are."""

    cards: tuple[PageCard, ...]
    pillar: PageCard | None
    members: tuple[PageCard, ...]
    places: tuple[tuple[int, int], ...]


def card_of(topic: TopicView, draft: Draft) -> PageCard:
    """The page of a topic as it will be once it is live."""
    title, description = draft.title, draft.description
    return PageCard(topic.id, topic.lane, topic.position, topic.type, topic.path, title, description, live=True)


def lane_name(site: Site, lane: str) -> str:
    """What readers call a lane."""
    return clean(site.lanes.get(lane) or lane.replace("-", " ").capitalize())


def lane_around(site: Site, topic: TopicView, corpus: Corpus) -> Lane:
    """As much of the topic's lane as its page shows: all of it for a pillar, else the pillar and the pages nearby.

    Which page is the pillar is asked now and then. An assembly, which sees whole lanes, puts right what was missed.
    """
    pillar = _pillar_lately(site, topic.lane, corpus)
    if pillar == topic.id:
        return lane_of(corpus.lane(topic.lane))
    cards = corpus.near(RELATED + 1, pillar)
    return _lane(cards, next((card for card in cards if card.topic_id == pillar), None))


def _pillar_lately(site: Site, lane: str, corpus: Corpus) -> int | None:
    key = (str(site.folder), lane)
    kept = _pillars.get(key)
    if kept is None or time.monotonic() - kept[0] > LATELY:
        pillar = lane_of(corpus.lane(lane)).pillar
        kept = _pillars[key] = time.monotonic(), pillar.topic_id if pillar else None
    return kept[1]


_pillars: dict[tuple[str, str], tuple[float, int | None]] = {}


def lane_of(cards: Sequence[PageCard]) -> Lane:
    """The pages of a lane, live or not, made ready for many questions."""
    ordered = sorted(cards, key=_place)
    # A pillar is the first page that others of the lane live below.
    above = {card.path[: end + 1] for card in ordered for end, sign in enumerate(card.path[:-1]) if sign == "/"}
    return _lane(ordered, next((card for card in ordered if card.path in above), None))


def _lane(ordered: Sequence[PageCard], pillar: PageCard | None) -> Lane:
    members = tuple(card for card in ordered if card.live and card is not pillar)
    return Lane(tuple(ordered), pillar, members, tuple(map(_place, members)))


def model(site: Site, card: PageCard, lane: Lane) -> PageModel:
    """The page ``card`` among the pages of its lane."""
    name = lane_name(site, card.lane)
    crumbs = [Link(clean(site.name), links.href(site, ""))]
    is_pillar = _is_pillar(lane, card)
    members = [_link(site, other) for other in lane.cards if other.topic_id != card.topic_id] if is_pillar else []
    if lane.pillar and not is_pillar and card.path.startswith(lane.pillar.path):
        crumbs.append(Link(name, links.href(site, lane.pillar.path) if lane.pillar.live else None))
    return PageModel(
        title=clean(card.title),
        description=clean(card.description),
        canonical=links.canonical(site, card.path),
        kind="pillar" if is_pillar else "page",
        breadcrumbs=(*crumbs, Link(name if is_pillar else clean(card.title), None)),
        members=tuple(members),
        members_title=f"More about {name}" if members else "",
        related=() if is_pillar else tuple(_link(site, other) for other in _nearest(lane, card)),
    )


def inputs(site: Site, card: PageCard, content: str, lane: Lane) -> str:
    """All that the page's bytes depend on: what its text is made from, a full stop, and a hash of all else.

    ``content`` is the draft's own hash.
    """
    near = lane.cards if _is_pillar(lane, card) else _nearest(lane, card)
    pillar = lane.pillar and (lane.pillar.topic_id, lane.pillar.path, lane.pillar.live)
    around = [
        (other.path, other.title, other.description) if other.live else (other.topic_id, other.title) for other in near
    ]
    name = lane_name(site, card.lane)
    # repr() says it as clearly as JSON would, in a third of the time: this is asked of every page in each assembly.
    rest = repr((facts_hash(site), theme_hash(), content, card.topic_id, card.path, name, pillar, around))
    return f"{RENDERER}{links.prefix(site)} {content}.{hashlib.sha256(rest.encode()).hexdigest()[:32]}"


def same_text(inputs: str, other: str) -> bool:
    """Whether pages of these inputs have the same text, whatever stands around it."""
    return inputs.rpartition(".")[0] == other.rpartition(".")[0] != ""


def article(site: Site, draft: Draft) -> Markup:
    """A draft's text as HTML."""
    return to_html(draft.body, links.prefix(site))


def article_in(page: bytes) -> Markup | None:
    """The text of a page that was built before, as ``article`` gave it."""
    start, end = page.find(BEGIN), page.rfind(END)
    return Markup(page[start + len(BEGIN) : end].decode()) if 0 <= start < end else None


def render(site: Site, page: PageModel, text: Markup) -> bytes:
    """The page, whole: the same bytes for the same inputs."""
    shown = asdict(page) | {"h1": page.title, "html": text, "jsonld": _jsonld(site, page)}
    return fill("page.html", site, page=shown).encode()


def site_hash(site: Site) -> str:
    """Hash of all that the site's own artefacts depend on beside its live pages."""
    return content_hash([RENDERER, site_facts(site), dict(site.lanes), theme_hash()])


def _is_pillar(lane: Lane, card: PageCard) -> bool:
    return lane.pillar is not None and lane.pillar.topic_id == card.topic_id


def _link(site: Site, card: PageCard) -> Link:
    """A page that is not live is named, and nothing of it is given away."""
    if not card.live:
        return Link(clean(card.title), None)
    return Link(clean(card.title), links.href(site, card.path), clean(card.description))


def _nearest(lane: Lane, card: PageCard) -> list[PageCard]:
    """The live pages before this one in its lane, and those behind it where there are too few.

    Backwards, since a lane goes live in its order: what a page shows is there when it is published, and the next one
    does not change it. Beyond its first pages a lane is written once.
    """
    at = bisect_left(lane.places, _place(card))
    before = lane.members[max(at - RELATED, 0) : at]
    behind = [other for other in lane.members[at : at + RELATED + 1] if other.topic_id != card.topic_id]
    return [*before, *behind[: RELATED - len(before)]]


def _place(card: PageCard) -> tuple[int, int]:
    return card.position, card.topic_id


def _jsonld(site: Site, page: PageModel) -> Markup:
    """The page for machines, as JSON that cannot end its script element."""
    crumbs = [crumb for crumb in page.breadcrumbs if crumb.href] + [Link(page.breadcrumbs[-1].title, None)]
    trail = [
        {
            "@type": "ListItem",
            "position": place,
            "name": crumb.title,
            "item": page.canonical if crumb.href is None else _absolute(site, crumb.href),
        }
        for place, crumb in enumerate(crumbs, start=1)
    ]
    article = {
        "@type": "Article",
        "headline": page.title,
        "description": page.description,
        "inLanguage": site.locale,
        "mainEntityOfPage": page.canonical,
        "url": page.canonical,
    }
    graph = {
        "@context": "https://schema.org",
        "@graph": [{"@type": "BreadcrumbList", "itemListElement": trail}, article],
    }
    text = json.dumps(graph, ensure_ascii=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Markup(text)


def _absolute(site: Site, href: str) -> str:
    return site.base_url + href.removeprefix(links.prefix(site))
