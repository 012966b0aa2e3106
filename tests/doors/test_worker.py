"""``pipeline worker``: works until it is told to stop; its exit codes are for whoever supervises it."""

import signal

import pytest
from sqlalchemy import Engine, select

from pipeline.build import Services
from pipeline.sql.tables import jobs
from tests.doors.scene import Door, Said
from tests.doors.test_help import IMPERATIVE
from tests.processes.project import until


def planned(door: Door, services: Services) -> None:
    """A site whose passes wait: a run that was stopped at once, after it had planned."""
    door.moods(a1="slow")
    door.env |= {"PIPELINE_GRACE": "0"}
    process = door.start("run", "--site", "demo", "--workers", "1")
    door.wait_until_slow()
    process.send_signal(signal.SIGTERM)
    assert door.end(process).code == 130
    assert not all(topic.state == "done" for topic in services.reading.topics(site_id(services)))


def site_id(services: Services) -> int:
    return next(number for number, slug in services.reading.sites() if slug == "demo")


def live(services: Services) -> int:
    return services.reading.status(site_id(services), "demo").live


@pytest.mark.parametrize(("words", "number"), [((), signal.SIGTERM), (("--site", "demo"), signal.SIGINT)])
def test_it_works_on_and_ends_when_asked(
    door: Door, services: Services, words: tuple[str, ...], number: signal.Signals
) -> None:
    """What somebody planned is published; then it waits for more; asked to stop it ends with 0 and holds nothing."""
    planned(door, services)
    (door.root / "go").touch()
    process = door.start("worker", *words, "--workers", "2")
    until(lambda: live(services) == 6, "all is live")
    assert process.poll() is None

    process.send_signal(number)
    said = door.end(process)

    assert (said.code, said.out) == (0, "")
    assert f"2 processes at work on {'demo' if words else 'all sites'}" in said.err
    assert said.err.endswith("stopped; what was in hand was finished or given back\n")


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(door: Door, services: Services, engine: Engine) -> None:
    """With 130; what it held is taken back by whoever comes next."""
    planned(door, services)
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
