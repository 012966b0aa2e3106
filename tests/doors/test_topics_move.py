"""``pipeline topics move`` and ``add --before``: file and database say the same afterwards, or nothing changed."""

import json
from collections.abc import Callable

import pytest
from sqlalchemy import select

from pipeline.project.editing import moving, moving_to_lane
from pipeline.project.site import load_site
from pipeline.project.topics import load_topics
from pipeline.service.acknowledging import Verb
from pipeline.service.order import StageSpec
from pipeline.sql.tables import topics
from pipeline.states import JobState
from tests.doors.scene import TOML, Door, Said
from tests.factories import Factory

pytestmark = pytest.mark.slow  # real processes, and many of them

Typed = Callable[..., Said]
FILE = "sites/demo/topics.csv"
MOVED = {"site", "topic", "file", "line", "from", "to", "dry_run"}


def planned(door: Door, make: Factory) -> None:
    """The database knows the file as a run would have planned it."""
    site = load_site(door.root, "demo")
    make.site_id = make.services.planning.register(
        site, (StageSpec("write", None, 2), StageSpec("check", None, 5), StageSpec("release", 1, 2))
    )
    make.services.planning.plan(make.site_id, load_topics(site))


def in_file(door: Door, lane: str = "a") -> list[str]:
    return [row.slug for row in load_topics(load_site(door.root, "demo")) if row.lane == lane]


def in_database(make: Factory, lane: str = "a") -> list[str]:
    return [line.slug for line in make.services.reading.topics(make.site_id) if line.lane == lane]


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "lines"])
@pytest.mark.parametrize(
    ("words", "order"),
    [
        (("a3", "--before", "a1"), ["a3", "a1", "a2"]),
        (("a1", "--after", "a3"), ["a2", "a3", "a1"]),
        (("a1", "--before", "a3"), ["a2", "a1", "a3"]),
        (("a3", "--after", "a1"), ["a1", "a3", "a2"]),
    ],
)
def test_both_move_it(
    door: Door, make: Factory, typed: Typed, positions: bool, words: tuple[str, ...], order: list[str]
) -> None:
    """With a column of positions or by the lines alone; a dry run moves neither; doing it again changes nothing."""
    if not positions:
        door.rows(*(f"{t[0]},{t},Title of {t},page" for t in ("a1", "a2", "b1", "a3")), header="lane,slug,title,type")
    planned(door, make)
    slug, *where = words

    dry = typed("topics", "move", f"demo/{slug}", *where, "--dry-run", "--json").json
    assert (set(dry), dry["dry_run"], dry["file"]) == (MOVED, True, FILE)
    assert in_file(door) == in_database(make) == ["a1", "a2", "a3"]

    done = typed("topics", "move", f"demo/{slug}", *where, "--reason", "first things first")
    assert done.code == 0
    assert "was moved: lane a, position" in done.out
    assert "its row was moved in sites/demo/topics.csv, line" in done.out
    assert in_file(door) == in_database(make) == order
    again = typed("topics", "move", f"demo/{slug}", *where)
    assert (again.code, again.out) == (0, f"topic demo/{slug} stands there already; nothing was changed\n")


def test_only_the_cells_that_differ_change(closed: Door) -> None:
    """What a lane has of positions is dealt out, gaps and all; rows of many lines, and the rest, stay byte for byte."""
    path = closed.root / FILE
    rows = ['a,10,a1,A,page,"x\ny"', "b,1,b1,B,page,", "", 'a,20,a2,"A",page,', "a,70,a3,A,page,"]
    path.write_text("\n".join(["lane,position,slug,title,type,mood", *rows]))

    with moving(load_site(closed.root, "demo"), "a3", before="a1") as edited:
        assert (edited.topic.order, path.read_text().count("a,70,a3")) == (10, 1)

    assert path.read_text().split("\n")[1:] == [
        'a,20,a1,A,page,"x', 'y"', "b,1,b1,B,page,", "", "a,70,a2,A,page,", "a,10,a3,A,page,"
    ]  # fmt: skip


@pytest.mark.parametrize("last", ["", "\n"])
def test_lines_move_whole(closed: Door, last: str) -> None:
    """Without positions a row of many lines moves with all of them; the end of the file stays as it was."""
    path = closed.root / FILE
    head, a1, b1, a2 = "lane,slug,title,type,mood", 'a,a1,A,page,"x\ny"', "b,b1,B,page,", "a,a2,A,page,"
    path.write_text("\n".join([head, a1, "", b1, a2]) + last)
    site = load_site(closed.root, "demo")

    with moving(site, "a1", after="a2"):
        pass
    assert path.read_text() == "\n".join([head, "", b1, a2, a1]) + last
    with moving_to_lane(site, "b1", "a"):
        pass
    assert path.read_text() == "\n".join([head, "", a2, a1, "a" + b1[1:]]) + last


def test_what_the_lane_has_passed_does_not_move(door: Door, make: Factory, typed: Typed) -> None:
    """The database refuses; the file stays whole."""
    planned(door, make)
    for stage in ("write", "check", "release"):
        make.say(next(c for c in make.claim(stage, 6) if c.topic is not None and c.topic.slug == "a1"), Verb.ADVANCE)
    before = (door.root / FILE).read_bytes()

    said = typed("topics", "move", "demo/a3", "--before", "a1")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: lane 'a' has released up to position 1 at stage 'release'")
    assert (door.root / FILE).read_bytes() == before


def test_a_refusal_of_the_file_leaves_the_database(door: Door, make: Factory, typed: Typed) -> None:
    """A file with a problem is not touched, and nothing is moved behind its back."""
    planned(door, make)
    with (door.root / FILE).open("a") as file:
        file.write("a,,a9,,page,\n")

    said = typed("topics", "move", "demo/a3", "--before", "a1")

    assert (said.code, said.out) == (2, "")
    assert "column position: is empty" in said.err
    assert in_database(make) == ["a1", "a2", "a3"]


def test_a_late_row_is_moved_to_where_the_file_has_it(door: Door, make: Factory, typed: Typed) -> None:
    """A run put it at the end; the note of the run names this command."""
    planned(door, make)
    door.rows("a,1,a1,A,page,", "a,2,new,A,page,", "a,3,a2,A,page,", "a,4,a3,A,page,")
    make.services.planning.plan(make.site_id, load_topics(load_site(door.root, "demo")))
    before = (door.root / FILE).read_bytes()
    assert in_database(make) == ["a1", "a2", "a3", "new"]

    said = typed("topics", "move", "demo/new", "--before", "a2", "--json").json

    assert (said["file"], said["to"]) == (None, {"lane": "a", "position": 2})
    assert in_database(make) == in_file(door)
    assert (door.root / FILE).read_bytes() == before


def test_to_another_lane(door: Door, make: Factory, typed: Typed) -> None:
    """To its end, in both; also when the file says so already, which a plan alone refuses, naming this command."""
    planned(door, make)

    said = typed("topics", "move", "demo/a1", "--lane", "b")
    assert said.out.startswith("topic demo/a1 was moved: lane a → b, position 1 → 4\n")
    assert (in_file(door, "b"), in_database(make, "b")) == (["b1", "b2", "b3", "a1"], ["b1", "b2", "b3", "a1"])
    again = typed("topics", "move", "demo/a1", "--lane", "b")
    assert (again.code, "is in lane 'b' already; to move it there: --before SLUG" in again.err) == (1, True)

    text = (door.root / FILE).read_text()
    (door.root / FILE).write_text(text.replace("a,2,a2,", "b,9,a2,"))
    refused = door("run", "--site", "demo", "--workers", "1")
    command = "pipeline topics move demo/a2 --lane b"
    assert (refused.code, command in refused.err) == (2, True)
    assert typed(*command.split()[1:], "--json").json["to"] == {"lane": "b", "position": 5}
    assert door("run", "--site", "demo", "--plan").code == 0
    unknown = typed("topics", "move", "demo/a3", "--lane", "c")
    assert (unknown.code, unknown.out, in_file(door)) == (2, "", ["a3"])


def test_a_page_whose_address_names_its_lane_stays(door: Door, make: Factory, typed: Typed) -> None:
    (door.root / "sites/demo/site.toml").write_text(TOML + "[paths]\npage = '{lane}/{slug}/'\n")
    planned(door, make)

    said = typed("topics", "move", "demo/a1", "--lane", "b")

    assert (said.code, said.out) == (1, "")
    assert "the page of 'a1' would move from 'a/a1/' to 'b/a1/', for its address names its lane" in said.err
    assert in_file(door) == in_database(make) == ["a1", "a2", "a3"]


def test_what_was_never_planned_moves_in_the_file_alone(door: Door, make: Factory, typed: Typed) -> None:
    """And is told what a run will make of it; beside it nothing can be placed that is planned."""
    planned(door, make)
    with (door.root / FILE).open("a") as file:
        file.write("a,4,new,New,page,\n")

    said = typed("topics", "move", "demo/new", "--before", "a1")
    beside = typed("topics", "move", "demo/a3", "--after", "new")

    assert said.out == f"its row was moved in {FILE}, line 8: lane a, position 1\n"
    assert "a run puts it at the end of its lane" in said.err
    assert (in_file(door), in_database(make)) == (["new", "a1", "a2", "a3"], ["a1", "a2", "a3"])
    assert (beside.code, "topic 'new' was never planned" in beside.err) == (1, True)


def test_without_a_database_the_file_is_enough(homeless: Door, typed: Typed) -> None:
    assert typed("topics", "move", "demo/a3", "--before", "a1").code == 0
    assert typed("topics", "add", "demo", *NEW, "--before", "a1").code == 0
    assert in_file(homeless) == ["a3", "new", "a1", "a2"]
    assert not (homeless.root / ".pipeline").exists()


NEW = ("--lane", "a", "--slug", "new", "--title", "New")


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "lines"])
def test_a_topic_is_added_in_the_middle(door: Door, make: Factory, positions: bool) -> None:
    """Planned there at once, with the very hash that a run gives it: the next run plans nothing again."""
    if not positions:
        door.rows(*(f"{t[0]},{t},Title of {t},page" for t in ("a1", "a2", "b1", "a3")), header="lane,slug,title,type")
    planned(door, make)
    assert door("run", "--site", "demo", "--plan").code == 0

    dry = door("topics", "add", "demo", *NEW, "--before", "a2", "--dry-run", "--json").json
    assert (dry["dry_run"], dry["position"], dry["planned"]) == (True, 2, {"lane": "a", "position": 2})
    assert in_file(door) == in_database(make) == ["a1", "a2", "a3"]

    said = door("topics", "add", "demo", *NEW, "--before", "a2")
    assert "it was planned at position 2 of its lane, right before a2\n" in said.out
    assert in_file(door) == in_database(make) == ["a1", "new", "a2", "a3"]
    ahead = door("run", "--site", "demo", "--plan", "--json").json["planned"]
    assert (ahead["new"], ahead["appended"]) == (0, [])
    with make.engine.begin() as connection:
        hashes = connection.execute(select(topics.c.input_hash).where(topics.c.slug == "new")).scalar_one()
    assert len(hashes) == 64


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("move", "demo/a1"), 2, "say where to: one of --before SLUG, --after SLUG and --lane LANE"),
        (("move", "demo/a1", "--before", "a2", "--lane", "b"), 2, "say where to: one of"),
        (("move", "demo/a1", "--before", "a1"), 1, "cannot stand before or after itself"),
        (("move", "demo/a1", "--before", "b1"), 1, "topic 'b1' is in lane 'b', not in 'a'"),
        (("move", "demo/a1", "--after", "a22"), 2, "no topic 'a22' in site 'demo'; did you mean 'a2'?"),
        (("move", "demo/zz", "--after", "a2"), 2, "no topic 'zz' in site 'demo'"),
        (("move", "demo/a1", "--lane", "a"), 1, "is in lane 'a' already"),
        (("add", "demo", *NEW, "--before", "b1"), 1, "topic 'b1' is in lane 'b', not in 'a'"),
        (("add", "demo", *NEW, "--before", "zz"), 2, f"no topic 'zz' in {FILE}"),
        (("edit", "demo/a1", "--set", "lane=b"), 2, "pipeline topics move SITE/SLUG --lane LANE"),
    ],
)
def test_a_mistake_leaves_both_alone(
    door: Door, make: Factory, typed: Typed, words: tuple[str, ...], code: int, message: str
) -> None:
    planned(door, make)
    before = (door.root / FILE).read_bytes()

    said = typed("topics", *words)

    assert (said.code, said.out, said.err.count("\n")) == (code, "", 1)
    assert message in said.err
    assert (door.root / FILE).read_bytes() == before
    assert in_database(make) == ["a1", "a2", "a3"]


def test_a_running_topic_is_removed_by_force(door: Door, make: Factory, typed: Typed) -> None:
    """Its pass is taken from its holder, and skipped; its row goes."""
    planned(door, make)
    claim = make.claim("write")[0]

    said = typed("topics", "remove", "demo/a1", "--force", "--json").json

    assert said["job"] == {"job": claim.job_id, "from": "reserved", "to": "skipped", "stage": "write"}
    assert make.state(claim.job_id) is JobState.SKIPPED
    assert make.say(claim).outcomes == {}
    assert in_file(door) == ["a2", "a3"]
    assert json.dumps(said["file"]) == f'"{FILE}"'
