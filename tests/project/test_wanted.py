"""What a project wants of the database."""

from collections.abc import Sequence

from hypothesis import given, strategies as st

from pipeline.views import TopicRow
from pipeline.wanted import longest_first


def rows(lanes: Sequence[str]) -> list[TopicRow]:
    return [TopicRow(lane, f"t-{n}", "T", "page", f"t-{n}/", n, {}) for n, lane in enumerate(lanes)]


def test_those_behind_which_most_others_come_are_first() -> None:
    """A lane ends when its last page does, so the longest begins first."""
    found = longest_first(rows(["a", "b", "b", "b", "c", "c"]))

    assert [(t.lane, t.order) for t in found] == [("b", 1), ("b", 2), ("c", 4), ("a", 0), ("b", 3), ("c", 5)]


@given(st.lists(st.sampled_from("abc")))
def test_the_order_within_each_lane_stays(lanes: list[str]) -> None:
    given = rows(lanes)

    found = longest_first(given)

    assert sorted(t.slug for t in found) == sorted(t.slug for t in given)
    for lane in "abc":
        assert [t for t in found if t.lane == lane] == [t for t in given if t.lane == lane]
