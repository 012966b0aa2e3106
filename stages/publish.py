"""From a draft to a file that readers see."""

from pipeline import Done, Outcome, Repair, Retry, Stage, StageContext, TopicView
from pipeline.content import (
    FILES,
    FilesTarget,
    TargetError,
    article,
    card_of,
    file_key,
    inputs,
    lane_around,
    model,
    render,
)


class Publish(Stage):
    """One page after the other within a lane, each through the ledger."""

    width = 1
    target = FILES

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        site, draft = ctx.site, ctx.draft
        if draft is None:
            return Repair(f"topic {topic.slug} has no draft; requeue it at stage generate")
        card, lane = card_of(topic, draft), lane_around(site, topic, ctx.corpus)
        data = render(site, model(site, card, lane), article(site, draft))
        try:
            file = FilesTarget(site.output).page(file_key(topic.path), data, cancelled=ctx.cancelled)
            ctx.ledger.publish(
                FILES,
                file.key,
                file.hash,
                file.look,
                file.act,
                topic_id=topic.id,
                revision=ctx.revision,
                inputs=inputs(site, card, draft.hash, lane),
            )
        except TargetError as error:
            return Retry(str(error))
        return Done(metrics={"bytes": len(data)})
