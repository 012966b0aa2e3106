"""What a scenario stands on: a migrated, empty database, all verbs, actors for races, ways to lose an answer."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import Engine, text

from pipeline.build import Services, services
from pipeline.db import make_engine
from pipeline.service.audit import Audit
from pipeline.service.work import Expired
from pipeline.sql.tables import jobs
from pipeline.states import JobState
from tests.concurrency.stage import DEADLINE, PAUSE, SCHEMA, Act, Actor, Missed, Play
from tests.factories import Factory


class Caught(AssertionError):
    """Something that must hold does not. ``by``: the audit's invariant, or ``property``."""

    def __init__(self, by: str, what: str) -> None:
        super().__init__(f"{by}: {what}")
        self.by = by
        self.what = what


def must(fact: object, what: str) -> None:
    """The property of a scenario."""
    if not fact:
        raise Caught("property", what)


@dataclass(frozen=True, slots=True)
class Stand:
    url: str
    engine: Engine
    services: Services
    make: Factory
    play: Play

    def whole(self) -> None:
        """No invariant is broken."""
        for found in Audit(self.engine, schema=SCHEMA).violations():
            raise Caught(f"audit {found.invariant}", found.meaning)

    def is_in(self, job_id: int, *states: JobState) -> None:
        state = self.make.state(job_id)
        must(state in states, f"job is {state}, not {' or '.join(states)}")

    def over(self) -> list[Expired]:
        """The reservations whose lease is over by the server's clock."""
        return [e for e in self.services.work.expired(self.make.site_id) if e.over]

    def take_back(self, job_id: int) -> None:
        """Let the job's lease be over, and have it reaped."""
        self.make.expire(job_id)
        self.services.work.reap(self.over())

    def settled(self, job_id: int) -> bool:
        return self.make.state(job_id) is not JobState.RESERVED

    def behind(self, act: Act[Any], waiter: Actor, holder: Actor) -> None:
        """Return when ``waiter`` waits for a lock of ``holder``; or is over, for a fault may make it."""
        asked = text("SELECT :holder = ANY(pg_blocking_pids(:waiter))")
        deadline = time.monotonic() + DEADLINE
        while not act.over:
            with self.engine.connect() as connection:
                if connection.execute(asked, {"holder": holder.pid, "waiter": waiter.pid}).scalar_one():
                    return
            if time.monotonic() > deadline:
                raise Missed(f"{waiter.name} neither waited nor ended")
            time.sleep(PAUSE)

    def end_session(self, actor: Actor) -> None:
        with self.engine.begin() as connection:
            ended = connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": actor.pid}).scalar_one()
        if not ended:
            raise Missed(f"the session of {actor.name} could not be ended")

    @contextmanager
    def losing(self, nth: int, *, committed: bool) -> Iterator[Services]:
        """Services whose ``nth`` COMMIT gets no answer, although the server did it, or did not."""
        engine = make_engine(self.url, schema=SCHEMA, connections=1, name="cut off")
        real: Callable[[Any], None] = engine.dialect.do_commit
        left = nth

        def do_commit(connection: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                if committed:
                    real(connection)
                connection.driver_connection.close()
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            real(connection)

        engine.dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]
        try:
            yield services(engine)
        finally:
            engine.dispose()
        if left > 0:
            raise Missed(f"there was no COMMIT number {nth}")

    def by_hand(self, statement: str, **values: object) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement.format(jobs=f"{SCHEMA}.{jobs.name}")), values)
