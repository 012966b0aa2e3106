"""O-66 and S11, S12: whatever the bytes are, a source is read, or refused by name; nothing else ever comes of it."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from pipeline.intake.html import to_markdown
from pipeline.intake.rules import rules
from pipeline.project.topics import CONTROL
from tests.intake.scene import decided, found_in, in_file, items, refused, zipped
from tests.intake.test_archives import BOOK, SHEET
from tests.intake.test_tables import AHREFS, PLANNER, SEMRUSH
from tests.intake.test_wordpress import export, post

NAMES = ["a.csv", "a.tsv", "a.md", "a.xml", "a.xml.gz", "a.zip", "a.xlsx"]
PIECES = st.sampled_from(
    [
        b"Keyword",
        b"title",
        b"\n",
        b"\r\n",
        b",",
        b"\t",
        b";",
        b'"',
        b"---\n",
        b"+++\n",
        b"{",
        b": ",
        b"<rss>",
        b"<item>",
        b"<urlset><url><loc>",
        b"]]>",
        b"&amp;",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"PK\x03\x04",
        b"\x1f\x8b\x08",
        b"- a\n",
        b"&a [*a]",
        b"!!python/object:x",
        b"caf\xe9",
        "é".encode(),
        b"2014-01-02",
        b" ",
        b"x",
    ]
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=40).map(b"".join)))
@example(b"\xff\xfeK\x00")
@example(b'Keyword\n"')
def test_any_bytes_are_read_or_refused(tmp_path: Path, name: str, data: bytes) -> None:
    """And what comes of them can be decided, and written: no control characters, no empty titles."""
    decision = decided(items(in_file(tmp_path, name, data)), by=rules(slug="name,id"))

    for topic in decision.new:
        assert topic.slug
        assert topic.title.strip()
        assert not any(CONTROL.search(text) for text in (topic.title, *topic.brief.values()))


@pytest.mark.parametrize(
    ("name", "data", "count"),
    [
        ("a.csv", AHREFS.encode("utf-16"), 2),
        ("a.csv", SEMRUSH.encode(), 2),
        ("a.csv", PLANNER.encode("utf-16"), 2),
        ("a.xml", export(*(post(f"Post {n}", f"post-{n}") for n in range(9))).encode(), 9),
    ],
)
def test_what_was_cut_off_is_never_taken_for_the_whole_without_a_word(
    tmp_path: Path, name: str, data: bytes, count: int
) -> None:
    """An export in a document is whole or refused; of a table what is whole counts, and a broken row is named."""
    for at in random.Random(6).sample(range(20, len(data) - 8), 20):
        found = in_file(tmp_path, name, data[:at])

        assert len(items(found)) <= count
        if name == "a.xml":
            assert refused(found) != []


def test_a_record_that_stands_twice_comes_in_once(tmp_path: Path) -> None:
    given = items(in_file(tmp_path, "a.xml", export(post("A", "a"), post("A", "a"))))

    decision = decided(given)

    assert len(decision.new) == 1
    assert "the same slug as a.xml:4" in decision.refused[0].why


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "<p>",
                "</p>",
                "<ul>",
                "<li>",
                "</ul>",
                "<b>",
                "</b>",
                "<em>",
                "<a href='x'>",
                "</a>",
                "<pre>",
                "</pre>",
                "<code>",
                "</code>",
                "<table>",
                "<tr>",
                "<td>",
                "</td>",
                "</table>",
                "<br>",
                "<h2>",
                "</h2>",
                "<blockquote>",
                "</blockquote>",
                "x",
                " ",
                "\n\n",
                "*",
                "`",
                "#",
                "<script>",
                "<",
                "&lt;",
            ]
        ),
        max_size=30,
    )
)
def test_any_html_becomes_a_text(tags: list[str]) -> None:
    assert not CONTROL.search(to_markdown("".join(tags)))


def test_long_and_odd_texts_take_no_time() -> None:
    """Patterns are bounded, whatever is repeated."""
    import time

    began = time.process_time()
    for piece in ("*", "`", "[", "<b>", "<b> ", "<code>", "[](", "<br>", "# ", "\n", " \n", "a [", "<td>"):
        to_markdown(piece * 20_000)

    assert time.process_time() - began < 10


def test_a_cell_of_a_megabyte_is_refused_and_the_next_row_is_not(tmp_path: Path) -> None:
    found = in_file(tmp_path, "a.csv", f"Keyword,Note\na,{'x' * ((1 << 20) + 1)}\nb,fine\n")

    assert [one.title for one in items(found)] == ["b"]


def test_a_workbook_that_lies_of_its_cells_is_read_as_far_as_it_is_true(tmp_path: Path) -> None:
    sheet = (
        b'<worksheet><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>Keyword</t></is></c></row>'
        b'<row r="x"><c r="A2" t="s"><v>99</v></c></row><row><c t="inlineStr"><is><t>moka</t></is></c></row>'
        b"</sheetData></worksheet>"
    )

    found = found_in(zipped(tmp_path / "a.xlsx", {**BOOK, SHEET: sheet}))

    assert [one.title for one in items(found)] == ["moka"]
