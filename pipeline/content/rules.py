"""What a draft must be before anyone reads it: rules with stable ids, each a finding or nothing; beside the floors.

An error sends the draft back; a warning stays with the revision, for people. Findings are kept, so a rule may be added,
but an id is never given a new meaning. Nothing here looks at other pages but through the corpus that it is handed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from markdown_it.token import Token

from pipeline.content import links, wording
from pipeline.content.markup import links as link_tokens, plain_text, tokens
from pipeline.project.site import Site
from pipeline.stages import Corpus
from pipeline.views import Draft, Finding, Severity, TopicView

TITLE_LENGTH = range(30, 71)  # longer ones are cut in result lists
DESCRIPTION_LENGTH = range(70, 161)
MAX_FINDINGS = 100
NAMED = 3  # as many twins are named in a message


@dataclass(frozen=True, slots=True)
class Page:
    """What the rules look at."""

    site: Site
    topic: TopicView
    draft: Draft
    corpus: Corpus
    tokens: list[Token]
    lines: list[str]  # of the body, for columns


def check(site: Site, topic: TopicView, draft: Draft, corpus: Corpus) -> list[Finding]:
    """The findings of a draft, errors first, then by place: at most a hundred, which is more than anyone reads."""
    page = Page(site, topic, draft, corpus, tokens(draft.body), draft.body.split("\n"))
    found = [finding for rule in RULES for finding in islice(rule(page), MAX_FINDINGS)]
    ranks = list(Severity)
    found.sort(key=lambda each: (ranks.index(each.severity), each.line or 0, each.column or 0, each.rule))
    return found[:MAX_FINDINGS]


def _title(page: Page) -> Iterator[Finding]:
    title = " ".join(page.draft.title.split())
    if not title:
        yield Finding("title-present", "the title is empty; give the page one")
        return
    if len(title) not in TITLE_LENGTH:
        wanted = f"{TITLE_LENGTH.start} to {TITLE_LENGTH.stop - 1}"
        message = f"the title has {len(title)} characters; {wanted} are shown whole and say enough"
        yield Finding("title-length", message, Severity.WARNING)


def _description(page: Page) -> Iterator[Finding]:
    description = " ".join(page.draft.description.split())
    if not description:
        yield Finding("description-present", "the description is empty; give the page one", Severity.WARNING)
    elif len(description) not in DESCRIPTION_LENGTH:
        wanted = f"{DESCRIPTION_LENGTH.start} to {DESCRIPTION_LENGTH.stop - 1}"
        message = f"the description has {len(description)} characters; {wanted} are shown whole and say enough"
        yield Finding("description-length", message, Severity.WARNING)


def _unique(page: Page) -> Iterator[Finding]:
    twins = page.corpus.twins(page.draft)
    for part, severity in (("title", Severity.ERROR), ("description", Severity.WARNING)):
        slugs = sorted(twins.get(part, ()))
        if slugs:
            more = f" and {len(slugs) - NAMED} more" if len(slugs) > NAMED else ""
            message = f"the {part} is also that of {', '.join(slugs[:NAMED])}{more}; tell the pages apart"
            yield Finding(f"{part}-unique", message, severity)


def _body(page: Page) -> Iterator[Finding]:
    kinds = [token for token in page.tokens if token.level == 0 and token.nesting >= 0]
    if not any(_says_something(token) for token in page.tokens):
        yield Finding("empty-body", "the body says nothing; write it", line=1)
    elif len(kinds) == 1 and kinds[0].type == "fence":
        yield Finding("fenced-body", "the whole body is one block of code; take the fence away", line=1)


def _says_something(token: Token) -> bool:
    if token.type in ("fence", "code_block"):
        return bool(token.content.strip())
    return token.type == "inline" and bool(plain_text(token).strip() or any(link_tokens([token])))


def _headings(page: Page) -> Iterator[Finding]:
    level = 1  # the title is the page's one h1
    for opening, inline in zip(page.tokens, page.tokens[1:], strict=False):
        if opening.type != "heading_open":
            continue
        line, deep = (opening.map or [0])[0] + 1, int(opening.tag[1])
        if not plain_text(inline).strip():
            yield Finding("heading-empty", "the heading is empty; write it or delete it", Severity.WARNING, line)
        if deep == 1:
            message = "the title is already the page's one top heading; begin with ##"
            yield Finding("one-h1", message, line=line)
        elif deep > level + 1:
            message = f"a heading of level {deep} follows one of level {level}; use {'#' * (level + 1)}"
            yield Finding("heading-order", message, Severity.WARNING, line)
        level = deep


def _links(page: Page) -> Iterator[Finding]:
    """Links to pages that nobody has planned, and to headings that are not on the page."""
    anchors = {str(token.attrGet("id")) for token in page.tokens if token.type == "heading_open"}
    inside: list[tuple[str, str, Token, str]] = []
    for inline in page.tokens:
        for token in link_tokens([inline]):
            address = str(token.attrGet("href" if token.type == "link_open" else "src") or "")
            if not address:
                yield _at(page, inline, "()", "link-empty", "the link leads nowhere; give it an address")
            elif found := links.target(page.site, page.topic.path, address):
                path, fragment = found
                inside.append((path.removesuffix("index.html"), fragment, inline, address))
            if token.type == "image" and not token.content.strip():
                message = "the image has no text; say what it shows, unless it only decorates"
                yield _at(page, inline, "![", "image-alt", message, Severity.WARNING)
    paths = {path for path, *_ in inside} - links.ARTEFACTS - {page.topic.path}
    unknown = page.corpus.unknown(paths) if paths else set()
    for path, fragment, inline, address in inside:
        if path in unknown:
            slash = "" if path.endswith("/") else " (addresses of pages end in '/')"
            message = f"the site has nothing at {address[:200]!r}{slash}; mend the link or plan the page"
            yield _at(page, inline, address, "links-resolve", message)
        elif fragment and path == page.topic.path and fragment not in anchors:
            message = f"no heading of this page has the id {fragment[:200]!r}; mend the link"
            yield _at(page, inline, f"#{fragment}", "links-resolve", message)


def _at(
    page: Page, inline: Token, needle: str, rule: str, message: str, severity: Severity = Severity.ERROR
) -> Finding:
    """A finding at the first place of ``needle`` in the lines that the text came from."""
    first, last = inline.map or (0, 0)
    for number, line in enumerate(page.lines[first:last], start=first):
        if (column := line.find(needle)) >= 0:
            return Finding(rule, message, severity, number + 1, column + 1)
    return Finding(rule, message, severity, first + 1)


def _wording(page: Page) -> Iterator[Finding]:
    parts = {"title": page.draft.title, "description": page.draft.description}
    for part, text in parts.items():
        for rule, message, severity, _, _ in (*wording.marks([text]), *wording.characters([text])):
            yield Finding(rule, f"the {part} {message}", severity)
    prose = wording.without_code(page.lines, page.tokens)
    for rule, message, severity, line, column in (*wording.marks(prose), *wording.characters(page.lines)):
        yield Finding(rule, f"the body {message}", severity, line, column)


RULES: tuple[Callable[[Page], Iterator[Finding]], ...] = (
    _title,
    _description,
    _unique,
    _body,
    _headings,
    _links,
    _wording,
)
