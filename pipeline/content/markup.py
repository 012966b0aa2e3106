"""Markdown to clean HTML, and the one reading of Markdown that rules and pages share; beside the floors.

Two fences: the parser takes no HTML from the author, and what it makes passes an allow-list of tags, attributes and URL
schemes. It does not judge the text; ``rules`` does.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

TAGS = {
    "a",
    "blockquote",
    "br",
    "code",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "img",
    "li",
    "ol",
    "p",
    "pre",
    "strong",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
}
ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title"},
    "ol": {"start"},
    **{f"h{level}": {"id"} for level in range(1, 7)},
}
THEME_IDS = ("content", "members-title", "related-title")  # a heading must not take one of these
SCHEMES = {"http", "https", "mailto"}
# What no page, feed or map may hold: XML forbids most of it, UTF-8 cannot say the rest.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def clean(text: str) -> str:
    """The text without control characters; tab and line ends stay."""
    return CONTROL.sub("", text)


def slugify(text: object) -> str:
    """Lower-case ASCII words joined by ``-``; empty when nothing of the text can be said so."""
    plain = unicodedata.normalize("NFKD", str(text)).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain.replace("'", "")).strip("-")


def tokens(body: str) -> list[Token]:
    """The Markdown's tokens, headings with their ids: unique in the body, made of the heading's own letters."""
    parsed = _parser().parse(clean(body))
    used = dict.fromkeys(THEME_IDS, 1)
    for opening, inline in pairwise(parsed):
        if opening.type == "heading_open":
            opening.attrSet("id", _anchor(plain_text(inline), used))
    return parsed


def to_html(body: str, prefix: str = "") -> Markup:
    """Sanitised HTML. ``prefix`` goes before root-relative links: the path below which the site is served."""
    parsed = tokens(body)
    for link in links(parsed):
        name = "href" if link.type == "link_open" else "src"
        address = str(link.attrGet(name) or "")
        if prefix and address.startswith("/") and not address.startswith("//"):
            link.attrSet(name, prefix + address)
    parser = _parser()
    html = parser.renderer.render(parsed, parser.options, {})
    return Markup(nh3.clean(html, tags=TAGS, attributes=ATTRIBUTES, url_schemes=SCHEMES, link_rel=None))


def links(parsed: list[Token]) -> Iterator[Token]:
    """Every link and image, in order."""
    for token in parsed:
        for child in token.children or ():
            if child.type in ("link_open", "image"):
                yield child


def plain_text(token: Token) -> str:
    """The words of an inline token, without marks."""
    parts = []
    for child in token.children or ():
        if child.type in ("text", "code_inline", "text_special"):
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "image":
            parts.append(plain_text(child))
    return "".join(parts)


def first_paragraph(body: str) -> str:
    """The words of the first paragraph that has any, on one line."""
    parsed = tokens(body)
    for opening, inline in pairwise(parsed):
        if opening.type == "paragraph_open" and (words := " ".join(plain_text(inline).split())):
            return words
    return ""


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _anchor(heading: str, used: dict[str, int]) -> str:
    """An id that is not in ``used`` yet, which keeps the last number given to each."""
    words = re.sub(r"[^\w\- ]", "", unicodedata.normalize("NFC", heading).lower()).split()
    stem = anchor = "-".join(words) or "section"
    while anchor in used:
        used[stem] += 1
        anchor = f"{stem}-{used[stem]}"
    used[anchor] = 1
    return anchor
