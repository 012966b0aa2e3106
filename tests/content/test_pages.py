"""A page's model: what it says of its neighbours, and when it must be built again."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from pipeline.content import article, article_in, card_of, inputs, lane_around, lane_of, model, render, same_text
from pipeline.testing import MemoryCorpus

from .fakes import Reader, make_draft, make_lane, make_site, make_topic


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path, base_url="https://acme.example/blog")


def cards_of(topics, live=()):
    return [replace(card_of(topic, make_draft(topic)), live=topic.slug in live) for topic in topics]


def page_of(site, topic, cards):
    return model(site, card_of(topic, make_draft(topic)), lane_of(cards))


def bytes_of(site, topic, cards, draft):
    return render(site, model(site, card_of(topic, draft), lane_of(cards)), article(site, draft))


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
        ("city-2", ["city-3", "city-4", "city-5", "city-6", "city-7"], [3, 4, 5, 6]),
        ("city-4", ["city-2", "city-3", "city-4", "city-5", "city-6", "city-7"], [2, 3, 5, 6]),
        ("city-7", ["city-2", "city-3", "city-4", "city-5", "city-6"], [3, 4, 5, 6]),
        ("city-7", ["city-2", "city-3", "city-4"], [2, 3, 4]),
    ],
)
def test_related_pages_are_the_nearest_live_ones_before_it_or_else_behind(site, slug, live, related):
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

    assert all(len(model(site, card, lane).related) == 4 for card in lane.cards)


def test_inputs_follow_what_the_bytes_depend_on_and_nothing_else(site):
    topics = make_lane()
    cards = cards_of(topics, live=["japan", "city-2", "city-3"])
    topic, draft = topics[1], make_draft(topics[1])

    def of(site, draft, cards):
        return inputs(site, card_of(topic, draft), draft.hash, lane_of(cards))

    before = of(site, draft, cards)

    assert before == of(site, draft, list(cards))
    assert before == of(site.model_copy(update={"settings": {"x": 1}, "time_zone": "Asia/Tokyo"}), draft, cards)
    assert before == of(site, replace(draft, lineage={"template": "x"}), cards)
    others = [
        (site, replace(draft, body="other"), cards),
        (site, draft, cards_of(topics, live=["japan", "city-2", "city-3", "city-4"])),
        (site, draft, cards_of(topics, live=["city-2", "city-3"])),
        (site, draft, [replace(card, title="x") for card in cards]),
        (site.model_copy(update={"tagline": "x"}), draft, cards),
        (site.model_copy(update={"locale": "de"}), draft, cards),
        (site.model_copy(update={"lanes": {"japan": "Nippon"}}), draft, cards),
    ]
    assert len({before, *(of(*each) for each in others)}) == 8


@settings(max_examples=100, deadline=None)
@given(live=st.sets(st.integers(1, 9)), then=st.sets(st.integers(1, 9)), me=st.integers(1, 9), pillar=st.booleans())
def test_pages_of_equal_inputs_are_equal(tmp_path_factory, live, then, me, pillar):
    """What ``inputs`` looks at is all that the page shows of its lane: never other bytes under the same inputs."""
    site = make_site(tmp_path_factory.getbasetemp())
    topics = make_lane(8)
    if not pillar:
        topics = [replace(topic, path=f"{topic.slug}/") for topic in topics]
    topic, draft = topics[me - 1], make_draft(topics[me - 1])
    lanes = [cards_of(topics, [topics[n - 1].slug for n in some]) for some in (live, then)]

    keys = [inputs(site, card_of(topic, draft), draft.hash, lane_of(cards)) for cards in lanes]
    pages = [bytes_of(site, topic, cards, draft) for cards in lanes]

    assert (keys[0] == keys[1]) == (pages[0] == pages[1])


@settings(max_examples=50, deadline=None)
@given(body=st.text(max_size=200), title=st.text(max_size=40))
def test_the_text_of_a_page_can_be_taken_over(tmp_path_factory, body, title):
    """It is found in the bytes just as it was made, whatever it says."""
    site = make_site(tmp_path_factory.getbasetemp())
    topics = make_lane()
    draft = make_draft(topics[1], body, title=title)

    assert article_in(bytes_of(site, topics[1], cards_of(topics), draft)) == article(site, draft)


def test_a_text_is_the_same_whatever_stands_around_it(site):
    topics = make_lane()
    draft, other = make_draft(topics[1]), make_draft(topics[1], "Other words.\n")
    cards = [cards_of(topics), cards_of(topics, live=["city-3"])]
    one, moved, edited = (
        inputs(site, card_of(topics[1], text), text.hash, lane_of(some))
        for text, some in ((draft, cards[0]), (draft, cards[1]), (other, cards[0]))
    )

    assert one != moved
    assert same_text(one, moved)
    assert not same_text(one, edited)
    assert not same_text(one, "")


def test_the_same_inputs_give_the_same_bytes(site):
    topics = make_lane()
    cards, draft = cards_of(topics, live=["japan", "city-3"]), make_draft(topics[1])

    assert bytes_of(site, topics[1], cards, draft) == bytes_of(site, topics[1], list(cards), replace(draft))


def test_a_page_is_whole(site):
    """One h1, one canonical address, links below the site's own path, data for machines that says the same."""
    topics = make_lane()
    topic = topics[1]
    page = page_of(site, topic, cards_of(topics, live=["japan", "city-3"]))

    reader = Reader(render(site, page, article(site, make_draft(topic, "See [it](/japan/).\n\n## More\n"))))

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


@settings(max_examples=50, deadline=None)
@given(live=st.sets(st.integers(1, 12)), me=st.integers(1, 12))
def test_a_page_sees_of_its_lane_all_that_it_shows(tmp_path_factory, live, me):
    """What is asked for one page makes the same page as the whole lane does, for a pillar and for any other."""
    site = make_site(tmp_path_factory.getbasetemp())
    topics = make_lane(11)
    topic = topics[me - 1]
    cards = cards_of(topics, [t.slug for n, t in enumerate(topics, 1) if n in live])
    corpus = MemoryCorpus(cards)
    corpus.topic = topic
    draft = make_draft(topic)
    card = card_of(topic, draft)

    around, whole = lane_around(site, topic, corpus), lane_of(cards)

    assert model(site, card, around) == model(site, card, whole)
    assert inputs(site, card, draft.hash, around) == inputs(site, card, draft.hash, whole)
