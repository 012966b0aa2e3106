"""What belongs to no single topic: pages whose neighbours changed, then home, feed and sitemap."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from pipeline import AssembleContext, Done, LivePage, Outcome, Page, PageCard, Retry, Site, SiteStage
from pipeline.content import (
    FILES,
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

AT_ONCE = 50  # pages in one intent, and in memory
STOPPED = Retry("stopped before all was built; the next run goes on")


class Assemble(SiteStage):
    """Builds again what is out of date, and nothing else; the sitemap comes after the pages it names."""

    target = FILES

    def run(self, site: Site, ctx: AssembleContext) -> Outcome:
        target = FilesTarget(site.output)
        lanes: dict[str, Lane] = {}
        entries: list[Entry] = []
        built = 0
        batch: list[Page] = []
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
                if page := _rebuilt(site, ctx, target, live, live.card, lanes[live.card.lane]):
                    batch.append(page)
                if len(batch) == AT_ONCE:
                    built += ctx.ledger.publish_all(FILES, batch)
                    batch.clear()
            artefacts = {"style.css": style(), "index.html": home(site, lanes), "feed.xml": feed(site, entries)}
            artefacts |= {"robots.txt": robots(site), **sitemaps(site, entries)}
            batch += [target.page(key, data, cancelled=ctx.cancelled) for key, data in artefacts.items()]
            built += ctx.ledger.publish_all(FILES, batch)
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


def _rebuilt(
    site: Site, ctx: AssembleContext, target: FilesTarget, live: LivePage, card: PageCard, lane: Lane
) -> Page | None:
    """A live page built again, if its surroundings changed or its file is not what the ledger says."""
    if live.draft is None:
        return None
    # It is built where it is live now; a new address is the business of its own next pass.
    card = replace(card, path=live.path.removesuffix("index.html"))
    shown = model(site, card, live.draft, lane)
    hash = inputs(site, shown, live.draft)
    if hash == live.inputs and target.holds(live):
        return None
    return target.page(
        live.path,
        render(site, shown, live.draft),
        cancelled=ctx.cancelled,
        topic_id=card.topic_id,
        revision=live.revision,
        inputs=hash,
    )
