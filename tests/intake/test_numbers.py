"""Numbers of many countries and tools become plain digits; what is unknown is empty, never zero."""

import pytest

from pipeline.intake.dates import instant, moment
from pipeline.intake.numbers import number


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("1,234", "1234"),
        ("1.234,5", "1234.5"),
        ("1,234,567.80", "1234567.8"),
        ("2M", "2000000"),
        ("1.5K", "1500"),
        ("35%", "0.35"),
        ("2,5 %", "0.025"),
        ("$1.25", "1.25"),
        ("£1.25", "1.25"),
        ("<10", "<10"),
        ("0", "0"),
        ("1K – 10K", "1000..10000"),
        ("10 - 100", "10..100"),
        ("n/a", ""),
        ("-", ""),
        ("", ""),
        ("-12", "-12"),
        ("1 234", "1234"),
        ("Low", "Low"),
        ("Three", "Three"),
        ("12 months", "12 months"),
        ("9" * 90, "9" * 90),
    ],
)
def test_a_number_is_written_plainly(text: str, plain: str) -> None:
    assert number(text) == plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [("1,5", "1.5"), ("1.234", "1234"), ("1.234.567", "1234567"), ("1,234", "1.234"), ("0,35", "0.35")],
)
def test_where_decimals_have_a_comma_points_part_thousands(text: str, plain: str) -> None:
    assert number(text, comma=True) == plain


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2014-03-12", "2014-03-12"),
        ("2014-03-12T10:00:00-04:00", "2014-03-12T10:00:00-04:00"),
        ("2014-03-12 10:00:00 -4", "2014-03-12T10:00:00-04:00"),
        ("2014-03-12 9:05:00 -0800", "2014-03-12T09:05:00-08:00"),
        ("2014-03-12T10:00:00.000Z", "2014-03-12T10:00:00+00:00"),
        ("Tue, 27 Jan 2015 14:56:57 +0000", "2015-01-27T14:56:57+00:00"),
    ],
)
def test_dates_of_many_shapes_are_one(text: str, iso: str) -> None:
    found = moment(text)

    assert found is not None
    assert found[0] == iso


@pytest.mark.parametrize(
    "text", ["", "soon", "2014-13-01", "2015-02-30", "0000-00-00 00:00:00", "2014-03-12 10:00 -99"]
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert moment(text) is None


def test_a_date_without_an_offset_is_of_the_sites_own_zone() -> None:
    from zoneinfo import ZoneInfo

    new_york = ZoneInfo("America/New_York")
    before, after = (instant(text, new_york) for text in ("2014-03-12 23:00:00", "2014-03-13T02:00:00Z"))

    assert before is not None
    assert after is not None
    assert before > after
