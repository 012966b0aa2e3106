"""``pipeline worker``: works until it is told to stop; its exit codes are for whoever supervises it."""

import signal

import pytest
from sqlalchemy import Engine, select

from pipeline.sql.tables import jobs
from tests.doors.scene import Door, Said
from tests.doors.test_help import IMPERATIVE
from tests.doors.test_stages import MINE
from tests.factories import Factory
from tests.processes.project import until


def planned(make: Factory, mood: str = "") -> None:
    """Two lanes of three topics of the project's site, planned by somebody else."""
    make.site("demo", MINE)
    rows = [make.row(lane, n) for lane in "ab" for n in (1, 2, 3)]
    rows[0] = make.row("a", 1, brief={"mood": mood})
    make.services.planning.plan(make.site_id, rows)


def live(make: Factory) -> int:
    return make.services.reading.status(make.site_id, "demo").live


@pytest.mark.parametrize(("words", "number"), [((), signal.SIGTERM), (("--site", "demo"), signal.SIGINT)])
def test_it_works_on_and_ends_when_asked(
    door: Door, make: Factory, words: tuple[str, ...], number: signal.Signals
) -> None:
    """What somebody planned is published; then it waits for more; asked to stop it ends with 0 and holds nothing."""
    planned(make)
    process = door.start("worker", *words, "--workers", "2")
    until(lambda: live(make) == 6, "all is live")
    assert process.poll() is None

    process.send_signal(number)
    said = door.end(process)

    assert (said.code, said.out) == (0, "")
    assert f"2 processes at work on {'demo' if words else 'all sites'}" in said.err
    assert said.err.endswith("stopped; what was in hand was finished or given back\n")


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(door: Door, make: Factory, engine: Engine) -> None:
    """With 130; what it held is taken back by whoever comes next."""
    planned(make, "slow")
    (door.root / "running").unlink()
    (door.root / "running").touch()
    process = door.start("worker", "--workers", "1", env={"PIPELINE_GRACE": "60"})
    reserved = select(jobs.c.id).where(jobs.c.state == "reserved")

    def held() -> bool:
        with engine.begin() as connection:
            return connection.execute(reserved).first() is not None

    until(held, "it holds something")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    seen = ""
    while "again to stop at once" not in seen:
        seen += process.stderr.readline()
    process.send_signal(signal.SIGTERM)

    said = door.end(process)

    assert said.code == 130
    assert "interrupted at once" in said.err
    (door.root / "go").touch()
    assert door("run", "--site", "demo", "--workers", "1").code == 0


def refused(said: Said, code: int, part: str) -> None:
    assert (said.code, said.out) == (code, ""), said
    assert part in said.err
    assert said.err.count("\n") == 1


def test_what_it_refuses(closed: Door) -> None:
    """A wrong project is 2, a database that is away 3: before any process is started."""
    refused(closed("worker", "--site", "dema"), 2, "did you mean 'demo'?")
    refused(closed("worker"), 3, "the database cannot be reached")
    refused(closed("worker", "--workers", "0"), 2, "--workers")
    closed.stages("PIPELINE = ()")
    refused(closed("worker"), 2, "stages:PIPELINE is empty")


def test_it_lays_no_schema(fresh: Door) -> None:
    """That is its owner's decision."""
    refused(fresh("worker"), 3, "run: pipeline db upgrade")


def test_it_starts_no_server_to_find_nothing(homeless: Door) -> None:
    """Without a database, and nothing planned."""
    refused(homeless("worker"), 1, "nothing here yet; run: pipeline run --site demo")


def test_its_help_has_our_form(closed: Door) -> None:
    """An imperative first, an example last."""
    said = closed("worker", "--help")

    usage, text = said.out.split("\n\n", 1)
    assert usage.startswith("Usage: pipeline worker")
    assert text.split()[0] in IMPERATIVE | {"Work"}
    assert "Example: pipeline worker --workers 4" in text
