"""Slugs are nobody's by accident: each collision is named, and only a rule tells apart."""

import pytest
from hypothesis import given, settings, strategies as st

from pipeline.errors import UsageError
from pipeline.intake.found import Item, Text
from pipeline.intake.rules import rules
from pipeline.intake.slugs import Neighbours, likeness, slug
from tests.intake.scene import decided, item, row


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("Kyoto in two days", "kyoto-in-two-days"),
        ("Επίπεδο 2", "epipedo-2"),
        ("İstanbul", "istanbul"),
        ("Ōsaka", "osaka"),
        ("Women’s café", "womens-cafe"),
        ("你好世界", "nihaoshijie"),
        ("🙂", "slight-smile"),
        ("!!!", ""),
        ("…", ""),
        (".", ""),
        ("..", ""),
        ("   ", ""),
        ("a\u200bb", "ab"),
        ("CON", "con"),
        ("x" * 300, "x" * 200),
    ],
)
def test_names_are_transliterated(name: str, made: str) -> None:
    """O-60: symbols make no slug, and no path of a hidden or foreign file."""
    assert slug(name) == made


def test_forms_of_one_letter_are_one_slug() -> None:
    assert slug("Ō") == slug("O\u0304") == slug("ō ")


@pytest.mark.parametrize("twin", ["kyoto guide", "KYOTO  Guide", "Kyoto Guide\u200b"])
def test_the_same_keyword_is_refused_by_name(twin: str) -> None:
    decision = decided([item("Kyoto Guide", 2), item(twin, 7)])

    assert [topic.slug for topic in decision.new] == ["kyoto-guide"]
    assert decision.refused[0].line == 7
    assert "a.csv:2" in decision.refused[0].why


def test_two_names_of_one_slug_are_refused_by_name() -> None:
    """O-61: the first has it, and the second is told whose it is."""
    decision = decided([item("C"), item("C++", 3), item("Osaka", 4), item("Ōsaka", 5)])

    assert [topic.slug for topic in decision.new] == ["c", "osaka"]
    assert [one.line for one in decision.refused] == [3, 5]
    assert "'c' of a.csv:2" in decision.refused[0].why


@pytest.mark.parametrize("name", ["!!!", "CON", "index", "Feed"])
def test_names_without_a_usable_slug_are_refused(name: str) -> None:
    assert len(decided([item(name)]).refused) == 1


def test_a_rule_tells_all_of_a_name_apart() -> None:
    """Nobody has the short slug, whoever comes first; each step is taken only where it is needed."""
    by = rules(slug="name,state,id")
    cities = [
        item("Springfield", 2, state="Ohio", id="1"),
        item("Springfield", 3, state="Iowa", id="2"),
        item("Springfield", 4, state="Iowa", id="3"),
        item("Nara", 5, state="", id="4"),
    ]

    decision = decided(cities, by=by)

    assert [(topic.slug, topic.title) for topic in decision.new] == [
        ("springfield-ohio", "Springfield, Ohio"),
        ("springfield-iowa-2", "Springfield, Iowa, 2"),
        ("springfield-iowa-3", "Springfield, Iowa, 3"),
        ("nara", "Nara"),
    ]
    assert decision.refused == []
    assert "'springfield' is shared by 3" in decision.apart[0].what


def test_who_is_told_apart_takes_no_ones_slug() -> None:
    """Where that is another's by itself, that one is told apart as well."""
    by = rules(slug="name,state")
    cities = [item("A B", 2, state="X"), item("A", 3, state="B"), item("A", 4, state="C")]

    decision = decided(cities, by=by)

    assert [topic.slug for topic in decision.new] == ["a-b-x", "a-b", "a-c"]


def test_what_is_there_stays_and_keeps_its_slug() -> None:
    """A name that becomes common later is told apart from the one that has it."""
    by = rules(slug="name,state")
    there = row("springfield", "Springfield", name="Springfield", state="Ohio")
    cities = [item("Springfield", 2, state="Ohio"), item("Springfield", 3, state="Iowa")]

    decision = decided(cities, there, by=by)

    assert decision.unchanged == 1
    assert [topic.slug for topic in decision.new] == ["springfield-iowa"]


def test_what_is_there_and_says_otherwise_is_noted() -> None:
    there = row("moka", "Moka", keyword="moka", volume="10")
    decision = decided(
        [Item("a.csv", 2, "moka", "moka", False, "", {"keyword": "moka", "volume": "20"}, "moka")], there
    )

    assert (decision.new, decision.unchanged, decision.refused) == ([], 0, [])
    assert "volume" in decision.notes[0].what


def test_a_slug_that_another_topic_has_is_refused() -> None:
    decision = decided([item("C++")], row("c", "The letter"))

    assert "'c' of topic 'c' (topics.csv:2)" in decision.refused[0].why


def test_an_address_that_is_live_is_refused() -> None:
    decision = decided([item("Old page"), item("New page", 3)], live={"old-page/": "live.txt:4"})

    assert [topic.slug for topic in decision.new] == ["new-page"]
    assert "live.txt:4" in decision.refused[0].why


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("best running shoes 2025", "Best running shoe 2026"),
        ("how to brew coffee at home with a moka pot", "how to brew coffee at home with the moka pot"),
        ("coffee grinder guide", "guide: coffee grinders"),
    ],
)
def test_near_titles_are_told_and_taken(one: str, other: str) -> None:
    decision = decided([item(one), item(other, 3)])

    assert len(decision.new) == 2
    assert "nearly the same as a.csv:2" in decision.notes[0].what


def test_other_angles_are_not_called_near() -> None:
    assert decided([item("coffee grinder guide"), item("coffee grinder repair", 3), item("tea guide", 4)]).notes == []


WORDS = st.lists(st.sampled_from([*"abcdefghij"]), min_size=1, max_size=10, unique=True)


@settings(max_examples=300)
@given(WORDS, WORDS)
def test_neighbours_are_those_that_share_four_words_in_five(one: list[str], other: list[str]) -> None:
    titles = [" ".join(word * 4 for word in words) for words in (one, other)]
    near = Neighbours(titles)

    alike = len({*one} & {*other}) >= 0.8 * len({*one} | {*other})
    assert near.near(titles[0]) is None
    assert (near.near(titles[1]) == 0) == alike


def test_the_same_to_readers_is_the_same() -> None:
    assert likeness("“Kyoto’s”  best—of") == likeness('"kyoto\'s" BEST-of')


def test_lanes_by_year_are_in_the_order_of_dates() -> None:
    def text(name: str, date: str) -> Item:
        return Item(f"{name}.md", 0, name, name, True, "post", {"date": date}, "", None, f"{name}.md")

    decision = decided(
        [text("c", "2015-01-02"), text("a", "2015-01-01 23:00:00 -4"), text("b", "2014-12-31"), text("none", "")],
        by=rules(lane="date:year"),
    )

    assert [(topic.lane, topic.slug) for topic in decision.new] == [("2014", "b"), ("2015", "c"), ("2015", "a")]
    assert "no date" in decision.refused[0].why


def test_lanes_by_column_for_all_and_by_the_source() -> None:
    place = item("Nara", country="Côte d’Ivoire", lane="asia")

    assert decided([place], by=rules(lane="country")).new[0].lane == "cote-divoire"
    assert decided([place], by=rules(lane="=cities")).new[0].lane == "cities"
    assert decided([place]).new[0].lane == "asia"
    assert "'country' is empty" in decided([item("x", country="")], by=rules(lane="country")).refused[0].why
    with pytest.raises(UsageError, match="cote-divoire"):
        rules(lane="=Côte d’Ivoire")


def test_own_slugs_are_taken_over_and_told_where_they_change() -> None:
    greek = Item("a.xml", 9, "Level 2", "επίπεδο-2", True, "page", {}, "", Text("", "", {}), "wordpress:1")

    decision = decided([greek])

    assert decision.new[0].slug == "epipedo-2"
    assert "'επίπεδο-2' is written 'epipedo-2'" in decision.notes[0].what
