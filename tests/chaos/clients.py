"""What all clients of a chaos run share: a name, a connection and dice each; a history and sites together."""

import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from pipeline.build import Services, services as build_services
from pipeline.db import make_engine
from pipeline.sql.tables import jobs
from pipeline.testing.database import SCHEMA
from pipeline.views import TopicRow
from tests.chaos.history import History

LANES = 20


class Client:
    """One caller: a name, a connection, dice."""

    def __init__(self, name: str, url: str, dice: random.Random) -> None:
        self.name = name
        self.dice = dice
        self.made = 0
        self.planned: dict[str, list[TopicRow]] = {}  # by site
        self._engine = make_engine(url, schema=SCHEMA, connections=1, name=f"chaos {name}")
        self.services: Services = build_services(self._engine)

    def held(self, site_id: int) -> list[int]:
        """Jobs that wait for a person."""
        asked = select(jobs.c.id).where(jobs.c.site_id == site_id, jobs.c.hold.is_not(None))
        with self.services.engine.begin() as connection:
            return list(connection.execute(asked).scalars())

    def close(self) -> None:
        with suppress(SQLAlchemyError):
            self._engine.dispose()


@dataclass(slots=True)
class Office:
    """What they work on."""

    history: History
    sites: dict[str, int]
    urls: Sequence[str]  # of the server, and of proxies before it; clients take turns
    seed: int
    backlog: int  # unfinished topics of a site at which planners wait
    operators: int = 2
    lanes: int = LANES
    pace: float = 0.1  # seconds between two calls of a client
    planning: threading.Event = field(default_factory=threading.Event)  # set: no more topics
    over: threading.Event = field(default_factory=threading.Event)
    read: int = 0
    planned: int = 0  # topics, of which that was acknowledged
    _threads: list[threading.Thread] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def site(self, client: Client) -> tuple[str, int]:
        return client.dice.choice(sorted(self.sites.items()))

    def slug(self, client: Client) -> str:
        client.made += 1
        return f"{client.name}-{client.made}"


def a_row(lane: str, slug: str) -> TopicRow:
    return TopicRow(
        lane=lane, slug=slug, title=f"Title of {slug}", type="page", path=f"{slug}/", order=1, brief={},
        input_hash=f"hash of {slug}",
    )  # fmt: skip
