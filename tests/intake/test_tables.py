"""Keyword exports, in the encodings and with the headers that their tools really write."""

from pathlib import Path

import openpyxl
import pytest

from pipeline.intake.found import Item, Named
from tests.intake.scene import addresses, found_in, in_file, items, refused, said, titles, zipped

AHREFS = (
    '"#"\t"Keyword"\t"Country"\t"Difficulty"\t"Volume"\t"CPC"\t"CPS"\t"Parent Keyword"\t"Last Update"\t"SERP Features"'
    '\t"Global volume"\t"Traffic potential"\t"Global traffic potential"\t"First seen"\t"Intents"\t"Languages"\n'
    '"1"\t"cold brew ratio"\t"us"\t"12"\t"8100"\t"0.55"\t"1.1"\t"cold brew"\t"2026-01-02"\t"Sitelinks, Thumbnail"'
    '\t"11000"\t"9,000"\t""\t"2015-09-01"\t"Informational"\t"en"\n'
    '"2"\t"café au lait"\t"us"\t""\t"<10"\t""\t""\t"café"\t""\t""\t""\t""\t""\t""\t""\t""\n'
)
SEMRUSH = (
    "Keyword,Intent,Volume,Trend,Keyword Difficulty,CPC (USD),Competitive Density,SERP Features,Number of Results\n"
    'best espresso,"Commercial, Informational","12,100","0.81,1.00",45,1.25,0.5,"Reviews, Sitelinks",2M\n'
    "espresso ratio,Informational,n/a,,,,,,\n"
)
PLANNER = (
    "Keyword Stats 2026-01-05 at 10_11_12\n1 January 2025 - 31 December 2025\n"
    "Keyword\tCurrency\tAvg. monthly searches\tThree month change\tYoY change\tCompetition\t"
    "Competition (indexed value)\t"
    "Top of page bid (low range)\tSearches: Jan 2025\n"
    "flat white\tGBP\t5000\t0%\t-18%\tLow\t3\t0.41\t4400\n"
    "piccolo\tGBP\t1K – 10K\t∞\t0%\tHigh\t80\t\t\n"
)
FROG = (
    '"Address","Content Type","Status Code","Status","Indexability","Indexability Status","Title 1","Title 1 Length"\n'
    '"https://old.example/","text/html; charset=UTF-8","200","OK","Indexable","","Home","4"\n'
    '"https://old.example/gone/","text/html","404","Not Found","Non-Indexable","Client Error","",""\n'
    '"https://old.example/a.png","image/png","200","OK","Indexable","","",""\n'
    '"https://old.example/%CE%B1/","text/html","200","OK","Indexable","","Alpha","5"\n'
)
QUERIES = "Top queries,Clicks,Impressions,CTR,Position\nespresso machine,10,200,5%,3.4\nmoka pot,0,12,0%,21\n"


def cells(found: list[Item], name: str) -> list[str]:
    return [one.cells[name] for one in found]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8", "utf-8-sig"])
def test_ahrefs(tmp_path: Path, encoding: str) -> None:
    """UTF-16 with tabs, quoted, with and without a mark; older ones UTF-8."""
    found = in_file(tmp_path, "ahrefs.csv", AHREFS.encode(encoding))

    assert titles(found) == ["cold brew ratio", "café au lait"]
    assert refused(found) == []
    first = items(found)[0]
    assert first.keyword == "cold brew ratio"
    assert (first.cells["volume"], first.cells["global_volume"]) == ("8100", "11000")
    assert first.cells["traffic_potential"] == "9000"
    assert cells(items(found), "volume") == ["8100", "<10"]
    assert cells(items(found), "difficulty") == ["12", ""]
    assert first.cells["parent_keyword"] == "cold brew"


def test_semrush(tmp_path: Path) -> None:
    found = items(in_file(tmp_path, "semrush.csv", SEMRUSH))

    assert [one.title for one in found] == ["best espresso", "espresso ratio"]
    assert cells(found, "volume") == ["12100", ""]
    assert found[0].cells["number_of_results"] == "2000000"
    assert found[0].cells["cpc_usd"] == "1.25"
    assert found[0].cells["intent"] == "Commercial, Informational"


def test_semrush_positions_keep_their_column_beside_ours(tmp_path: Path) -> None:
    """A column called as one of a topics file is kept under another name."""
    found = in_file(tmp_path, "positions.csv", "Keyword,Position,Search Volume,URL\nmoka,3,90,https://a.example/x\n")

    assert items(found)[0].cells["source_position"] == "3"


def test_semrush_by_its_interface_has_semicolons(tmp_path: Path) -> None:
    data = "database;Keyword;Search Volume;Keyword Difficulty Index;Intent\nde;röstkaffee;1.900;27,5;1\n"

    (found,) = items(in_file(tmp_path, "api.csv", data))

    assert (found.title, found.cells["search_volume"], found.cells["keyword_difficulty_index"]) == (
        "röstkaffee",
        "1900",
        "27.5",
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_keyword_planner(tmp_path: Path, encoding: str) -> None:
    """Two lines stand before its header, and values may be ranges."""
    found = items(in_file(tmp_path, "planner.csv", PLANNER.encode(encoding)))

    assert [(one.title, one.line) for one in found] == [("flat white", 4), ("piccolo", 5)]
    assert cells(found, "avg_monthly_searches") == ["5000", "1000..10000"]
    assert cells(found, "competition") == ["Low", "High"]
    assert cells(found, "yoy_change") == ["-0.18", "0"]


def test_search_console_is_an_archive(tmp_path: Path) -> None:
    """Its queries become topics, its pages are addresses, its other counts are none of either."""
    path = zipped(
        tmp_path / "console.zip",
        {
            "Queries.csv": QUERIES.encode(),
            "Pages.csv": b"Top pages,Clicks,Impressions,CTR,Position\nhttps://old.example/x/,1,2,50%,1\n",
            "Countries.csv": b"Country,Clicks,Impressions,CTR,Position\nGermany,1,2,50%,1\n",
            "Filters.csv": b"Filter,Value\nDate,Last 3 months\n",
        },
    )
    found = found_in(path)

    assert titles(found) == ["espresso machine", "moka pot"]
    assert cells(items(found), "ctr") == ["0.05", "0"]
    assert addresses(found) == ["https://old.example/x/"]
    assert refused(found) == []


def test_screaming_frog_is_an_inventory(tmp_path: Path) -> None:
    """A crawl tells where pages live; what is no page, or was not there, is left."""
    found = in_file(tmp_path, "internal_all.csv", FROG.encode("utf-8-sig"))

    assert addresses(found) == ["https://old.example/", "https://old.example/%CE%B1/"]
    assert len(said(found)) == 2
    assert items(found) == []


def test_a_workbook(tmp_path: Path) -> None:
    """Each sheet is a table; numbers, dates and gaps are read as they look; a sheet without titles is told of."""
    from datetime import date

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["Keyword", "Volume", "Last Update", "KD", "Note"])
    sheet.append(["cold brew", 8100, date(2026, 1, 2), 12.5, None])
    sheet.append(["café au lait", None, None, 0.1 + 0.2, "two\nlines"])
    other = book.create_sheet("Notes")
    other.append(["a", "b"])
    other.append([1, 2])
    book.save(tmp_path / "book.xlsx")

    found = found_in(tmp_path / "book.xlsx")

    assert titles(found) == ["cold brew", "café au lait"]
    assert cells(items(found), "volume") == ["8100", ""]
    assert cells(items(found), "last_update") == ["2026-01-02", ""]
    assert cells(items(found), "kd") == ["12.5", "0.3"]
    assert items(found)[1].cells["note"] == "two\nlines"
    assert said(found)[0].startswith("left out: no column for titles")


def test_what_is_no_workbook_is_refused(tmp_path: Path) -> None:
    assert "archive" in refused(in_file(tmp_path, "a.xlsx", b"PK\x03\x04 nothing"))[0][1]
    zipped(tmp_path / "b.xlsx", {"x.txt": b""})
    assert "no workbook" in refused(found_in(tmp_path / "b.xlsx"))[0][1]


def test_windows_own_letters_are_read_and_told(tmp_path: Path) -> None:
    found = in_file(tmp_path, "a.csv", "Keyword,CPC\ncafé’s £5 menu,£1.25\n".encode("cp1252"))

    assert titles(found) == ["café’s £5 menu"]
    assert items(found)[0].cells["cpc"] == "1.25"
    assert "Windows-1252" in said(found)[0]


def test_one_broken_letter_refuses_one_row(tmp_path: Path) -> None:
    """Where the rest is UTF-8, the row is at fault and not the file."""
    data = "Keyword\ncafé\nthé\n".encode() + b"caf\xe9\n" + "crème\n".encode()

    found = in_file(tmp_path, "a.csv", data)

    assert titles(found) == ["café", "thé", "crème"]
    assert [line for line, _ in refused(found)] == [4]


def test_odd_rows_are_refused_by_their_lines(tmp_path: Path) -> None:
    """Ragged, empty and controlled ones; a blank line is nothing, and quoted line ends are part of a cell."""
    data = 'Keyword,Note\r\n"a","two\r\nlines"\r\n\r\nb\r\nc,1,2\r\n,x\r\nd\x00,1\r\ne,1,,\r\n'

    found = in_file(tmp_path, "a.csv", data)

    assert titles(found) == ["a", "e"]
    assert items(found)[0].cells["note"] == "two\nlines"
    assert [line for line, _ in refused(found)] == [5, 6, 7, 8]


def test_a_blank_and_a_repeated_column_are_no_trouble(tmp_path: Path) -> None:
    found = in_file(tmp_path, "a.csv", ",Keyword,Volume,Volume\n1,moka,10,20\n")

    assert items(found)[0].cells == {"keyword": "moka", "volume": "10"}
    assert "twice" in said(found)[0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a,b\n1,2\n", "no column for titles"),
        ('Keyword\nfine\n"never closed\n', "quotes"),
        ("Keyword" + ",x" * 600 + "\n", "columns"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_whole(tmp_path: Path, data: str, why: str) -> None:
    found = in_file(tmp_path, "a.csv", data)

    assert why in refused(found)[-1][1]


def test_a_header_alone_is_no_fault(tmp_path: Path) -> None:
    assert in_file(tmp_path, "a.csv", "Keyword,Volume\n") == []


def test_titles_are_where_the_user_says(tmp_path: Path) -> None:
    named = Named(title="place", columns=frozenset({"place"}))

    assert titles(in_file(tmp_path, "a.csv", "id;place\n1;Nara\n", named)) == ["Nara"]
    assert "no column 'place'" in refused(in_file(tmp_path, "a.csv", "id;town\n1;Nara\n", named))[0][1]


def test_a_rule_that_names_no_column_is_told_before_anything_is_taken(tmp_path: Path) -> None:
    """A template's name for it will do."""
    data = "Keyword,Parent Topic\nmoka,coffee\n"

    assert "no column 'parent'" in refused(in_file(tmp_path, "a.csv", data, Named(columns=frozenset({"parent"}))))[0][1]
    assert titles(in_file(tmp_path, "a.csv", data, Named(columns=frozenset({"parent_topic"})))) == ["moka"]


@pytest.mark.parametrize("name", ["Mot-clé", "Từ khóa", "Tư\u0300 kho\u0301a", "KEYWORDS"])
def test_headers_in_other_languages(tmp_path: Path, name: str) -> None:
    assert titles(in_file(tmp_path, "a.csv", f"{name},Volume\nmoka,1\n")) == ["moka"]


def test_numbers_of_columns_that_count_alone_are_rewritten(tmp_path: Path) -> None:
    """An id, a year or a code stays as it is."""
    (found,) = items(in_file(tmp_path, "a.csv", 'name,code,volume\nNara,"1,234","1,234"\n'))

    assert (found.cells["code"], found.cells["volume"]) == ("1,234", "1234")
