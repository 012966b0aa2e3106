"""Sitemap, feed, home and robots: strict XML, honest dates, steady ids."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import pytest

from pipeline.content import Entry, artefacts, card_of, feed, home, lane_of, robots, sitemaps

from .fakes import Reader, make_draft, make_lane, make_site

MAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
ATOM = "{http://www.w3.org/2005/Atom}"
MARCH = datetime(2026, 3, 1, 12, 30, 15, 999, tzinfo=UTC)


def make_entry(number: int = 1, **changes) -> Entry:
    at = MARCH + timedelta(hours=number)
    return replace(Entry(number, f"japan/city-{number}/", f"City {number}", "Words.", at, at), **changes)


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path, base_url="https://acme.example/blog")


def test_the_sitemap_has_every_page_with_the_date_of_its_change(site):
    entries = [make_entry(1), make_entry(2, changed_at=datetime(2026, 3, 2, 1, tzinfo=timezone(timedelta(hours=9))))]

    files = sitemaps(site, entries)

    assert list(files) == ["sitemap.xml"]
    root = ElementTree.fromstring(files["sitemap.xml"])
    assert [(url.findtext(f"{MAP}loc"), url.findtext(f"{MAP}lastmod")) for url in root] == [
        ("https://acme.example/blog/", None),
        ("https://acme.example/blog/japan/city-1/", "2026-03-01T13:30:15Z"),
        ("https://acme.example/blog/japan/city-2/", "2026-03-01T16:00:00Z"),
    ]


def test_an_empty_site_has_a_sitemap_without_dates(site):
    root = ElementTree.fromstring(sitemaps(site, [])["sitemap.xml"])

    assert [url.find(f"{MAP}lastmod") for url in root] == [None]


@pytest.mark.parametrize(("pages", "sizes"), [(49, [50]), (50, [50, 1]), (101, [50, 50, 2])])
def test_a_sitemap_is_split_at_its_limit(site, monkeypatch, pages, sizes):
    """Never more addresses in a file than are allowed; the index names every part with its newest date."""
    monkeypatch.setattr(artefacts, "MAX_URLS", 50)

    files = sitemaps(site, [make_entry()] * pages)

    if len(sizes) == 1:
        assert list(files) == ["sitemap.xml"]
        assert files["sitemap.xml"].count(b"<url>") == 50
        return
    assert [files[f"sitemap-{n}.xml"].count(b"<url>") for n in range(1, len(sizes) + 1)] == sizes
    assert list(files)[-1] == "sitemap.xml"
    index = ElementTree.fromstring(files["sitemap.xml"])
    assert index.tag == f"{MAP}sitemapindex"
    assert [each.findtext(f"{MAP}loc") for each in index] == [
        f"https://acme.example/blog/sitemap-{n}.xml" for n in range(1, len(sizes) + 1)
    ]
    assert {each.findtext(f"{MAP}lastmod") for each in index} == {"2026-03-01T13:30:15Z"}


def test_fifty_thousand_pages_and_home_are_two_files(site):
    """The limit of the protocol itself."""
    files = sitemaps(site, [make_entry()] * 50_000)

    assert {name: data.count(b"<loc>") for name, data in files.items()} == {
        "sitemap-1.xml": 50_000,
        "sitemap-2.xml": 1,
        "sitemap.xml": 2,
    }


def test_a_sitemap_is_split_by_size_too(site, monkeypatch):
    monkeypatch.setattr(artefacts, "MAX_SITEMAP_BYTES", 2000)

    files = sitemaps(site, [make_entry(n) for n in range(100)])

    assert len(files) > 5
    assert all(len(data) <= 2200 for name, data in files.items() if name != "sitemap.xml")
    assert sum(data.count(b"<url>") for data in files.values()) == 101


def test_the_feed_has_the_newest_with_steady_ids(site):
    """A page that moves or is renamed keeps its id: readers do not see it as new."""
    entries = [make_entry(n) for n in range(1, 61)]

    root = ElementTree.fromstring(feed(site, entries))
    moved = ElementTree.fromstring(feed(site, [replace(entry, path=f"x/{entry.path}", title="x") for entry in entries]))

    ids = [entry.findtext(f"{ATOM}id") for entry in root.iter(f"{ATOM}entry")]
    assert len(ids) == len(set(ids)) == 50
    assert ids[0] == "tag:acme.example,2026-03-04:acme/60"
    assert ids == [entry.findtext(f"{ATOM}id") for entry in moved.iter(f"{ATOM}entry")]
    assert root.findtext(f"{ATOM}updated") == "2026-03-04T00:30:15Z"
    assert root.findtext(f"{ATOM}entry/{ATOM}updated") == "2026-03-04T00:30:15Z"
    for needed in ("id", "title", "author/" + ATOM + "name"):
        assert root.findtext(f"{ATOM}{needed}")


def test_ids_do_not_depend_on_the_time_zone_of_a_date(site):
    early = datetime(2026, 3, 2, 1, tzinfo=timezone(timedelta(hours=9)))

    assert feed(site, [make_entry(first_at=early)]) == feed(site, [make_entry(first_at=early.astimezone(UTC))])


def test_a_change_moves_updated_and_not_the_id(site):
    entry = make_entry()
    later = replace(entry, changed_at=entry.changed_at + timedelta(days=3))

    before, after = (ElementTree.fromstring(feed(site, [each])).find(f"{ATOM}entry") for each in (entry, later))

    assert before.findtext(f"{ATOM}id") == after.findtext(f"{ATOM}id")
    assert before.findtext(f"{ATOM}published") == after.findtext(f"{ATOM}published")
    assert before.findtext(f"{ATOM}updated") != after.findtext(f"{ATOM}updated")


NASTY = [
    "]]>", "<![CDATA[x]]>", "&amp; & &nope; <b>", "\x00\x01\x08\x0b\x0c\x1f", "\ud800", "\ufffe\uffff", "\x7f\x85",
    "<!ENTITY x SYSTEM 'file:///etc/passwd'>", "<?xml version='1.0'?>", "--><script>", "\u202e\u2028", "\"'", "a\r\nb",
    "😀 é 日本", "</title></entry></feed>",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
def test_feed_and_sitemap_stay_strict_xml(tmp_path, text):
    """Whatever a title holds, a strict parser reads the same words, less what XML forbids."""
    own = text.encode(errors="replace").decode()  # a site's own facts are UTF-8 already
    site = make_site(tmp_path, name=f"Acme {own}", tagline=own)
    entry = make_entry(title=f"T {text}", description=f"D {text}")

    root = ElementTree.fromstring(feed(site, [entry]))
    ElementTree.fromstring(sitemaps(site, [entry])["sitemap.xml"])

    title = root.findtext(f"{ATOM}entry/{ATOM}title")
    wanted = "".join(sign for sign in f"T {text}" if sign.isprintable() or sign in "\r\n\u202e\u2028")
    assert title == wanted.replace("\ud800", "").replace("\r\n", "\n")
    assert len(root.findall(f"{ATOM}entry")) == 1


def test_robots_names_the_sitemap(site):
    assert robots(site).decode().splitlines()[-1] == "Sitemap: https://acme.example/blog/sitemap.xml"


def test_home_shows_lanes_with_live_pages_only(site):
    topics = make_lane(3)
    cards = [replace(card_of(topic, make_draft(topic)), live=topic.slug != "city-3") for topic in topics]
    dark = [replace(card, lane="italy", live=False) for card in cards]
    headless = [replace(card, lane="south-spain", live=card.path != "japan/") for card in cards]

    page = Reader(home(site, {"japan": lane_of(cards), "italy": lane_of(dark), "south-spain": lane_of(headless)}))

    hrefs = page.hrefs()
    assert hrefs.count("/blog/japan/") == 1
    assert "/blog/japan/city-3/" in hrefs  # of the lane without a live pillar
    assert [text for text in page.text if text in ("Japan", "South spain", "Italy")] == ["Japan", "South spain"]


def test_artefacts_are_the_same_bytes_each_time(site):
    entries = [make_entry(n) for n in range(5)]

    assert feed(site, entries) == feed(site, entries)
    assert sitemaps(site, entries) == sitemaps(site, entries)
