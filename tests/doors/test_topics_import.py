"""``pipeline topics import``: what comes in is named, what is there stays, and a run publishes it."""

import csv
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.intake.slugs import slug
from pipeline.project import importing
from pipeline.project.site import load_site
from pipeline.project.texts import text_file
from tests.doors.scene import Door, Said
from tests.intake.scene import real

EMPTY = "lane,position,slug,title,type\n"
KEYS = {
    "site",
    "file",
    "added",
    "texts",
    "unchanged",
    "columns",
    "addresses",
    "refused",
    "left_out",
    "told_apart",
    "note",
    "dry_run",
}
POST = "---\ntitle: {0}\ndate: {1}\n---\nWords of {0}.\n"


def topics(door: Door) -> list[dict[str, str]]:
    with (door.root / "sites/demo/topics.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def empty(door: Door) -> Path:
    """The site without topics, and a folder for what is to be imported."""
    (door.root / "sites/demo/topics.csv").write_text(EMPTY)
    folder = door.root / "in"
    folder.mkdir()
    return folder


def tree(door: Door) -> dict[str, bytes]:
    files = [path for path in (door.root / "sites").rglob("*") if path.is_file()]
    return {path.relative_to(door.root).as_posix(): path.read_bytes() for path in files}


def test_help_opens_with_an_imperative_and_ends_with_an_example(inside: Callable[[str], Said]) -> None:
    said = inside("topics import --help")

    assert said.code == 0
    assert said.out.split("\n\n", 1)[1].split()[0] == "Take"
    assert re.search(r"\n  Example: pipeline topics import .*\n\n(Arguments|Options):", said.out)


def test_rows_come_to_the_end_of_their_lanes_and_once(closed: Door, inside: Callable[[str], Said]) -> None:
    """The file keeps its columns, gets new ones, and a second import changes nothing and says so."""
    folder = empty(closed)
    file = closed.root / "sites/demo/topics.csv"
    file.write_bytes(b'lane,position,slug,title,type,note\r\nasia,4,old,Old,page,"two\r\nlines"')
    rows = 'Nara,Asia,"1,200"\nKyoto,Asia,\nRome,Europe,<10\nNARA,Asia,5\n'
    (folder / "a.csv").write_text(f"name,country,volume\n{rows}")

    said = inside("topics import in/a.csv --site demo --lane country --json")

    assert said.code == 1
    assert set(said.json) == KEYS
    assert [(t["lane"], t["slug"], t["line"]) for t in said.json["added"]] == [
        ("asia", "nara", 2),
        ("asia", "kyoto", 3),
        ("europe", "rome", 4),
    ]
    assert [(one["file"], one["line"]) for one in said.json["refused"]] == [("a.csv", 5)]
    assert said.json["columns"] == ["name", "country", "volume"]
    assert [(t["lane"], t["position"], t["slug"], t["volume"]) for t in topics(closed)] == [
        ("asia", "4", "old", ""),
        ("asia", "5", "nara", "1200"),
        ("asia", "6", "kyoto", ""),
        ("europe", "1", "rome", "<10"),
    ]
    assert topics(closed)[0]["note"] == "two\r\nlines"
    before = tree(closed)

    again = inside("topics import in/a.csv --site demo --lane country")

    assert "nothing changed in sites/demo/topics.csv; 1 refused; 3 there already, just the same" in again.out
    assert "refused  a.csv:5: 'NARA': the same keyword or title as a.csv:2" in again.out
    assert tree(closed) == before


def test_new_columns_are_told_and_can_be_kept_out(closed: Door, inside: Callable[[str], Said]) -> None:
    folder = empty(closed)
    closed.rows("a,1,old,Old,page", header="lane,position,slug,title,type")
    (folder / "a.csv").write_text("Keyword,Volume\nmoka,1\n")

    said = inside("topics import in/a.csv --site demo --dry-run")

    assert "would get new columns: keyword, volume; its 1 topic" in said.err
    assert inside("topics import in/a.csv --site demo --columns none").err.count("columns") == 0
    assert list(topics(closed)[0]) == ["lane", "position", "slug", "title", "type"]
    assert "just the same" in inside("topics import in/a.csv --site demo --columns none").out


def test_a_dry_run_decides_the_same_and_writes_nothing(closed: Door, inside: Callable[[str], Said]) -> None:
    folder = empty(closed)
    (folder / "2014-01-02-a.md").write_text(POST.format("A", "2014-01-02"))
    (folder / "b.md").write_text("---\ntitle: [\n---\n")
    before = tree(closed)

    would = inside("topics import in --site demo --lane date:year --dry-run --json").json

    assert tree(closed) == before
    did = inside("topics import in --site demo --lane date:year --json").json
    assert {**would, "dry_run": False} == did
    assert text_file(load_site(closed.root, "demo"), "a").read_text().endswith("\n+++\n\nWords of A.\n")


def test_texts_that_differ_are_told_and_stay(closed: Door, inside: Callable[[str], Said]) -> None:
    """What people mended here is not written over by its source, nor is a file that nobody imported."""
    folder = empty(closed)
    (folder / "a.md").write_text(POST.format("A", "2014-01-02"))
    (folder / "b.md").write_text(POST.format("B", "2014-01-02"))
    (closed.root / "sites/demo/texts").mkdir()
    (closed.root / "sites/demo/texts/b.md").write_text("Mine.\n")

    said = inside("topics import in --site demo --json").json

    assert [t["slug"] for t in said["added"]] == ["a"]
    assert "texts/b.md is there already" in said["refused"][0]["why"]
    mine = closed.root / "sites/demo/texts/a.md"
    mine.write_text(mine.read_text() + "Mended.\n")
    before = tree(closed)
    again = inside("topics import in --site demo --json").json
    assert (again["added"], again["unchanged"]) == ([], 1)
    assert any("keeps its text" in one["why"] for one in again["note"])
    assert tree(closed) == before


@pytest.mark.parametrize("stop", range(4))
def test_an_import_that_was_killed_is_taken_up_again(
    closed: Door, inside: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """O-66: wherever it stopped, the same command brings in the rest, and nothing twice."""
    folder = empty(closed)
    for name in "abc":
        (folder / f"{name}.md").write_text(POST.format(name, "2014-01-02"))
    replace, done = Path.replace, []

    def killed(self: Path, target: Path) -> Path:
        if len(done) == stop and not self.name.startswith(".topics.csv"[:2]):
            raise KeyboardInterrupt
        done.append(target)
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(importing.shutil, "rmtree", lambda *_, **__: None)  # killed: it cleans nothing
        patch.setattr(Path, "replace", killed)
        inside("topics import in --site demo")
    site = closed.root / "sites/demo"
    said = inside("topics import in --site demo --json").json

    assert said["refused"] == []
    assert [t["slug"] for t in topics(closed)] == ["a", "b", "c"]
    assert sorted(p.name for p in site.iterdir()) == ["site.toml", "texts", "topics.csv"]
    assert inside("topics import in --site demo --json").json["unchanged"] == 3


def test_a_sitemap_keeps_new_topics_from_live_addresses(closed: Door, inside: Callable[[str], Said]) -> None:
    """Its addresses are noted once; neither an import nor a row written by hand may take one."""
    folder = empty(closed)
    closed.rows("a,1,ours,Ours,page", header="lane,position,slug,title,type")
    urls = (
        "https://demo.example/old-page/",
        "https://demo.example/Old-Page",
        "https://demo.example/ours/",
        "https://demo.example/%CE%B1/index.html",
        "https://other.example/x/",
    )
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    (folder / "sitemap.xml").write_text(f"<urlset>{entries}</urlset>")

    said = inside("topics import in --site demo --json")

    assert said.json["addresses"] == {"noted": 2, "known": 2}
    assert "other.example" in said.json["refused"][0]["why"]
    assert (closed.root / "sites/demo/live.txt").read_text().splitlines()[1:] == ["old-page/", "%CE%B1/index.html"]
    assert inside("topics import in --site demo --json").json["addresses"] == {"noted": 0, "known": 4}
    (folder / "sitemap.xml").unlink()
    (folder / "a.csv").write_text("Keyword\nOld page\nNew page\n")
    assert "live already" in inside("topics import in --site demo").out
    assert [t["slug"] for t in topics(closed)] == ["ours", "new-page"]
    refused = inside("topics add demo --lane a --slug old-page --title Old")
    assert refused.code == 2
    assert "live already (sites/demo/live.txt:2)" in refused.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("in/none --site demo", "no such file or folder"),
        ("in --site dem", "did you mean 'demo'"),
        ("in --site demo --lane =Côte", "write =cote"),
        ("in --site demo --type A/B", "a type is"),
    ],
)
def test_mistakes_are_named(closed: Door, inside: Callable[[str], Said], words: str, why: str) -> None:
    empty(closed)

    said = inside(f"topics import {words}")

    assert said.code in (1, 2)
    assert why in said.err


def test_a_run_publishes_what_was_imported(door: Door) -> None:
    """Texts go through without a draft being made, rows as ever, each lane in its order; nothing comes twice."""
    folder = empty(door)
    for number, name in enumerate("cab"):
        (folder / f"{name}.md").write_text(POST.format(f"Page {name}", f"2014-01-0{number + 1}"))
    (folder / "k.csv").write_text("Keyword,lane\nmoka pot,2014\n")
    assert door("topics", "import", "in", "--site", "demo", "--lane", "date:year").code == 1  # the row has no date
    assert door("topics", "import", "in/k.csv", "--site", "demo").code == 0

    said = door("run", "--site", "demo")

    assert said.code == 0, said.err
    pages = {p.parent.name: p.read_text() for p in (door.root / "public/demo").rglob("index.html")}
    assert pages == {
        "a": "Words of Page a.\n",
        "b": "Words of Page b.\n",
        "c": "Words of Page c.\n",
        "moka-pot": "moka pot",
    }
    listed = door("topics", "list", "--site", "demo", "--json").json["topics"]
    assert [(t["slug"], t["position"]) for t in listed] == [("c", 1), ("a", 2), ("b", 3), ("moka-pot", 4)]
    assert door("topics", "import", "in", "--site", "demo", "--lane", "date:year").out.count("nothing changed") == 1
    assert "0 new, 0 changed, 4 unchanged" in door("run", "--site", "demo").out


@pytest.mark.skipif(real("18f-posts") is None, reason="the posts are not here")
def test_a_real_blog(closed: Door, inside: Callable[[str], Said]) -> None:
    """One lane a year in the order of dates; the one file with broken front matter is named."""
    empty(closed)
    words = f"topics import {real('18f-posts')} --site demo --lane date:year --slug name,date"

    said = inside(f"{words} --json")

    assert said.code == 1
    assert [one["file"][:24] for one in said.json["refused"]] == ["2016-05-19-content-debt-"]
    assert said.json["texts"] == 508
    rows = topics(closed)
    assert len(rows) == 508
    assert {row["lane"] for row in rows} == {str(year) for year in range(2014, 2025)}
    before = tree(closed)
    again = inside(f"{words} --json").json
    assert (again["added"], again["unchanged"]) == ([], 508)
    assert tree(closed) == before


@pytest.mark.skipif(real("wordpress-theme-test.wxr.xml") is None, reason="the export is not here")
def test_a_real_export_of_a_blog(closed: Door, inside: Callable[[str], Said]) -> None:
    """Posts and pages come in as readers see them there; Greek names are told, drafts and menus stay out."""
    empty(closed)
    words = f"topics import {real('wordpress-theme-test.wxr.xml')} --site demo --json"

    said = inside(words)

    assert said.code == 0
    assert Counter(row["type"] for row in topics(closed)) == {"post": 55, "page": 21}
    assert {"epipedo-2", "epipedo-3"} <= {row["slug"] for row in topics(closed)}
    assert any("'επίπεδο-2' is written 'epipedo-2'" in one["why"] for one in said.json["note"])
    left = " ".join(one["why"] for one in said.json["left_out"])
    assert all(
        word in left for word in ("is future", "is draft", "password", "37 of type attachment", "70 of type nav")
    )
    assert inside(words).json["unchanged"] == 76
    more = inside(words.replace("--json", "--status publish,draft,future --json")).json
    assert [topic["title"] for topic in more["added"]] == ["Scheduled", "Draft"]


@pytest.mark.skipif(real("world-cities.csv") is None, reason="the cities are not here")
def test_the_cities_of_the_world(closed: Door, inside: Callable[[str], Said]) -> None:
    """All of them, each in its country's lane; who has a name with others is told apart by the rule, and named."""
    empty(closed)
    words = (
        f"topics import {real('world-cities.csv')} --site demo --lane country --slug name,subcountry,geonameid --json"
    )

    said = inside(words)

    assert (said.code, said.json["refused"]) == (0, [])
    rows = topics(closed)
    assert len(rows) == len({row["slug"] for row in rows}) == len({row["title"].casefold() for row in rows}) == 34_032
    assert len({row["lane"] for row in rows}) == 244
    by_name: dict[str, list[str]] = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row["slug"])
    repeated = {name: slugs for name, slugs in by_name.items() if len(slugs) > 1}
    assert len(repeated) == 1307
    assert {slug(name) for name in repeated} <= {one["why"].split("'")[1] for one in said.json["told_apart"]}
    assert not any(slug(name) in slugs for name, slugs in repeated.items())
    before = tree(closed)
    assert inside(words).json["unchanged"] == 34_032
    assert tree(closed) == before
