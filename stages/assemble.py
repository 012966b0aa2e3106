"""What belongs to no single topic: pages whose neighbours changed, then home, feed and sitemap."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from pipeline import AssembleContext, Done, LivePage, Outcome, PageCard, Retry, Site, SiteStage
from pipeline.content import (
    Entry,
    FilesTarget,
    Lane,
    TargetError,
    entry_of,
    feed,
    home,
    inputs,
    lane_of,
    model,
    render,
    robots,
    site_hash,
    sitemaps,
    style,
)

STOPPED = Retry("stopped before all was built; the next run goes on")


class Assemble(SiteStage):
    """Builds again what is out of date, and nothing else; the sitemap comes after the pages it names."""

    target = "files"

    def run(self, site: Site, ctx: AssembleContext) -> Outcome:
        target = FilesTarget(site.output)
        lanes: dict[str, Lane] = {}
        entries: list[Entry] = []
        built = 0
        try:
            target.sweep(older_than=timedelta(hours=1))
            for page in ctx.pages():
                if ctx.cancelled():
                    return STOPPED
                if page.card is None:
                    continue  # an artefact: made below
                if page.card.lane not in lanes:
                    lanes[page.card.lane] = lane_of(ctx.corpus.lane(page.card.lane))
                built += _rebuild(site, ctx, target, page, page.card, lanes[page.card.lane])
                entries.append(entry_of(page, page.card))
            artefacts = {"style.css": style(), "index.html": home(site, lanes), "feed.xml": feed(site, entries)}
            artefacts |= {"robots.txt": robots(site), **sitemaps(site, entries)}
            for key, data in artefacts.items():
                if ctx.cancelled():
                    return STOPPED
                built += target.publish(ctx.ledger, key, data, cancelled=ctx.cancelled)
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


def _rebuild(site: Site, ctx: AssembleContext, target: FilesTarget, page: LivePage, card: PageCard, lane: Lane) -> bool:
    """Build one live page again if its surroundings changed or its file is not what the ledger says."""
    if page.draft is None:
        return False
    # It is built where it is live now; a new address is the business of its own next pass.
    card = replace(card, path=page.path.removesuffix("index.html"))
    shown = model(site, card, page.draft, lane)
    hash = inputs(site, shown, page.draft)
    if hash == page.inputs and target.holds(page):
        return False
    data = render(site, shown, page.draft)
    return target.publish(
        ctx.ledger,
        page.path,
        data,
        cancelled=ctx.cancelled,
        topic_id=card.topic_id,
        revision=page.revision,
        inputs=hash,
    )
