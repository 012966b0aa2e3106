"""From a draft to a file that readers see."""

from pipeline import Done, Outcome, Repair, Retry, Stage, StageContext, TopicView
from pipeline.content import FILES, FilesTarget, TargetError, card_of, file_key, inputs, lane_of, model, render


class Publish(Stage):
    """One page after the other within a lane, each through the ledger."""

    width = 1
    target = FILES

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        site, draft = ctx.site, ctx.draft
        if draft is None:
            return Repair(f"topic {topic.slug} has no draft; requeue it at stage generate")
        page = model(site, card_of(topic, draft), draft, lane_of(ctx.corpus.lane(topic.lane)))
        data = render(site, page, draft)
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
                inputs=inputs(site, page, draft),
            )
        except TargetError as error:
            return Retry(str(error))
        return Done(metrics={"bytes": len(data)})
