"""The stages that are killed. The first topic of a lane misbehaves as its row says; all leave a trace of each page that
they write, in a file beside the project that nobody else writes."""

import os
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pipeline import Backoff, Done, Draft, Fail, Finding, Outcome, Reject, Retry, Stage, StageContext, TopicView
from pipeline.content.files import FILES, FilesTarget, file_key
from pipeline.project.loading import Stages
from pipeline.service.planning import StageSpec
from pipeline.views import TopicRow

SITE = "acme"
LANE = "lane"
COUNT = 2
EFFECTS = "effects"
NOW = Backoff(attempts=5, first=timedelta(0), cap=timedelta(0))

stop: threading.Event | None = None
"""Has the worker of this process stop; only a victim's own is set by a stage."""


class Generate(Stage):
    retry = NOW
    lease = timedelta(seconds=2)

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        match topic.brief["trouble"]:
            case "retry" if ctx.attempt == 1:
                return Retry("once more", timedelta(0))
            case "fail":
                return Fail("it cannot be")
            case "slow":
                time.sleep(1.0)  # beyond the first renewal
            case "stop" if stop is not None:
                stop.set()
                while not ctx.cancelled():
                    time.sleep(0.01)
        return Done(draft=Draft(topic.title, "", f"{topic.slug}, round {topic.round}"))


class Validate(Stage):
    retry = NOW

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        if topic.brief["trouble"] == "reject" and topic.round == 0:
            return Reject([Finding("words", "more words")])
        return Done()


class Publish(Stage):
    width = 1
    target = FILES
    retry = NOW

    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        assert ctx.draft is not None
        data = ctx.draft.body.encode()
        page = FilesTarget(ctx.site.output).page(file_key(topic.path), data, cancelled=ctx.cancelled)

        def act() -> str:
            tag = page.act()
            trace(ctx.site.output.parents[1], topic.slug)
            return tag

        ctx.ledger.publish(FILES, page.key, page.hash, page.look, act, topic_id=topic.id, revision=ctx.revision)
        return Done()


def trace(root: Path, slug: str) -> None:
    file = os.open(root / EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{slug}\n".encode())
    finally:
        os.close(file)


STAGES = Stages({"generate": Generate(), "validate": Validate(), "publish": Publish()}, None)
SPECS = (StageSpec("generate", None, 5), StageSpec("validate", None, 5), StageSpec("publish", 1, 5))


def rows(trouble: str) -> Sequence[TopicRow]:
    return [
        TopicRow(
            lane=LANE, slug=f"topic-{n}", title=f"Topic {n}", type="page", path=f"topic-{n}/", order=n,
            brief={"trouble": trouble if n == 1 else ""}, input_hash=f"hash of {n}",
        )
        for n in range(1, COUNT + 1)
    ]  # fmt: skip


def write_project(root: Path) -> None:
    folder = root / "sites" / SITE
    folder.mkdir(parents=True)
    folder.joinpath("site.toml").write_text(f'name = "{SITE}"\nbase_url = "https://{SITE}.example.com"\n')
