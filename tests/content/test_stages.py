"""The four stages together, on a site in memory."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from pipeline import Done, Repair, Retry
from pipeline.content import FilesTarget
from pipeline.errors import TargetError
from stages import ASSEMBLE, PIPELINE, Assemble, Generate, Publish, Validate

from .fakes import Context, World, make_draft, make_lane, make_site, make_topic

ARTEFACTS = {"feed.xml", "index.html", "robots.txt", "sitemap.xml", "style.css"}


@pytest.fixture
def world(tmp_path):
    site = make_site(tmp_path)
    folder = site.folder / "templates"
    folder.mkdir(parents=True)
    for name in ("city", "country"):
        (folder / f"{name}.md.j2").write_text(
            "About {{ title }}. See [the country](/japan/).\n\n## More\n\n{{ note }}\n"
        )
    topics = [replace(topic, brief={"note": f"Note {topic.slug}."}) for topic in make_lane(6)]
    return World(site, topics)


def test_the_project_names_its_stages():
    assert (Generate, Validate, Publish) == PIPELINE
    assert ASSEMBLE is Assemble
    assert Publish.width == 1
    assert Publish.target == Assemble.target == "files"


def test_every_topic_becomes_a_page_and_the_site_is_assembled(world):
    outcomes = world.run()

    assert all(isinstance(outcome, Done) for outcome in outcomes)
    assert set(world.files()) == ARTEFACTS | {f"{topic.path}index.html" for topic in world.topics}
    assert world.intact()


def test_two_runs_of_one_site_give_the_same_bytes(world, tmp_path):
    """Nothing in a page knows when or where it was made."""
    world.run()
    site = world.site.model_copy(update={"output": tmp_path / "elsewhere"})
    other = World(site, world.topics)
    other.run()

    assert other.files() == world.files()


def test_assembling_again_does_nothing(world):
    world.run()
    before = {path: path.stat().st_mtime_ns for path in world.site.output.rglob("*")}
    world.acted.clear()
    world.asked.clear()

    outcome = world.assemble()

    assert outcome == Done(metrics={"pages": 7, "built": 0})
    assert world.acted == []
    assert set(world.asked) == ARTEFACTS  # a page whose inputs are the same is not even rendered
    assert before == {path: path.stat().st_mtime_ns for path in world.site.output.rglob("*")}


def test_a_lane_that_goes_live_in_its_order_is_written_once(world):
    """But for its first pages, which show those behind them, and the pillar."""
    world.topics = [*world.topics, *(replace(make_topic(f"city-{n}", n), brief={"note": "x"}) for n in range(20, 30))]

    world.run()

    written = Counter(world.acted)
    again = {key for key, times in written.items() if times > 1}
    assert again <= {"japan/index.html", *(f"japan/city-{n}/index.html" for n in range(2, 6))}
    assert len(written) > 14


def test_a_new_page_changes_those_that_show_it_and_the_pillar_only(world):
    """Of a lane the few behind it, the pillar, and what lists all pages."""
    last = replace(make_topic("city-8", 8), brief={"note": "x"})
    topics = [*world.topics, replace(make_topic("city-20", 20), brief={"note": "y"})]
    world.topics = topics
    world.run()
    world.acted.clear()
    world.topics = [*topics, last]
    world.topics.sort(key=lambda topic: topic.position)

    for stage in PIPELINE:
        assert isinstance(world.stage(stage, last), Done)
    world.assemble()

    slugs = {re.sub(r"^japan/(.+)/index.html$", r"\1", key) for key in world.acted}
    around = {"city-8", "city-20"}
    assert slugs == around | {"japan/index.html", "index.html", "feed.xml", "sitemap.xml"}


def test_pages_come_before_the_sitemap(world):
    world.run()

    assert world.acted.index("sitemap.xml") == len(world.acted) - 1


@pytest.mark.parametrize("key", ["japan/city-3/index.html", "japan/index.html", "sitemap.xml", "style.css"])
@pytest.mark.parametrize("harm", ["lost", "changed", "same size"])
def test_what_was_harmed_outside_is_seen_and_built_again(world, key, harm):
    world.run()
    before = world.files()
    path = world.site.output / key
    if harm == "lost":
        path.unlink()
    else:
        path.write_bytes(b"x" * len(before[key]) if harm == "same size" else b"x")
    assert not world.intact()
    world.acted.clear()

    world.assemble()

    assert world.acted == [key]
    assert world.files() == before


def test_a_copy_with_other_times_is_intact(world):
    """After a restore from a backup the tags differ and the bytes do not."""
    world.run()
    for path in world.site.output.rglob("*.html"):
        path.touch()
    world.acted.clear()

    assert world.intact()
    assert world.assemble() == Done(metrics={"pages": 7, "built": 0})
    assert world.acted == []


def test_links_around_a_page_do_not_change_its_date(world):
    """``lastmod`` is the content's: neighbours that went live later do not move it."""
    world.run()

    page = world.live["japan/city-2/index.html"]
    assert page.changed_at == page.first_at < world.now
    assert f"{page.changed_at:%Y-%m-%dT%H:%M:%SZ}".encode() in world.files()["sitemap.xml"]


def test_publishing_without_a_draft_asks_for_repair(world):
    topic = world.topics[0]

    for stage in (Publish, Validate):
        assert isinstance(stage().run(topic, Context(world, topic)), Repair)


def test_what_the_target_refuses_is_tried_again(world, monkeypatch):
    topic = world.topics[0]
    world.write(topic, make_draft(topic))

    def refuse(self, key, data, **more):
        raise TargetError(f"{key}: the disk is full")

    monkeypatch.setattr(FilesTarget, "write", refuse)

    assert world.stage(Publish, topic) == Retry("japan/index.html: the disk is full")
    assert world.assemble() == Retry("style.css: the disk is full")
    assert world.live == {}


def test_an_unsafe_path_is_refused_before_anything_is_written(world):
    topic = replace(world.topics[1], path="../../etc/")
    world.write(topic, make_draft(topic))

    assert isinstance(world.stage(Publish, topic), Retry)
    assert not world.site.output.exists()


def test_assemble_stops_when_its_result_is_not_wanted(world):
    world.run()
    world.stop = True
    world.acted.clear()
    for key in ("style.css", "japan/index.html"):
        (world.site.output / key).unlink()

    assert isinstance(world.assemble(), Retry)
    assert world.acted == []


def test_assemble_depends_on_theme_and_facts_of_the_site(world):
    stage, site = Assemble(), world.site

    assert stage.fingerprint(site) == stage.fingerprint(site.model_copy(update={"settings": {"x": 1}}))
    for change in ({"name": "x"}, {"lanes": {"japan": "Nippon"}}, {"base_url": "https://x.example"}):
        assert stage.fingerprint(site) != stage.fingerprint(site.model_copy(update=change))


def test_a_site_without_pages_has_its_artefacts(world):
    assert isinstance(world.assemble(), Done)
    assert set(world.files()) == ARTEFACTS
