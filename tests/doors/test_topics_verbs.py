"""``pipeline topics add``, ``edit`` and ``remove``: one row of the file changes, and not a byte beside it."""

import re
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pipeline.errors import ProjectError, Refused
from pipeline.project import sheet
from pipeline.project.editing import Edited, adding, changing, taking_out
from pipeline.project.site import Site, load_site
from pipeline.project.topics import load_topics
from pipeline.states import JobState
from tests.doors.scene import HEADER, TOML, Door, Said
from tests.doors.test_terminal import Terminal
from tests.factories import Factory

ADDED = {"site", "topic", "file", "line", "lane", "position", "type", "path", "planned", "dry_run"}
EDITED = {"site", "topic", "file", "line", "columns", "resumed", "dry_run"}
REMOVED = {"site", "topic", "removed", "file", "job", "live"}
FILE = "sites/demo/topics.csv"


def add_topic(site: Site, row: dict[str, str], data: dict[str, str]) -> Edited:
    with adding(site, row, data) as added:
        return added


def edit_topic(site: Site, slug: str, values: dict[str, str]) -> Edited:
    with changing(site, slug, values) as edited:
        return edited


def raw(door: Door, data: bytes, name: str = "topics.csv") -> Path:
    path = door.root / "sites/demo" / name
    path.write_bytes(data)
    return path


def alone(door: Door) -> None:
    """Nothing was left beside the file."""
    assert {p.name for p in (door.root / "sites/demo").iterdir()} <= {"site.toml", "topics.csv", "topics.tsv"}


@pytest.mark.parametrize("verb", ["add", "edit", "remove"])
def test_help_opens_with_an_imperative_and_ends_with_an_example(inside: Callable[[str], Said], verb: str) -> None:
    said = inside(f"topics {verb} --help")

    assert said.code == 0
    assert said.out.split("\n\n", 1)[1].split()[0] in {"Put", "Change", "Take"}
    assert re.search(r"\n  Example: pipeline topics .*\n\n(Arguments|Options):", said.out)


# Add.


def test_a_topic_is_added_at_the_end_of_its_lane(closed: Door, typed: Callable[..., Said]) -> None:
    """Position and type follow the lane's last; what publishes it is told. No database is asked."""
    closed.rows("a,1,a1,One,city,", "a,4,a4,Four,country,", "b,1,b1,One,city,")
    before = (closed.root / FILE).read_bytes()

    said = typed(
        *("topics", "add", "demo", "--lane", "a", "--slug", "a5", "--title", 'Five, "the" last'),
        *("--data", "mood=a=b", "--json"),
    )

    assert set(said.json) == ADDED
    assert said.json == {
        "site": "demo", "topic": "a5", "file": FILE, "line": 5, "lane": "a", "position": 5, "type": "country",
        "path": "a5/", "planned": None, "dry_run": False,
    }  # fmt: skip
    assert said.err == "it is published by: pipeline run --site demo\n"
    assert (closed.root / FILE).read_bytes() == before + b'a,5,a5,"Five, ""the"" last",country,a=b\n'
    alone(closed)
    text = typed("topics", "add", "demo", "--lane", "c", "--slug", "c1", "--title", "T").out
    assert text == f"topic demo/c1 was added to {FILE}, line 6: lane c, position 1, type page\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "open"])
def test_the_rest_of_the_file_stays_as_it_is(closed: Door, mark: bytes, end: bytes, last: bool) -> None:
    """Mark, line ends, blank lines, needless quotes, cells of many lines."""
    head = mark + end.join(
        [b"slug,lane,title,type,note", b"", b'"a1","a",A,page,"x', b'y"', b"a2,a,Ky\xc5\x8dto,page,"]
    )
    path = raw(closed, head + (end if last else b""))
    site = load_site(closed.root, "demo")

    assert add_topic(site, {"lane": "a", "slug": "a3", "title": "C"}, {"note": "n"}).topic.line == 6
    after = head + end + b"a3,a,C,page,n" + end
    assert path.read_bytes() == after

    assert edit_topic(site, "a1", {"title": "B", "note": "x"}).columns == ("title", "note")
    after = after.replace(b'"a1","a",A,page,"x' + end + b'y"' + end, b"a1,a,B,page,x" + end)
    assert path.read_bytes() == after

    with taking_out(site, "a2") as taken:
        assert taken is not None
        assert path.read_bytes() == after
    assert path.read_bytes() == after.replace(b"a2,a,Ky\xc5\x8dto,page," + end, b"")
    alone(closed)


def test_a_last_line_without_end_keeps_none_when_it_is_edited(closed: Door) -> None:
    path = raw(closed, b"lane,slug,title,type\na,a1,A,page")

    edit_topic(load_site(closed.root, "demo"), "a1", {"title": "B"})

    assert path.read_bytes() == b"lane,slug,title,type\na,a1,B,page"


def test_tabs_divide_a_tsv(closed: Door) -> None:
    (closed.root / "sites/demo/site.toml").write_text(TOML + 'topics = "topics.tsv"\n')
    path = raw(closed, b"lane\tslug\ttitle\ttype\n", "topics.tsv")

    add_topic(load_site(closed.root, "demo"), {"lane": "a", "slug": "a1", "title": "One, two", "type": "city"}, {})

    assert path.read_bytes() == b"lane\tslug\ttitle\ttype\na\ta1\tOne, two\tcity\n"


def test_mode_and_link_stay(closed: Door) -> None:
    """What a link leads to is changed, and who may read it still may."""
    real = closed.root / "real.csv"
    path = closed.root / FILE
    path.rename(real)
    real.chmod(0o640)
    path.symlink_to(real)

    edit_topic(load_site(closed.root, "demo"), "a1", {"title": "B"})

    assert path.is_symlink()
    assert (real.stat().st_mode & 0o777, load_topics(load_site(closed.root, "demo"))[0].title) == (0o640, "B")


def test_a_file_that_somebody_saved_meanwhile_is_kept(closed: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor knows no locks: what it wrote while we worked is not written over."""
    path = closed.root / FILE
    load = sheet.load_topics

    def saves_meanwhile(site: object, file: Path | None = None) -> object:
        if file is not None:
            path.write_text(HEADER + "\n")
        return load(site, file)  # type: ignore[arg-type]

    monkeypatch.setattr(sheet, "load_topics", saves_meanwhile)
    with pytest.raises(Refused, match="was changed by somebody else just now; try again"):
        add_topic(load_site(closed.root, "demo"), {"lane": "a", "slug": "x", "title": "X"}, {})

    assert path.read_text() == HEADER + "\n"
    alone(closed)


def test_two_who_add_at_once_both_stay(closed: Door) -> None:
    """Each waits for the other's rename, and reads what that left."""
    site = load_site(closed.root, "demo")
    new = [f"new-{n}" for n in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda slug: add_topic(site, {"lane": "a", "slug": slug, "title": slug}, {}), new))

    rows = load_topics(site)

    assert {row.slug for row in rows} == {"a1", "a2", "a3", "b1", "b2", "b3", *new}
    assert [row.order for row in rows if row.lane == "a"] == list(range(1, 20))
    alone(closed)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(max_size=30), title=st.text(max_size=20))
def test_any_value_is_read_as_it_was_written_or_refused(closed: Door, value: str, title: str) -> None:
    """Quotes, commas, line ends and all; the other rows are the same bytes."""
    closed.rows("a,1,a1,One,page,", "a,2,a2,Two,page,")
    site = load_site(closed.root, "demo")
    first = (closed.root / FILE).read_bytes().splitlines(keepends=True)[:2]
    try:
        edited = edit_topic(site, "a2", {"mood": value, "title": title})
    except ProjectError:
        edited = None

    _, row = load_topics(site)

    assert (closed.root / FILE).read_bytes().splitlines(keepends=True)[:2] == first
    if edited is None:
        assert (row.title, row.brief) == ("Two", {"mood": ""})
    else:
        text = unicodedata.normalize("NFC", value.replace("\r\n", "\n").replace("\r", "\n")).strip()
        assert row.brief == {"mood": text}


ADD = ("topics", "add", "demo", "--lane", "a", "--slug", "new", "--title", "T")


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        ((*ADD[:6], "a1", *ADD[7:]), 1, ("topic 'a1' is already on line 2", "topics edit demo/a1 --set COLUMN=VALUE")),
        ((*ADD, "--data", "mod=x"), 2, ("has no column 'mod' to set; did you mean 'mood'?",)),
        ((*ADD, "--data", "zzz=x"), 2, ("has no column 'zzz' to set; there is: mood",)),
        ((*ADD, "--data", "title=x"), 2, ("column title is not set so",)),
        ((*ADD, "--data", "mood"), 2, ("--data 'mood': write COLUMN=VALUE",)),
        ((*ADD, "--data", "mood=1", "--data", "mood=2"), 2, ("column 'mood' is named twice",)),
        ((*ADD[:8], "\x1b[2J"), 2, ("nothing was written", "topics.csv:8: column title: holds the control character")),
        ((*ADD[:6], "A B", *ADD[7:]), 2, ("column slug: 'A B' is no slug",)),
        ((*ADD, "--type", "../x"), 2, ("column type: '../x' is no type",)),
        (("topics", "add", "dema", *ADD[3:]), 2, ("no site 'dema'", "did you mean 'demo'?")),
        (("topics", "add", "demo"), 2, ("missing option '--lane'",)),
        (("topics", "edit", "demo/a11", "--set", "title=x"), 2, (f"no topic 'a11' in {FILE}; did you mean 'a1'?",)),
        (("topics", "edit", "demo", "--set", "title=x"), 2, ("write SITE/SLUG",)),
        (("topics", "edit", "demo/a1", "--set", "slug=x"), 2, ("column slug cannot be changed", "remove it")),
        (("topics", "edit", "demo/a1", "--set", "lane=b"), 2, ("column lane cannot be changed",)),
        (("topics", "edit", "demo/a1", "--set", "titel=x"), 2, ("no column 'titel' to set; did you mean 'title'?",)),
        (("topics", "edit", "demo/a1", "--set", "title="), 2, ("nothing was written", "column title: is empty")),
        (("topics", "edit", "demo/a1", "--set", "position=2"), 2, ("2 in lane 'a' is already on line",)),
        (("topics", "edit", "demo/a1"), 2, ("say what to change: either --set COLUMN=VALUE, or --draft",)),
        (("topics", "edit", "demo/a1", "--set", "mood=x", "--draft"), 2, ("either --set COLUMN=VALUE, or --draft",)),
        (("topics", "edit", "demo/a1", "--set", "mood=x", "--from", "x.md"), 2, ("add --draft",)),
        (("topics", "edit", "demo/a1", "--draft", "--dry-run"), 2, ("give the draft with --from FILE",)),
    ],
)
def test_a_mistake_leaves_the_file_alone(
    closed: Door, typed: Callable[..., Said], words: tuple[str, ...], code: int, parts: tuple[str, ...]
) -> None:
    """The loader's checks run on what would be the file, before it is."""
    before = (closed.root / FILE).read_bytes()

    said = typed(*words)

    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")
    for part in parts:
        assert part in said.err
    assert (closed.root / FILE).read_bytes() == before
    alone(closed)


def test_a_broken_file_is_not_touched(closed: Door, typed: Callable[..., Said]) -> None:
    """Its own problems are named first."""
    path = raw(closed, b"lane,slug,title,type\na,a1,,page\n")

    said = typed(*ADD)

    assert (said.code, said.out) == (2, "")
    assert "topics.csv:2: column title: is empty" in said.err
    assert path.read_bytes() == b"lane,slug,title,type\na,a1,,page\n"


# Edit.


def test_a_row_is_edited(closed: Door, typed: Callable[..., Said]) -> None:
    """What differs is told, and what makes the page anew; the same again changes nothing."""
    words = ("topics", "edit", "demo/a2", "--set", "title=Two, too", "--set", "mood=x=y", "--set", "position=9")

    said = typed(*words, "--json")
    again = typed(*words)

    assert set(said.json) == EDITED
    assert said.json["columns"] == ["position", "title", "mood"]
    assert "keeps its place" in said.err
    assert "pipeline run --site demo" in said.err
    assert 'a,9,a2,"Two, too",page,x=y\n' in (closed.root / FILE).read_text()
    assert (again.code, again.out, again.err) == (0, "topic demo/a2 says so already; nothing was changed\n", "")


def test_an_edit_does_not_move_a_page(closed: Door, typed: Callable[..., Said]) -> None:
    """A type whose pages live elsewhere is another topic."""
    (closed.root / "sites/demo/site.toml").write_text(TOML + "[paths]\ncountry = '{lane}/'\n")

    said = typed("topics", "edit", "demo/a1", "--set", "type=country")

    assert said.code == 2
    assert "the page of 'a1' would move from 'a1/' to 'a/', and a page cannot move" in said.err


# Remove.


def planned(door: Door, make: Factory) -> list[int]:
    """The database knows lane ``a`` of the file."""
    make.site("demo")
    rows = [make.row("a", n, slug=f"a{n}") for n in (1, 2, 3)]
    make.services.planning.plan(make.site_id, rows)
    return make.job_ids("a")


def test_a_topic_is_removed_with_its_pass(door: Door, make: Factory, typed: Callable[..., Said]) -> None:
    """Its row goes, its unfinished pass is skipped, and its lane goes on; --dry-run only tells."""
    first, second, _ = planned(door, make)
    before = (door.root / FILE).read_text()

    dry = typed("topics", "remove", "demo/a1", "--dry-run", "--json").json
    assert set(dry) == REMOVED
    assert dry["job"] == {"job": first, "from": "pending", "to": "skipped", "stage": "generate"}
    assert (dry["removed"], dry["file"], dry["live"]) == (False, FILE, [])
    assert (door.root / FILE).read_text() == before
    assert make.state(first) is JobState.PENDING

    said = typed("topics", "remove", "demo/a1", "--reason", "no longer ours", "--yes")
    assert said.out.splitlines() == [
        f"topic demo/a1 was taken out of {FILE}",
        f"job {first} was given up: pending → skipped at generate",
    ]
    assert (door.root / FILE).read_text() == before.replace("a,1,a1,Title of a1,page,\n", "")
    assert make.state(first) is JobState.SKIPPED
    again = typed("topics", "remove", "demo/a1", "--yes")
    assert (again.code, again.err) == (
        1, "error: topic 'demo/a1' is out of the file already, and nothing of it is unfinished\n"
    )  # fmt: skip

    door.rows()
    out_of_file = typed("topics", "remove", "demo/a2", "--yes", "--json").json
    assert (out_of_file["file"], out_of_file["job"]["job"]) == (None, second)


def test_on_a_terminal_it_asks_first(door: Door, make: Factory) -> None:
    """No changes nothing, neither the file nor the pass."""
    (first, *_) = planned(door, make)
    before = (door.root / FILE).read_text()
    for answer, code in (("n\n", 1), ("y\n", 0)):
        terminal = Terminal(door, ("topics", "remove", "demo/a1"))
        terminal.until("[y/N]")
        terminal.type(answer)
        assert terminal.end() == code, terminal.seen
        assert make.state(first) == ("pending" if code else "skipped")
        assert ((door.root / FILE).read_text() == before) == bool(code)


def test_a_topic_that_runs_is_not_removed(door: Door, make: Factory, typed: Callable[..., Said]) -> None:
    """The holder and what stops it are named; the file stays whole."""
    (first, *_) = planned(door, make)
    make.claim("generate")
    before = (door.root / FILE).read_text()

    said = typed("topics", "remove", "demo/a1", "--yes")

    assert (said.code, said.out) == (1, "")
    assert said.err == (
        f"error: topic 'demo/a1' is running: job {first} at generate, held by test-worker;"
        f" stop it first: pipeline jobs cancel {first}, or take it from its holder: --force\n"
    )
    assert (door.root / FILE).read_text() == before


def test_a_refusal_of_the_database_leaves_the_row(door: Door, make: Factory) -> None:
    """The row goes only after the pass: whatever happens in between leaves both."""
    planned(door, make)
    before = (door.root / FILE).read_text()
    site = load_site(door.root, "demo")

    with pytest.raises(Refused), taking_out(site, "a1"):
        raise Refused("taken meanwhile")

    assert (door.root / FILE).read_text() == before
    alone(door)


@pytest.mark.slow
def test_a_live_page_stays_live_and_that_is_told(door: Door) -> None:
    """Removing is not unpublishing."""
    door.rows("a,1,a1,Title,page,")
    assert door("run", "--site", "demo", "--workers", "1").code == 0

    said = door("topics", "remove", "demo/a1", "--json")

    assert said.json["live"] == ["a1/"]
    assert said.json["job"] is None
    assert said.err == "its page stays live at a1/\n"
    assert (door.root / "public/demo/a1/index.html").exists()
    assert "the file no longer names a1; they stay as they are" in door("run", "--site", "demo", "--workers", "1").out


def test_without_a_database_the_file_is_enough(homeless: Door, typed: Callable[..., Said]) -> None:
    """Nobody starts a server to find no pass."""
    said = typed("topics", "remove", "demo/a1", "--yes")

    assert (said.code, said.out) == (0, f"topic demo/a1 was taken out of {FILE}\n")
    assert not (homeless.root / ".pipeline").exists()


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("demo/a11", 2, "no topic 'a11' in site 'demo'; did you mean 'a1'?"),
        ("demo/\x1b[2J", 2, r"no topic '\x1b[2J' in site 'demo'"),
        ("dema/a1", 2, "no site 'dema'"),
        ("demo", 2, "write SITE/SLUG"),
    ],
)
def test_what_is_not_there_cannot_be_removed(
    door: Door, typed: Callable[..., Said], word: str, code: int, message: str
) -> None:
    said = typed("topics", "remove", word, "--yes")

    assert (said.code, said.out) == (code, "")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_database_that_is_away_leaves_the_row(closed: Door, typed: Callable[..., Said]) -> None:
    """Whether a pass is unfinished cannot be known then."""
    before = (closed.root / FILE).read_text()

    said = typed("topics", "remove", "demo/a1", "--yes")

    assert said.code == 3
    assert (closed.root / FILE).read_text() == before
