"""What belongs to no single topic: pages whose neighbours changed, then home, feed and sitemap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pipeline import AssembleContext, Done, LivePage, Outcome, Page, PageCard, Retry, Site, SiteStage
from pipeline.content import (
    FILES,
    Entry,
    FilesTarget,
    Lane,
    TargetError,
    article,
    article_in,
    entry_of,
    feed,
    home,
    inputs,
    lane_of,
    model,
    render,
    robots,
    same_text,
    site_hash,
    sitemaps,
    style,
)

PAGES = 48  # in one intent, and in memory
AT_ONCE = 12  # of these are written at the same time: most of that is waiting for the disk
STOPPED = Retry("stopped before all was built; the next run goes on")


@dataclass(frozen=True, slots=True)
class Stale:
    """A live page that is to be built again."""

    live: LivePage
    card: PageCard
    lane: Lane
    inputs: str


class Assemble(SiteStage):
    """Builds again what is out of date, and nothing else; the sitemap comes after the pages it names."""

    target = FILES

    def run(self, site: Site, ctx: AssembleContext) -> Outcome:
        target = FilesTarget(site.output)
        lanes: dict[str, Lane] = {}
        entries: list[Entry] = []
        built = 0
        stale: list[Stale] = []
        try:
            target.sweep(older_than=timedelta(hours=1))
            for live in ctx.pages():
                if ctx.cancelled():
                    return STOPPED
                if live.card is None:
                    continue  # an artefact: made below
                if live.card.lane not in lanes:
                    lanes[live.card.lane] = lane_of(ctx.corpus.lane(live.card.lane))
                entries.append(entry_of(live, live.card))
                if page := _stale(site, target, live, live.card, lanes[live.card.lane]):
                    stale.append(page)
                if len(stale) == PAGES:
                    built += _build(site, ctx, target, stale)
                    stale.clear()
            built += _build(site, ctx, target, stale)
            artefacts = {"style.css": style(), "index.html": home(site, lanes), "feed.xml": feed(site, entries)}
            artefacts |= {"robots.txt": robots(site), **sitemaps(site, entries)}
            files = [target.page(key, data, cancelled=ctx.cancelled) for key, data in artefacts.items()]
            built += ctx.ledger.publish_all(FILES, files)
        except TargetError as error:
            return Retry(str(error))
        return Done(metrics={"pages": len(entries), "built": built})

    def fingerprint(self, site: Site) -> str:
        return site_hash(site)

    def intact(self, site: Site, pages: Iterator[LivePage]) -> bool:
        target = FilesTarget(site.output)
        try:
            return all(target.holds(page) for page in pages)
        except TargetError:
            return False


def _stale(site: Site, target: FilesTarget, live: LivePage, card: PageCard, lane: Lane) -> Stale | None:
    """The page, if its surroundings changed or its file is not what the ledger says."""
    if live.revision is None:
        return None
    # It is built where it is live now; a new address is the business of its own next pass.
    if (path := live.path.removesuffix("index.html")) != card.path:
        card = replace(card, path=path)
    now = inputs(site, card, live.content, lane)
    return None if now == live.inputs and target.holds(live) else Stale(live, card, lane, now)


def _build(site: Site, ctx: AssembleContext, target: FilesTarget, stale: Sequence[Stale]) -> int:
    """Build these again; how many had to be written. A text that stays is taken over from the page as it is."""
    texts = {}
    for page in stale:
        if same_text(page.inputs, page.live.inputs) and (data := target.read(page.live)):
            texts[page.live.path] = article_in(data)
    drafts = ctx.corpus.drafts(
        [page.live.revision for page in stale if page.live.revision and not texts.get(page.live.path)]
    )
    files: list[Page] = []
    for page in stale:
        text = texts.get(page.live.path) or article(site, drafts[page.live.revision or 0])
        files.append(
            target.page(
                page.live.path,
                render(site, model(site, page.card, page.lane), text),
                cancelled=ctx.cancelled,
                topic_id=page.card.topic_id,
                revision=page.live.revision,
                inputs=page.inputs,
                seen=page.live.hash,  # not over what its own pass has put there since
            )
        )
    return ctx.ledger.publish_all(FILES, files, at_once=AT_ONCE)
