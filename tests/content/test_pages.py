"""A page's model: what it says of its neighbours, and when it must be built again."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from pipeline.content import card_of, inputs, lane_of, model, render

from .fakes import Reader, make_draft, make_lane, make_site, make_topic


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path, base_url="https://acme.example/blog")


def cards_of(topics, live=()):
    return [replace(card_of(topic, make_draft(topic)), live=topic.slug in live) for topic in topics]


def page_of(site, topic, cards):
    draft = make_draft(topic)
    return model(site, card_of(topic, draft), draft, lane_of(cards))


def test_breadcrumbs_lead_home_over_the_pillar(site):
    topics = make_lane()
    cards = cards_of(topics, live=["japan"])

    crumbs = page_of(site, topics[1], cards).breadcrumbs

    assert [(crumb.title, crumb.href) for crumb in crumbs] == [
        ("Acme & Sons", "/blog/"),
        ("Japan", "/blog/japan/"),
        (topics[1].title, None),
    ]


def test_a_pillar_that_is_not_live_is_no_link(site):
    topics = make_lane()

    assert page_of(site, topics[1], cards_of(topics)).breadcrumbs[1].href is None


def test_the_pillar_names_all_members_and_links_the_live_ones(site):
    topics = make_lane(3)

    page = page_of(site, topics[0], cards_of(topics, live=["japan", "city-3"]))

    assert page.kind == "pillar"
    assert [crumb.title for crumb in page.breadcrumbs] == ["Acme & Sons", "Japan"]
    assert [(link.title, link.href) for link in page.members] == [
        (topics[1].title, None),
        (topics[2].title, "/blog/japan/city-3/"),
        (topics[3].title, None),
    ]
    assert [bool(link.text) for link in page.members] == [False, True, False]
    assert page.related == ()


@pytest.mark.parametrize(
    ("slug", "live", "related"),
    [
        ("city-2", [], []),
        ("city-2", ["japan", "city-2"], []),
        ("city-2", ["japan", "city-3"], [3]),
        ("city-2", ["city-3", "city-4", "city-5", "city-6", "city-7"], [3, 4, 6, 7]),
        ("city-4", ["city-2", "city-3", "city-4", "city-5", "city-6", "city-7"], [2, 3, 5, 6]),
        ("city-7", ["city-2", "city-3", "city-4", "city-5", "city-6"], [2, 3, 5, 6]),
        ("city-7", ["city-2", "city-3", "city-4"], [2, 3, 4]),
    ],
)
def test_related_pages_are_the_nearest_live_ones_on_the_ring(site, slug, live, related):
    topics = make_lane()
    (topic,) = (each for each in topics if each.slug == slug)

    found = page_of(site, topic, cards_of(topics, live)).related

    assert [link.href for link in found] == [f"/blog/japan/city-{n}/" for n in related]


@settings(max_examples=50, deadline=None)
@given(live=st.sets(st.integers(2, 12)), me=st.integers(2, 12))
def test_related_pages_are_distinct_live_and_as_many_as_can_be(tmp_path_factory, live, me):
    """Whether or not the page itself is live already makes no difference."""
    site = make_site(tmp_path_factory.getbasetemp())
    topics = make_lane(11)
    topic = topics[me - 1]

    pages = [page_of(site, topic, cards_of(topics, [f"city-{n}" for n in some])) for some in (live - {me}, live | {me})]

    assert pages[0] == pages[1]
    hrefs = [link.href for link in pages[0].related]
    assert len(set(hrefs)) == len(hrefs) == min(4, len(live - {me}))
    assert f"/{topic.path}" not in hrefs


def test_a_lane_without_pillar_has_plain_pages(site):
    topics = [make_topic(f"city-{n}", n, path=f"city-{n}/") for n in (1, 2)]

    page = page_of(site, topics[0], cards_of(topics, live=["city-2"]))

    assert (page.kind, page.members, len(page.breadcrumbs), len(page.related)) == ("page", (), 2, 1)


def test_a_large_lane_is_answered_quickly(site):
    """Five thousand pages ask for their neighbours in one go: no page looks at all others."""
    topics = [make_topic(f"city-{n}", n, path=f"city-{n}/") for n in range(1, 5_001)]
    lane = lane_of(cards_of(topics, live={topic.slug for topic in topics}))
    draft = make_draft(topics[0])

    assert all(len(model(site, card, draft, lane).related) == 4 for card in lane.cards)


def test_inputs_follow_what_the_bytes_depend_on_and_nothing_else(site):
    topics = make_lane()
    cards = cards_of(topics, live=["japan", "city-2", "city-3"])
    topic, draft = topics[1], make_draft(topics[1])
    page = page_of(site, topic, cards)
    before = inputs(site, page, draft)

    assert before == inputs(site, page_of(site, topic, cards), draft)
    assert before == inputs(site.model_copy(update={"settings": {"x": 1}, "time_zone": "Asia/Tokyo"}), page, draft)
    assert before == inputs(site, page, replace(draft, lineage={"template": "x"}))
    others = [
        (site, page, replace(draft, body="other")),
        (site, page_of(site, topic, cards_of(topics, live=["japan", "city-2", "city-3", "city-4"])), draft),
        (site, page_of(site, topic, [replace(card, title="x") for card in cards]), draft),
        (site.model_copy(update={"tagline": "x"}), page, draft),
        (site.model_copy(update={"locale": "de"}), page, draft),
    ]
    assert len({before, *(inputs(*each) for each in others)}) == 6


def test_the_same_inputs_give_the_same_bytes(site):
    topics = make_lane()
    page = page_of(site, topics[1], cards_of(topics, live=["japan", "city-3"]))

    assert render(site, page, make_draft(topics[1])) == render(site, page, make_draft(topics[1]))


def test_a_page_is_whole(site):
    """One h1, one canonical address, links below the site's own path, data for machines that says the same."""
    topics = make_lane()
    topic = topics[1]
    page = page_of(site, topic, cards_of(topics, live=["japan", "city-3"]))

    reader = Reader(render(site, page, make_draft(topic, "See [it](/japan/).\n\n## More\n")))

    tags = [tag for tag, _ in reader.tags]
    assert tags.count("h1") == tags.count("main") == tags.count("title") == 1
    canonical = [attrs["href"] for tag, attrs in reader.tags if tag == "link" and attrs["rel"] == "canonical"]
    assert canonical == ["https://acme.example/blog/japan/city-2/"]
    assert all(href.startswith(("/blog/", "#")) for href in reader.hrefs())
    (data,) = (text for text in reader.text if text.startswith('{"@context"'))
    graph = json.loads(data)["@graph"]
    assert [item["item"] for item in graph[0]["itemListElement"]] == [
        "https://acme.example/blog/",
        "https://acme.example/blog/japan/",
        "https://acme.example/blog/japan/city-2/",
    ]
    assert graph[1]["headline"] == topic.title
