"""From a topic's row and its type's template to a draft."""

from pipeline import Done, Outcome, Repair, Site, Stage, StageContext, TopicView
from pipeline.content import ProjectError, fingerprint, generate, text_of


class Generate(Stage):
    """All topics at once: drafts do not depend on each other."""

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        try:
            if (text := text_of(ctx.site, topic)) is not None:
                known = {} if ctx.draft is None else ctx.draft.lineage
                edited = "actor" in known  # by a person, who is not written over
                return Done(draft=None if edited or known.get("bytes") == text.lineage["bytes"] else text)
            return Done(draft=generate(ctx.site, topic))
        except ProjectError as error:
            return Repair(str(error))  # the same template and row fail on every try: a person must mend one of them

    def fingerprint(self, site: Site, type: str) -> str:
        return fingerprint(site, type)
