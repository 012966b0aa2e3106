"""The topics file: whole or not at all, and every bad line is named."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pipeline.errors import ProjectError
from pipeline.project import topics
from pipeline.project.site import Site
from pipeline.project.topics import load_topics

HEADER = "lane,position,slug,title,type,note\n"


def make_site(folder: Path, file: str = "topics.csv") -> Site:
    paths = {"country": "{lane}/", "city": "{lane}/{slug}/"}
    facts = {"slug": "acme", "folder": folder, "output": folder / "public", "name": "Acme", "paths": paths}
    return Site(**facts, base_url="https://acme.example", topics=file)


@pytest.fixture
def load(tmp_path):
    def load(text: str | bytes, file: str = "topics.csv"):
        raw = text if isinstance(text, bytes) else text.encode()
        (tmp_path / file).write_bytes(raw)
        return load_topics(make_site(tmp_path, file))

    return load


def problems(load, text: str | bytes, file: str = "topics.csv") -> list[str]:
    with pytest.raises(ProjectError) as caught:
        load(text, file)
    return str(caught.value).splitlines()


def test_rows_come_by_lane_and_position_with_the_rest_as_brief(load):
    """Lanes stand in order of first appearance, pages by position; unknown columns are the brief."""
    rows = load(HEADER + "japan,2,kyoto,Kyoto,city,a\nitaly,1,italy,Italy,country,b\njapan,1,japan,Japan,country,c\n")

    assert [(row.lane, row.order, row.path, row.line) for row in rows] == [
        ("japan", 1, "japan/", 4),
        ("japan", 2, "japan/kyoto/", 2),
        ("italy", 1, "italy/", 3),
    ]
    assert rows[1].brief == {"note": "a"}
    assert {row.input_hash for row in rows} == {""}


def test_without_positions_the_file_gives_the_order(load):
    rows = load("lane,slug,title,type\na,x,X,city\nb,y,Y,city\na,z,Z,city\n")

    assert [(row.lane, row.slug, row.order) for row in rows] == [("a", "x", 1), ("a", "z", 2), ("b", "y", 1)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_marks_line_ends_and_blank_lines_change_nothing(load, mark, end):
    text = (HEADER + "\njapan,1,kyoto,Kyōto ☕,city,a\n").replace("\n", end)

    (row,) = load(mark + text.encode())

    assert (row.title, row.line) == ("Kyōto ☕", 3)


def test_tabs_divide_a_tsv(load):
    (row,) = load("lane\tslug\ttitle\ttype\nj\tk\tOne, two\tcity\n", "topics.tsv")

    assert row.title == "One, two"


def test_text_is_composed(load):
    (row,) = load(HEADER + unicodedata.normalize("NFD", "japan,1,kyoto,Kyōto,city,é\n"))

    assert (row.title, row.brief["note"]) == ("Kyōto", "é")


def test_lines_are_counted_through_cells_of_many_lines(load):
    """The line named is that of the file in an editor."""
    text = HEADER + 'j,1,a,A,city,"one\r\ntwo\n\nthree"\nj,2,b,,city,x\n'

    assert problems(load, text)[1:] == ["sites/acme/topics.csv:6: column title: is empty; give the page a title"]


BAD = {
    "title": ("j,1,a,,city,n", "column title: is empty"),
    "title of two lines": ('j,1,a,"A\nB",city,n', "column title: holds a line break"),
    "long title": (f"j,1,a,{'x' * 1001},city,n", "longer than 1000 bytes"),
    "no position": ("j,,a,A,city,n", "column position: is empty"),
    "zero": ("j,0,a,A,city,n", "column position: '0'"),
    "negative": ("j,-1,a,A,city,n", "column position: '-1'"),
    "decimal": ("j,1.0,a,A,city,n", "column position: '1.0'"),
    "word": ("j,one,a,A,city,n", "column position: 'one'"),
    "other digits": ("j,٣,a,A,city,n", "column position: '٣'"),
    "huge position": ("j,99999999999,a,A,city,n", "column position"),
    "no slug": ("j,1,,A,city,n", "column slug: is empty"),
    "upper-case slug": ("j,1,Kyoto,A,city,n", "column slug: 'Kyoto' is no slug"),
    "traversal": ("j,1,../x,A,city,n", "column slug: '../x' is no slug"),
    "underscore": ("j,1,a_b,A,city,n", "column slug: 'a_b' is no slug"),
    "long slug": (f"j,1,{'a' * 201},A,city,n", "longer than 200 bytes"),
    "device": ("j,1,con,A,city,n", "column slug: 'con' is a reserved name"),
    "lane": ("J,1,a,A,city,n", "column lane: 'J' is no slug"),
    "type": ("j,1,a,A,../city,n", "column type: '../city' is no type"),
    "few cells": ("j,1,a,A,city", "5 cells, but the header has 6"),
    "many cells": ("j,1,a,A,city,n,o", "7 cells, but the header has 6"),
    "NUL": ("j,1,a,A,city,x\0y", "column note: holds the control character U+0000"),
    "escape": ("j,1,a,A\x1b[2J,city,x", "column title: holds the control character U+001B"),
    "C1": ("j,1,a,A\x85B,city,x", "column title: holds the control character U+0085"),
    "open quote": ('j,1,a,"A,city,n', "not readable as CSV"),
    "text after a quote": ('j,1,a,"A"x,city,n', "not readable as CSV"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_with_line_fact_and_remedy(load, name):
    row, expected = BAD[name]

    first, problem, *more = problems(load, HEADER + row + "\n")

    assert first == "sites/acme/topics.csv: 1 problem, nothing was imported"
    assert problem.startswith("sites/acme/topics.csv:2: ")
    assert expected in problem
    assert "; " in problem
    assert more == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("j,1,a,A,city,n\nk,1,a,B,city,n", "column slug: 'a' is already on line 2"),
        ("j,1,a,A,city,n\nj,1,b,B,city,n", "column position: 1 in lane 'j' is already on line 2"),
        ("j,1,a,A,country,n\nj,2,b,B,country,n", "column slug: the page would live at 'j/' like that of line 2"),
    ],
)
def test_twins_are_named_with_both_lines(load, rows, expected):
    (_, problem) = problems(load, HEADER + rows + "\n")

    assert problem.startswith("sites/acme/topics.csv:3: " + expected)


def test_bytes_that_are_not_utf_8_are_named_by_line(load):
    raw = HEADER.encode() + b"j,1,a,A,city,n\nj,2,b,caf\xe9,city,n\nj,3,c,\xed\xa0\x80,city,n\n"

    lines = problems(load, raw)

    assert [line.split(": ")[0] for line in lines[1:]] == ["sites/acme/topics.csv:3", "sites/acme/topics.csv:4"]
    assert "not UTF-8" in lines[1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_an_unknown_encoding_is_said(load, encoding):
    assert "save the file as UTF-8" in problems(load, HEADER.encode(encoding))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("lane,slug,title\n", "no column type"),
        ("Lane,Slug,Title,Type\n", "no column lane, slug, title, type (found: 'Lane', 'Slug', 'Title', 'Type')"),
        ("lane;slug;title;type\n", "seem to be divided by ';'"),
        ("lane\tslug\ttitle\ttype\n", "seem to be divided by '\\t'"),
        ("lane,slug,title,type,slug\n", "stands twice"),
        ("lane,slug,title,type,\n", "column 5: the name '' is empty"),
    ],
)
def test_a_header_that_cannot_be_used_is_the_one_problem(load, text, expected):
    assert expected in problems(load, text)[1]


def test_a_header_alone_is_no_topic(load):
    assert load(HEADER) == []


def test_twenty_problems_are_shown_and_the_rest_counted(load):
    lines = problems(load, HEADER + "j,0,a,A,city,n\n" * 33)

    assert len(lines) == 22
    assert lines[0].endswith("33 problems, nothing was imported")
    assert lines[-1] == "and 13 more"


def test_limits_hold_exactly(load, monkeypatch):
    """A cell of the largest size passes, one byte more does not; so for the file."""
    row = HEADER + "j,1,a,A,city,"
    assert len(load(row + "x" * topics.MAX_CELL_BYTES)) == 1
    assert "a cell holds at most 1048576" in problems(load, row + "x" * (topics.MAX_CELL_BYTES + 1))[1]

    monkeypatch.setattr(topics, "MAX_FILE_BYTES", len(row) + 1)
    assert len(load(row + "x")) == 1
    assert "at most" in problems(load, row + "xx")[0]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ProjectError, match=r"sites/acme/topics.csv: No such file .*create it"):
        load_topics(make_site(tmp_path))


def test_messages_hold_no_control_characters(load):
    text = "\n".join(problems(load, HEADER + "j,1,\x1b]0;x\x07,A\x1b[2J,city,n\n"))

    assert not any(ord(sign) < 32 and sign != "\n" for sign in text)


@settings(max_examples=60, deadline=None)
@given(
    raw=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda t: (HEADER + t).encode(errors="replace")))
)
def test_any_bytes_give_rows_or_the_one_error(tmp_path_factory, raw):
    """Nothing but ProjectError ever comes out, and never a part of the rows."""
    folder = tmp_path_factory.mktemp("topics")
    (folder / "topics.csv").write_bytes(raw)
    try:
        rows = load_topics(make_site(folder))
    except ProjectError:
        return
    assert all(row.title and row.slug and row.order > 0 for row in rows)
