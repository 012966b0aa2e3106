"""Workers note themselves for human eyes, and for nothing else."""

import os
import threading
from datetime import timedelta

from pipeline.build import Services, services as build_services
from pipeline.clock import FrozenClock
from pipeline.project.loading import Stages
from pipeline.settings import Settings
from pipeline.stages import Stage
from pipeline.worker import Worker
from tests.factories import Factory

LEASES = {"generate": timedelta(seconds=30), "publish": timedelta(seconds=90)}


def test_a_worker_is_seen_until_it_leaves(services: Services) -> None:
    """With its process, its site and what each renewal gives, by stage."""
    services.roster.see("w", 7, "acme", LEASES)

    (hand,) = services.roster.hands()

    assert (hand.name, hand.pid, hand.site) == ("w", 7, "acme")
    assert hand.leases == {"generate": 30.0, "publish": 90.0}
    assert hand.works_on("acme")
    assert not hand.works_on("other")
    services.roster.leave("w")
    assert services.roster.hands() == ()


def test_seen_again_it_stays_one(engine: object, clock: FrozenClock, services: Services) -> None:
    """Its note is renewed; when it began stays."""
    roster = build_services(services.engine, clock).roster
    roster.see("w", 7, None, LEASES)
    began = roster.hands()[0].started_at
    clock.advance(timedelta(seconds=40))

    assert roster.hands(timedelta(seconds=30)) == ()
    roster.see("w", 7, None, LEASES)

    (hand,) = roster.hands(timedelta(seconds=30))
    assert (hand.started_at, hand.seconds) == (began, 0.0)
    assert hand.works_on("anything")


def test_who_was_not_seen_for_an_hour_is_forgotten(clock: FrozenClock, services: Services) -> None:
    """By whoever notes itself next."""
    roster = build_services(services.engine, clock).roster
    roster.see("dead", 1, None, LEASES)
    clock.advance(timedelta(minutes=59))
    roster.see("other", 2, None, LEASES)
    assert [hand.name for hand in roster.hands()] == ["dead", "other"]
    clock.advance(timedelta(minutes=2))

    roster.see("other", 2, None, LEASES)

    assert [hand.name for hand in roster.hands()] == ["other"]


def test_a_worker_notes_itself_and_takes_the_note_away(
    make: Factory, services: Services, database_url: str, tmp_path: object
) -> None:
    """From its first look on, with the stages that it knows; after an orderly end nothing is left of it."""
    seen: list[tuple[str | None, int, set[str]]] = []
    looked = threading.Event()

    class Watched(Worker):
        def _claim(self) -> bool:
            seen.extend((hand.site, hand.pid, set(hand.leases)) for hand in services.roster.hands())
            self.stop.set()
            looked.set()
            return super()._claim()

    class Generate(Stage):
        pass

    make.site("acme")
    Watched(database_url, Settings(db_schema="pipeline"), tmp_path, Stages({"generate": Generate()}, None)).run()  # type: ignore[arg-type]

    assert looked.is_set()
    assert seen == [(None, os.getpid(), {"generate", "assemble"})]
    assert services.roster.hands() == ()
