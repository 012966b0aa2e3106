"""The helpers that need no database, on the ready-made stages and on small ones."""

import asyncio
from datetime import UTC, datetime

import pytest

from pipeline import Done, Draft, Fail, Finding, Found, LivePage, PageCard, Reject, Repair, SiteStage, Stage
from pipeline.errors import LeaseLost, PathTaken
from pipeline.stages import AssembleContext, StageContext
from pipeline.testing import Context, FrozenClock, MemoryLedger, a_draft, a_site, a_topic, run_site_stage, run_stage
from pipeline.testing.awaited import AwaitedContext
from stages import Assemble, Generate, Publish, Validate

CARD = PageCard(7, "guides", 2, "page", "second-page/", "A second page", "About the second page", True)


class Put(Stage):
    """Publishes a line to a dict that stands for the world."""

    target = "dict"

    def __init__(self, world=None):
        self.world = {} if world is None else world

    def run(self, topic, ctx):
        hash = ctx.draft.hash

        def look():
            return Found(self.world[topic.path], "v1") if topic.path in self.world else None

        def act():
            self.world[topic.path] = hash
            return "v1"

        ctx.ledger.publish("dict", topic.path, hash, look, act, topic_id=topic.id, revision=ctx.revision)
        return Done()


class Says(Stage):
    """Returns what it is made with."""

    def __init__(self, what):
        self.what = what

    def run(self, topic, ctx):
        return self.what


def a_template(site, text="About {{ title }}.\n"):
    (site.folder / "templates").mkdir(parents=True)
    (site.folder / "templates" / "page.md.j2").write_text(text)


def test_the_context_is_what_a_stage_and_an_assembly_are_promised(tmp_path):
    """The names of the protocols are all there, awaited or not."""
    ctx = Context(site=a_site(tmp_path))

    for protocol, given in ((StageContext, ctx), (StageContext, AwaitedContext(ctx)), (AssembleContext, ctx)):
        names = {name for kind in protocol.__mro__ for name in vars(kind) if not name.startswith("_")}
        assert {"ledger", "corpus", "fence"} <= names
        assert {name for name in names if not hasattr(given, name)} == set()


def test_the_ready_made_stages_bring_a_topic_to_a_page(tmp_path):
    """Generate, validate and publish, each with what the one before it gave."""
    site, topic = a_site(tmp_path), a_topic(slug="a-first-page-about-gardens-and-temples")
    a_template(site, "---\ndescription: " + a_draft().description + "\n---\nAbout {{ title }}.\n")

    made = run_stage(Generate, topic, Context(site=site))
    checked = run_stage(Validate, topic, Context(site=site, draft=made.draft))
    ctx = Context(site=site, draft=made.draft)
    done = run_stage(Publish, topic, ctx)

    assert isinstance(made.draft, Draft)
    assert isinstance(checked, Done), checked
    assert isinstance(done, Done)
    assert ctx.ledger.acted == ["a-first-page-about-gardens-and-temples/index.html"]
    assert (site.output / ctx.ledger.acted[0]).is_file()


def test_the_sample_draft_is_one_that_the_ready_made_rules_accept(tmp_path):
    assert isinstance(run_stage(Validate, a_topic(), Context(site=a_site(tmp_path), draft=a_draft())), Done)


def test_the_corpus_knows_the_pages_it_was_given_and_the_topic_itself(tmp_path):
    """A link to a known page is fine, one to nowhere is not, and a twin's title is."""
    site, draft = (
        a_site(tmp_path),
        a_draft(title="A  second PAGE", body="[one](/second-page/) [two](/nowhere/) [me](/first-page/)\n"),
    )

    class Asks(Stage):
        def run(self, topic, ctx):
            unknown = ctx.corpus.unknown(["second-page/", "nowhere/", "first-page/"])
            return Done(
                metrics={
                    "unknown": sorted(unknown),
                    "twins": {part: list(slugs) for part, slugs in ctx.corpus.twins(ctx.draft).items()},
                    "lane": [card.path for card in ctx.corpus.lane("guides")],
                }
            )

    asked = run_stage(Asks, a_topic(), Context(site=site, draft=draft, pages=[CARD]))

    assert asked.metrics == {
        "unknown": ["nowhere/"],
        "twins": {"title": ["second-page"], "description": []},
        "lane": ["first-page/", "second-page/"],
    }
    assert isinstance(run_stage(Validate, a_topic(), Context(site=site, draft=draft, pages=[CARD])), Reject)


def test_the_assembly_gets_the_live_pages(tmp_path):
    """The ready-made assembly builds the artefacts around them."""
    site, draft = a_site(tmp_path), a_draft()
    at = datetime(2026, 3, 1, tzinfo=UTC)
    live = LivePage("second-page/index.html", "h", "r", "i", at, at, CARD, 1, draft.hash)
    ctx = Context(site=site, live=[live], drafts={1: draft}, pages=[CARD])

    outcome = run_site_stage(Assemble, ctx)

    assert isinstance(outcome, Done)
    assert set(ctx.ledger.published) == {
        "second-page/index.html", "index.html", "feed.xml", "robots.txt", "sitemap.xml", "style.css",
    }  # fmt: skip


def test_the_ledger_remembers_and_does_nothing_twice():
    """The same hash is looked at and left alone; calls keep their order."""
    put, ledger = Put(), MemoryLedger()

    for path in ("a/", "b/", "a/"):
        run_stage(put, a_topic(slug=path[0]), Context(draft=a_draft(), ledger=ledger))

    assert [(call.key, call.acted) for call in ledger.calls] == [("a/", True), ("b/", True), ("a/", False)]
    assert ledger.published == {"a/": a_draft().hash, "b/": a_draft().hash}
    assert ledger.acted == ["a/", "b/"]
    assert ledger.calls[0].revision == 1


def test_a_lost_reservation_writes_nothing():
    put, ctx = Put(), Context(draft=a_draft())
    ctx.ledger.lost = True

    with pytest.raises(LeaseLost):
        run_stage(put, a_topic(), ctx)

    assert put.world == {}
    assert ctx.ledger.calls == []


def test_a_reservation_lost_while_looking_writes_nothing():
    """The ledger asks again before it acts."""
    ledger, acted = MemoryLedger(), []

    def look():
        ledger.lost = True

    with pytest.raises(LeaseLost, match="before a/ was written"):
        ledger.publish("dict", "a/", "h", look, lambda: acted.append("a/") or "v1")

    assert acted == []


def test_a_path_belongs_to_the_first_topic():
    """A key that the test calls taken, and one that another topic published."""
    ledger = MemoryLedger(taken={"first-page/"})
    with pytest.raises(PathTaken):
        run_stage(Put, a_topic(), Context(draft=a_draft(), ledger=ledger))

    run_stage(Put, a_topic(slug="a"), Context(draft=a_draft(), ledger=ledger))
    with pytest.raises(PathTaken):
        run_stage(Put, a_topic(slug="b", path="a/"), Context(draft=a_draft(), ledger=ledger))


@pytest.mark.parametrize("what", [None, True, "done", Done])
def test_what_is_no_outcome_is_refused(what):
    with pytest.raises(AssertionError, match="must return one of Done, Reject"):
        run_stage(Says(what), a_topic(), Context())


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (Done(draft="text"), "must be a Draft"),
        (Done(draft=a_draft(fields={"at": datetime(2026, 1, 1)})), "fields that cannot be stored"),
        (Done(metrics={"n": float("nan")}), "metrics that cannot be stored"),
        (Reject(["too short"]), "must be a Finding"),
    ],
)
def test_what_cannot_be_stored_is_refused(what, said):
    with pytest.raises(AssertionError, match=said):
        run_stage(Says(what), a_topic(), Context())


def test_done_without_the_ledger_is_refused_where_there_is_a_target():
    """As the engine does, which sends it to repair; any other outcome is fine."""

    class Says(Stage):
        target = "somewhere"
        says = Done()

        def run(self, topic, ctx):
            return self.says

    with pytest.raises(AssertionError, match="published nothing through"):
        run_stage(Says, a_topic(), Context())
    Says.says = Fail("no")
    assert run_stage(Says, a_topic(), Context()) == Fail("no")


def test_an_async_stage_is_run_to_its_end():
    """Whether the test runs on an event loop or not."""

    class Slow(Stage):
        async def run(self, topic, ctx):
            await asyncio.sleep(0)
            return Repair(topic.slug)

    class Wrong(Stage):
        async def run(self, topic, ctx):
            raise ValueError("as it is")

    async def in_a_loop():
        return run_stage(Slow, a_topic(), Context())

    assert run_stage(Slow, a_topic(), Context()) == Repair("first-page")
    assert asyncio.run(in_a_loop()) == Repair("first-page")
    with pytest.raises(ValueError, match="as it is"):
        run_stage(Wrong, a_topic(), Context())


def test_an_async_stage_awaits_ledger_and_corpus():
    """The same memory; look and act may be plain or async."""
    world = {}

    class Put(Stage):
        target = "dict"

        async def run(self, topic, ctx):
            async def look():
                return world.get(topic.path)

            async def act():
                world[topic.path] = Found(ctx.draft.hash, "v1")
                return "v1"

            done = await ctx.ledger.publish("dict", topic.path, ctx.draft.hash, look, act, topic_id=topic.id)
            again = await ctx.ledger.publish(
                "dict", topic.path, ctx.draft.hash, lambda: world[topic.path], lambda: "v2", topic_id=topic.id
            )
            unknown = await ctx.corpus.unknown(["nowhere/", topic.path])
            lane = await ctx.corpus.lane(topic.lane)
            twins = await ctx.corpus.twins(ctx.draft)
            return Done(metrics={"said": [done, again, *unknown, *(card.path for card in lane), *twins["title"]]})

    ctx = Context(draft=a_draft(), pages=[CARD])

    outcome = run_stage(Put, a_topic(), ctx)

    assert outcome.metrics["said"] == [True, False, "nowhere/", "first-page/", "second-page/"]
    assert ctx.ledger.acted == ["first-page/"]
    ctx.ledger.lost = True
    with pytest.raises(LeaseLost):
        run_stage(Put, a_topic(), ctx)


def test_the_task_of_an_async_stage_is_cancelled():
    """At its next await, as in a worker."""
    reached = []

    class Slow(Stage):
        async def run(self, topic, ctx):
            ctx.cancel()
            reached.append(ctx.cancelled())
            await asyncio.sleep(60)
            reached.append("the end")

    with pytest.raises(asyncio.CancelledError):
        run_stage(Slow, a_topic(), Context())

    assert reached == [True]


def test_what_a_stage_raises_comes_through():
    class Wrong(Stage):
        def run(self, topic, ctx):
            raise KeyError("brief")

    with pytest.raises(KeyError):
        run_stage(Wrong, a_topic(), Context())


def test_a_stage_hears_that_it_is_cancelled():
    class Heeds(Stage):
        def run(self, topic, ctx):
            before = ctx.cancelled()
            ctx.cancel()
            return Done(metrics={"heard": [before, ctx.cancelled()]})

    assert run_stage(Heeds, a_topic(), Context()).metrics == {"heard": [False, True]}
    assert Context(cancelled=True).cancelled()


def test_a_context_without_a_site_says_how_to_give_it_one():
    class Asks(Stage):
        def run(self, topic, ctx):
            return Done(metrics={"name": ctx.site.name})

    with pytest.raises(AssertionError, match="a_site"):
        run_stage(Asks, a_topic(), Context())


def test_a_site_stage_is_checked_too(tmp_path):
    class Nothing(SiteStage):
        def run(self, site, ctx):
            return None

    with pytest.raises(AssertionError, match="must return one of"):
        run_site_stage(Nothing, Context(site=a_site(tmp_path)))


def test_samples_are_valid_and_equal_for_equal_words(tmp_path):
    assert a_topic(slug="x") == a_topic(slug="x")
    assert a_topic(slug="x").id != a_topic(slug="y").id
    assert (a_topic(slug="x-y").title, a_topic(slug="x-y").path) == ("X y", "x-y/")
    assert a_topic(slug="x", path="other/").path == "other/"
    assert a_site(tmp_path, slug="beta").folder == tmp_path / "sites" / "beta"
    with pytest.raises(TypeError, match="a site has no colour"):
        a_site(tmp_path, colour="red")
    with pytest.raises(TypeError):
        a_topic(colour="red")


def test_findings_and_the_rest_of_the_context_are_as_given():
    ctx = Context(findings=[Finding("tone", "plain words")], attempt=3, fence=9, revision=4)

    assert (ctx.findings[0].rule, ctx.attempt, ctx.fence, ctx.revision, ctx.draft) == ("tone", 3, 9, 4, None)


def test_the_frozen_clock_comes_along():
    at = datetime(2026, 3, 1, tzinfo=UTC)

    assert FrozenClock(at).at == at
