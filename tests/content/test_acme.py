"""The example site: every topic becomes a page without a finding, and twice the same."""

from dataclasses import astuple
from pathlib import Path

import pytest

from pipeline import Done, TopicView
from pipeline.content.links import target
from pipeline.project.site import load_site
from pipeline.project.topics import load_topics

from .fakes import Reader, World

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    site = load_site(ROOT, "acme").model_copy(update={"output": tmp_path_factory.mktemp("acme")})
    topics = []
    for number, row in enumerate(load_topics(site), start=1):
        lane, slug, title, type, path, order, brief, *_ = astuple(row)
        topics.append(TopicView(number, "acme", lane, slug, title, type, path, order, brief))
    world = World(site, topics)
    world.outcomes = world.run()
    return world


def test_every_topic_passes_without_a_finding(world):
    assert [outcome for outcome in world.outcomes if not isinstance(outcome, Done)] == []
    assert len(world.outcomes) == 3 * len(world.topics) + 1
    assert [finding for outcome in world.outcomes for finding in outcome.findings] == []
    assert world.intact()


def test_assembling_again_changes_nothing(world):
    before = world.files()

    assert world.assemble().metrics["built"] == 0
    assert world.files() == before


def test_every_link_of_every_page_leads_to_a_file(world):
    files = world.files()
    for name, data in files.items():
        if not name.endswith(".html"):
            continue
        path = name.removesuffix("index.html")
        reader = Reader(data)
        ids = [attrs["id"] for _, attrs in reader.tags if attrs.get("id")]
        assert len(ids) == len(set(ids)), name
        for href in reader.hrefs():
            found = target(world.site, path, href)
            assert found, href
            assert (found[0] + "index.html" if found[0].endswith("/") or not found[0] else found[0]) in files, href
            assert not found[1] or found[1] in ids
