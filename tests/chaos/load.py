"""Who uses the pipeline during a chaos run, beside its workers: planners, operators, readers, and one who drains."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

import pipeline
from pipeline.errors import PipelineError
from pipeline.service.explaining import Patience
from pipeline.views import Planned
from tests.chaos.clients import Client, a_row
from tests.chaos.history import GaveUp
from tests.chaos.operators import Operators
from tests.chaos.work import CALM

BATCH = 50
CHANGES = 0.3  # of the files have a row that changed
PATIENCE = Patience(seen=timedelta(seconds=2), overdue=timedelta(seconds=10))


class Load(Operators):
    """The clients of one run, each in a thread."""

    def start(self) -> None:
        self._begin("planner", self._plan)
        self._begin("appender", self._append)
        for number in range(self.operators):
            self._begin(f"operator-{number}", self.operate)
        self._begin("mender", self.mend_all)
        self._begin("reader", self._read)

    def _begin(self, name: str, work: Callable[[Client], None]) -> None:
        url = self.urls[len(self._threads) % len(self.urls)]
        client = Client(name, url, random.Random(f"{self.seed}/{name}"))
        thread = threading.Thread(target=self._guarded, args=(client, work), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, client: Client, work: Callable[[Client], None]) -> None:
        try:
            while not self.over.is_set():
                try:
                    work(client)
                except (SQLAlchemyError, PipelineError):
                    time.sleep(0.2)  # a question without answer; what changes something goes through the history
                self.over.wait(client.dice.uniform(0, 2 * self.pace))
        except BaseException as error:
            self.errors.append(f"{client.name}: {type(error).__name__}: {error}")
        finally:
            client.close()

    def stop(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(timeout=70)

    def _full(self, client: Client, site_id: int) -> bool:
        return sum(s.count for s in client.services.reading.standing(site_id)) >= self.backlog

    # Planners.

    def _plan(self, client: Client) -> None:
        """A file of new topics, and now and then a row of it that changed; asked again until it is answered."""
        site, site_id = self.site(client)
        if self.planning.is_set() or self._full(client, site_id):
            return
        lane = f"lane-{client.dice.randrange(self.lanes)}"
        rows = [a_row(lane, self.slug(client)) for _ in range(BATCH)]
        known = client.planned.setdefault(site, [])
        if known and client.dice.random() < CHANGES:
            rows.append(replace(client.dice.choice(known), input_hash=f"hash {client.made}"))
        for _ in range(5):
            found: Planned | None = self.history.call(
                "plan",
                lambda id: client.services.planning.plan(site_id, rows),
                lambda planned: sorted({row.slug for row in rows} - set(planned.closed)),
                site=site, slugs=[row.slug for row in rows],
            )  # fmt: skip
            if found is not None:
                self.planned += found.new
                known += [row for row in rows if row.slug not in found.closed]
                return

    def _append(self, client: Client) -> None:
        """Topics in a transaction of the caller's own, which sometimes takes it back."""
        site, site_id = self.site(client)
        if self.planning.is_set() or self._full(client, site_id):
            return
        lane = f"lane-{client.dice.randrange(self.lanes)}"
        slugs = [self.slug(client) for _ in range(BATCH)]
        topics = [pipeline.Topic(lane, slug, f"Title of {slug}", "page") for slug in slugs]
        takes_back = client.dice.random() < 0.1

        def append(id: str) -> list[Any]:
            with client.services.engine.begin() as connection:
                planned = pipeline.plan(connection, site, topics)
                if takes_back:
                    raise GaveUp("taken back")
                return planned

        for _ in range(1 if takes_back else 5):
            found = self.history.call(
                "append", append, lambda planned: [topic.slug for topic in planned], site=site, slugs=slugs
            )
            if found is not None:
                self.planned += sum(topic.new for topic in found)
                return

    def _read(self, client: Client) -> None:
        """Everything that people look at."""
        site, site_id = self.site(client)
        reading = client.services.reading
        reading.status(site_id, site)
        reading.troubles(site_id)
        client.services.lanes.list(site_id)
        reading.jobs(site_id, [], 50)
        client.services.explaining.site(site_id, PATIENCE)
        client.services.explaining.symptoms(site_id, PATIENCE)
        self.read += 1
        self.over.wait(0.5)

    # The end.

    def drain(self, root: Path, url: str, patience: float) -> bool:
        """Let all go well from now on, until every job is done or skipped; False when that does not come."""
        (root / CALM).touch()
        client = Client("drainer", url, random.Random(f"{self.seed}/drainer"))
        give_up = time.monotonic() + patience
        try:
            while time.monotonic() < give_up:
                with suppress(SQLAlchemyError):  # a session that the last fault has spoilt
                    if self._mend_everything(client) == 0:
                        return True
                time.sleep(0.2)
            return False
        finally:
            client.close()

    def _mend_everything(self, client: Client) -> int:
        """How many jobs are unfinished yet."""
        left = 0
        for site_id in self.sites.values():
            for line in client.services.lanes.list(site_id):
                if line.state != "active":
                    self._reopen(client, site_id, line.lane, line.state)
            self.mend(client, site_id, give_up=0.1)
            client.services.operate.hasten(site_id)
            left += sum(s.count for s in client.services.reading.standing(site_id))
        return left

    def _reopen(self, client: Client, site_id: int, lane: str, state: str) -> None:
        verb = "resume" if state == "paused" else "open"
        act: Any = getattr(client.services.lanes, verb)
        self.history.call(
            f"lane-{verb}", lambda id: act(site_id, lane, actor=client.name, reason=id), lambda t: [t.name],
            site=site_id, lane=lane,
        )  # fmt: skip
