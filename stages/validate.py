"""Every draft is checked before anyone reads it."""

from pipeline import Done, Outcome, Reject, Repair, Severity, Stage, StageContext, TopicView
from pipeline.content import check


class Validate(Stage):
    """Errors send the draft back to be generated again; warnings stay with it."""

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        if ctx.draft is None:
            return Repair(f"topic {topic.slug} has no draft; requeue it at stage generate")
        findings = check(ctx.site, topic, ctx.draft, ctx.corpus)
        if any(finding.severity is Severity.ERROR for finding in findings):
            return Reject(findings)
        return Done(findings=findings)
