"""Idle workers are told of new work, and nothing depends on it."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

import pipeline
from pipeline import Done, Stage, Topic, worker
from pipeline.bell import Bell
from pipeline.build import Services, services as build_services
from pipeline.db import make_engine
from pipeline.project.loading import Stages
from pipeline.service.operate import Filter
from pipeline.settings import Settings
from pipeline.views import TopicView
from tests.conftest import SCHEMA
from tests.factories import Factory
from tests.processes.project import until

NEVER = timedelta(hours=1)


@pytest.fixture
def bell() -> Iterator[Bell]:
    bell = Bell()
    yield bell
    bell.close()


@pytest.fixture
def teller(database_url: str) -> Iterator[Services]:
    """Services that tell of what they write."""
    engine = make_engine(database_url, schema=SCHEMA, connections=1, name="teller", wakes=True)
    yield build_services(engine)
    engine.dispose()


@pytest.fixture
def listener(database_url: str, bell: Bell) -> Iterator[Engine]:
    engine = make_engine(database_url, schema=SCHEMA, connections=1, name="listener", listen=bell.hear)
    engine.connect().close()
    yield engine
    engine.dispose()


def test_a_ring_from_another_thread_ends_the_wait(bell: Bell, listener: Engine) -> None:
    """What has ended is looked at at once."""
    threading.Timer(0.01, bell.ring).start()

    bell.wait(60, listener)

    assert not bell.told


def test_a_ring_before_the_wait_is_not_missed(bell: Bell) -> None:
    """However often it was rung, the next wait ends at once."""
    for _ in range(1000):
        bell.ring()

    bell.wait(60)


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_verb_of_people_is_told_once_it_is_committed(
    verb: str, make: Factory, teller: Services, listener: Engine, bell: Bell
) -> None:
    """Whoever waits hears of it, and then it is there."""
    make.site()
    if verb == "resume":
        make.services.sites.pause(make.site_id, actor="a", reason="")

    getattr(teller.sites, verb)(make.site_id, actor="a", reason="")
    bell.wait(60, listener)

    assert bell.told


def test_what_is_told_in_the_middle_of_a_question_is_heard(teller: Services, listener: Engine, bell: Bell) -> None:
    """The driver takes it from the wire together with the answer."""
    teller.work.wake()

    with listener.connect() as connection:
        connection.exec_driver_sql("SELECT 1")

    assert bell.told


def test_one_is_not_woken_by_oneself(database_url: str, bell: Bell) -> None:
    """A worker that passes work on does not look for it again."""
    engine = make_engine(database_url, schema=SCHEMA, connections=1, name="both", wakes=True, listen=bell.hear)

    build_services(engine).work.wake()
    bell.wait(0.01, engine)

    engine.dispose()
    assert not bell.told


def test_nothing_is_told_of_what_was_only_tried(make: Factory, teller: Services, listener: Engine, bell: Bell) -> None:
    """A dry run wakes nobody, and neither does a verb that found nothing."""
    make.plan()

    teller.sites.pause(make.site_id, actor="a", reason="", dry_run=True)
    teller.operate.approve(Filter(make.site_id), actor="a", reason="")
    bell.wait(0.01, listener)

    assert not bell.told


def test_a_plan_in_a_callers_transaction_names_the_place_once_it_is_committed(
    make: Factory, engine: Engine, listener: Engine, bell: Bell
) -> None:
    """However many topics and calls: one word, with the commit, and nobody need look where."""
    make.site()
    with engine.begin() as connection:
        for n in range(2):
            pipeline.plan(connection, "acme", [Topic("lane", f"t-{n}-{k}", "T", "page") for k in range(3)], wake=True)
        bell.wait(0.01, listener)
        before = set(bell.named)

    bell.wait(60, listener)

    assert before == set()
    assert bell.named == {(make.site_id, "generate", 2)}
    assert not bell.told


@pytest.mark.parametrize("why", ["rolled back", "unasked", "paused"])
def test_a_callers_plan_that_is_no_work_wakes_nobody(
    why: str, make: Factory, engine: Engine, listener: Engine, bell: Bell
) -> None:
    """Neither one that is taken back, nor one that did not ask for it, nor one that waits."""
    make.plan(lane="lane")
    if why == "paused":
        make.services.lanes.pause(make.site_id, "lane", actor="a")
    with engine.connect() as connection:
        pipeline.plan(connection, "acme", [Topic("lane", "t", "T", "page")], wake=why != "unasked")
        (connection.rollback if why == "rolled back" else connection.commit)()

    bell.wait(0.01, listener)

    assert (bell.told, bell.named) == (False, set())


@pytest.mark.parametrize("word", ["", "1", "one generate 2", "1 generate two"])
def test_a_word_that_names_no_place_is_about_all(word: str, engine: Engine, listener: Engine, bell: Bell) -> None:
    """Whoever else speaks on the channel can but make one look."""
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT pg_notify(%(channel)s, %(word)s)", {"channel": SCHEMA, "word": word})

    bell.wait(60, listener)

    assert (bell.told, bell.named) == (True, set())


class Noop(Stage):
    def run(self, topic: TopicView, ctx: Any) -> Done:
        return Done()


@pytest.mark.parametrize("door", ["file", "caller"])
def test_an_idle_worker_takes_up_what_it_is_told_of(
    door: str, make: Factory, teller: Services, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither polls nor looks again in this test: it has work by the word alone."""
    monkeypatch.setattr(worker, "LOOK_AGAIN", 3600.0)
    make.site()
    folder = tmp_path / "sites" / "acme"
    folder.mkdir(parents=True)
    folder.joinpath("site.toml").write_text('name = "acme"\nbase_url = "https://acme.example.com"\n')
    settings = Settings(poll=NEVER, reap=NEVER)
    idle = worker.Worker(database_url, settings, tmp_path, Stages({"generate": Noop()}, None), site="acme")
    thread = threading.Thread(target=idle.run)
    thread.start()
    until(lambda: idle._idle > 0.1, "it has looked, and waits")

    if door == "file":
        teller.planning.plan(make.site_id, [make.row("lane", 1)])
    else:
        with make.engine.begin() as connection:
            pipeline.plan(connection, "acme", [Topic("lane", "lane-1", "One", "page")], wake=True)

    until(lambda: idle.finished == 1, "it has done it")
    idle.stop.set()
    idle._bell.ring()
    thread.join()
