"""Put the house together: which database, which services; engine room."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from pipeline.clock import Clock
from pipeline.db import PATIENCE, check_server, make_engine, parse_url, reason, refusal
from pipeline.errors import DatabaseError
from pipeline.service.drafts import Drafts
from pipeline.service.explaining import Explaining
from pipeline.service.lanes import Lanes
from pipeline.service.ledger import LedgerService
from pipeline.service.operate import Operate
from pipeline.service.places import Places
from pipeline.service.planning import Planning
from pipeline.service.prune import Prune
from pipeline.service.reading import Reading
from pipeline.service.roster import Roster
from pipeline.service.sites import Sites
from pipeline.service.widths import Widths
from pipeline.service.work import Work
from pipeline.settings import Settings, project_root


@dataclass(frozen=True, slots=True)
class Services:
    """Every verb, over one engine."""

    engine: Engine
    planning: Planning
    work: Work
    operate: Operate
    ledger: LedgerService
    reading: Reading
    lanes: Lanes
    widths: Widths
    places: Places
    drafts: Drafts
    sites: Sites
    prune: Prune
    roster: Roster
    explaining: Explaining


def services(engine: Engine, clock: Clock | None = None) -> Services:
    return Services(
        engine,
        Planning(engine, clock),
        Work(engine, clock),
        Operate(engine, clock),
        LedgerService(engine, clock),
        Reading(engine, clock),
        Lanes(engine, clock),
        Widths(engine, clock),
        Places(engine, clock),
        Drafts(engine, clock),
        Sites(engine, clock),
        Prune(engine, clock),
        Roster(engine, clock),
        Explaining(engine, clock),
    )


def is_embedded(settings: Settings) -> bool:
    return settings.database_url is None


@contextmanager
def open_database(settings: Settings, root: Path | None = None) -> Iterator[str]:
    """The URL of the database: the named one, or the project's embedded server for as long as the block lasts."""
    if settings.database_url is not None:
        yield parse_url(settings.database_url.get_secret_value()).render_as_string(hide_password=False)
        return
    from pipeline.embedded import EmbeddedServer, embedded_home

    with EmbeddedServer(embedded_home(root or project_root())) as server:
        yield server.url()


@contextmanager
def connect(
    url: str,
    settings: Settings,
    *,
    name: str,
    connections: int = 2,
    patience: float = PATIENCE,
    fit: bool = True,
    steady: bool = False,
    listen: Callable[[], None] | None = None,
) -> Iterator[Services]:
    """Services over a server that is checked to be ``fit``, unless one asks what ails it; ``listen`` is called when
    others tell of new work. Raises DatabaseError with the reason when it cannot be used."""
    engine = make_engine(
        url,
        schema=settings.db_schema,
        connections=connections,
        name=name,
        prepare=settings.prepare,
        patience=patience,
        steady=steady,
        wakes=settings.wake,
        listen=listen if settings.wake else None,
    )
    try:
        try:
            with engine.connect() as connection:
                if fit:
                    check_server(connection)
        except OperationalError as error:
            raise DatabaseError(f"the database cannot be reached: {reason(error)}") from error
        yield services(engine)
    except DBAPIError as error:
        told = refusal(error, schema=settings.db_schema, role=engine.url.username)
        raise DatabaseError(f"the database refused: {told}") from error
    finally:
        engine.dispose()
