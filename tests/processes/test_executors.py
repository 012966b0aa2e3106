"""Whatever happens around a stage: each claim that began comes back as one acknowledgement."""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from pipeline import Done, Stage
from pipeline.executors import Executors
from pipeline.holding import Holding, now
from pipeline.project.loading import Stages
from pipeline.project.site import Site
from pipeline.runner import Colour, Runner
from pipeline.service.acknowledging import Ack, Verb
from pipeline.settings import Settings
from pipeline.states import ASSEMBLE
from pipeline.views import Claim, TopicView
from pipeline.worker import Worker

TOPIC = TopicView(1, "acme", "lane", "slug", "Title", "page", "lane/slug/", 1, {})
SITE = Site(slug="acme", folder=Path("."), output=Path("."), name="acme", base_url="https://example.com")


def holding(stage: str, fence: int = 1) -> Holding:
    topic = None if stage == ASSEMBLE else TOPIC
    claim = Claim(fence, "acme", 1, stage, uuid4(), fence, 1, 5, False, timedelta(seconds=30), topic)
    return Holding(claim, now() + 27, SITE)


class Away:
    """Services whose database is away."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError("the database is away")


class Quick(Stage):
    async def run(self, topic: TopicView, ctx: Any) -> Done:
        return Done()


class Slow(Stage):
    async def run(self, topic: TopicView, ctx: Any) -> Done:
        import asyncio

        await asyncio.sleep(600)
        return Done()


class Blocks(Stage):
    entered = threading.Event()
    leave = threading.Event()

    async def run(self, topic: TopicView, ctx: Any) -> Done:
        self.entered.set()
        self.leave.wait(20)
        return Done()


class Nested(Stage):
    async def run(self, topic: TopicView, ctx: Any) -> Done:
        import asyncio

        async def leaves() -> None:
            raise SystemExit("from a task of its own")

        task = asyncio.create_task(leaves())
        await asyncio.wait([task])
        assert isinstance(task.exception(), SystemExit)
        return Done()


class Scene:
    """Executors over stages, and what comes back from them."""

    def __init__(self, root: Path) -> None:
        stages = {type(s).__name__.lower(): s for s in (Quick(), Slow(), Blocks(), Nested())}
        runner = Runner(cast(Any, Services()), Stages(dict(stages), None))
        self.came: queue.Queue[tuple[Holding, Ack]] = queue.Queue()
        self.executors = Executors(runner, root, 4, lambda h, ack: self.came.put((h, ack)))

    def start(self, stage: str, fence: int = 1) -> Holding:
        held = holding(stage, fence)
        self.executors.start(held)
        return held

    def ack(self) -> Ack:
        return self.came.get(timeout=20)[1]


class Services:
    """Only what building a context needs; every question fails."""

    ledger = reading = Away()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.executors.close()


def test_a_failure_around_a_stage_is_its_failure(scene: Scene) -> None:
    """The database is away when an assembly begins: it is tried again, not held for ever by a heartbeat."""
    scene.start(ASSEMBLE)

    ack = scene.ack()

    assert (ack.verb, ack.error_class) == (Verb.RETRY, "ConnectionError")


def test_what_has_not_begun_when_the_worker_stops_does_not_begin(scene: Scene) -> None:
    """Told to stop before a thread was free."""
    held = holding(ASSEMBLE)
    held.stop = True

    scene.executors.start(held)
    scene.start("quick", 2)

    assert scene.ack().claim.fence == 2
    assert not held.started


def test_what_lay_until_its_lease_ran_out_does_not_begin(scene: Scene) -> None:
    """Another may have it by now; it comes back, so that the worker lets go of it."""
    begun: list[Holding] = []
    scene.executors._runner.run = lambda h: begun.append(h)  # type: ignore[method-assign,assign,return-value]
    held = holding(ASSEMBLE)
    held.until = now() - 1

    scene.executors.start(held)

    assert scene.ack().verb is Verb.RELEASE
    assert begun == []


def test_a_lost_lease_cancels_a_task(scene: Scene) -> None:
    """It ends by itself, and says that its reservation is gone."""
    held = scene.start("slow")
    held.lost = True

    assert scene.ack().verb is Verb.RELEASE


def test_a_task_that_blocks_does_not_hold_up_the_end(scene: Scene) -> None:
    """The worker waits a moment for tasks to clean up, not for one that blocks the loop."""
    held = scene.start("blocks")
    assert Blocks.entered.wait(20)
    held.stop = True
    began = time.monotonic()

    scene.executors.cut()

    assert time.monotonic() - began < 5
    Blocks.leave.set()
    assert scene.ack().claim.fence == 1


def test_a_task_that_a_stage_made_cannot_end_the_loop(scene: Scene) -> None:
    """Whatever it raises, the next job runs."""
    scene.start("nested")
    scene.ack()
    scene.start("quick", 2)

    assert scene.ack().verb is Verb.ADVANCE


def test_many_short_tasks_leave_one_watch(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at the reservations does not multiply with the jobs that came and went."""
    for fence in range(1, 200):
        scene.start("quick", fence)
        scene.ack()
    loop = scene.executors._loop
    assert loop is not None

    waiting = [handle for handle in cast(Any, loop._loop)._scheduled if not handle.cancelled()]

    assert len(waiting) <= 1


def test_a_signal_does_not_make_a_worker_wait_for_ever(tmp_path: Path) -> None:
    """One whose handler outlasts what was left of the wait for results: the wait ends, and the worker sees it."""
    worker = Worker("postgresql://nobody@127.0.0.1:1/none", Settings(), tmp_path, Stages({}, None))
    heard: list[int] = []
    ended = threading.Event()

    def handler(number: int, frame: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise AssertionError("it waited for ever")
        time.sleep(0.1)

    def send() -> None:
        time.sleep(0.01)  # into the wait below
        os.kill(os.getpid(), signal.SIGUSR1)
        if not ended.wait(5):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send)
    try:
        sender.start()
        worker._bell.wait(0.05)
    finally:
        ended.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)

    assert len(heard) == 1


def test_colours_are_known_by_their_stages(scene: Scene) -> None:
    """An instance's own wish goes before its class's."""
    plain: Callable[[str], Claim] = lambda stage: holding(stage).claim  # noqa: E731
    runner = scene.executors._runner

    assert runner.colour(plain("quick")) is Colour.LOOP
    assert runner.colour(plain(ASSEMBLE)) is Colour.THREAD
