"""What a doctor looks at beside the audit: the server, its settings, and what lies in its way; floor 2."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from pipeline.clock import Clock
from pipeline.db import OLDEST_SERVER, is_pooled, reason, sqlstate
from pipeline.service.base import Service
from pipeline.sql import health

NEWEST_SERVER = 18  # that this release was tried on
HOT = ("attempts", "gates", "jobs", "lanes", "publications", "sites", "topics")
ROOM = 10  # connections
OFFSET = 2.0  # seconds between the database's clock and ours that are worth a word
PINNED = 600.0  # seconds: a snapshot older than this keeps every dead row since
DEAD = 10_000  # rows

Rows = tuple[Mapping[str, Any], ...]


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"  # worth a look; every promise holds
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    section: str
    name: str
    state: State
    found: str
    advice: str = ""  # what to do, where something is to be done
    rows: Rows = ()

    @classmethod
    def ok(cls, section: str, name: str, found: str) -> Self:
        return cls(section, name, State.OK, found)

    @classmethod
    def warning(cls, section: str, name: str, found: str, advice: str, rows: Rows = ()) -> Self:
        return cls(section, name, State.WARNING, found, advice, rows)

    @classmethod
    def broken(cls, section: str, name: str, found: str, advice: str, rows: Rows = ()) -> Self:
        return cls(section, name, State.BROKEN, found, advice, rows)


class Health(Service):
    """Looks at what the work stands on; writes nothing."""

    def __init__(self, engine: Engine, schema: str, clock: Clock | None = None) -> None:
        super().__init__(engine, clock)
        self._schema = schema

    def server(self) -> Iterator[Check]:
        """The server and its settings, one check after the other. What the role may not see is said."""
        yield from self._seen("settings", self._settings)
        yield from self._seen("clock", self._clocks)
        yield from self._seen("pooler", self._pooler)
        yield from self._seen("snapshots", self._snapshots)
        yield from self._seen("prepared", self._prepared)
        yield from self._seen("slots", self._slots)

    def tables(self) -> Iterator[Check]:
        """The schema's tables and indexes, as the server counts them."""
        yield from self._seen("dead rows", self._dead_rows)
        yield from self._seen("indexes", self._indexes)

    def _seen(self, name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
        try:
            yield from look()
        except DBAPIError as error:
            if sqlstate(error) != "42501":
                raise
            yield Check.warning("server", name, f"this role may not see it: {reason(error)}", "ask the server's owner")

    def _ask(self, question: Any, **values: Any) -> Sequence[Any]:
        with self._reading() as connection:
            return connection.execute(question, values).all()

    def _settings(self) -> Iterator[Check]:
        (row,) = self._ask(health.SERVER)
        version = f"PostgreSQL {row.version}"
        if row.major < OLDEST_SERVER:
            yield Check.broken("server", "version", f"{version} is too old", f"use {OLDEST_SERVER} or newer")
        elif row.major > NEWEST_SERVER:
            newer = f"{version} is newer than what this release was tried on"
            yield Check.warning("server", "version", newer, "look for a newer release of pipeline")
        else:
            yield Check.ok("server", "version", version)
        if row.standby:
            yield Check.broken("server", "primary", "a read-only standby", "name the primary in PIPELINE_DATABASE_URL")
        elif row.read_only:
            yield Check.warning(
                "server",
                "primary",
                "default_transaction_read_only is on: as this role nothing can be worked on",
                "ALTER ROLE ... RESET default_transaction_read_only, unless it is meant to look only",
            )
        else:
            yield Check.ok("server", "primary", "takes writes")
        if off := [name for name in ("fsync", "full_page_writes", "synchronous_commit") if not getattr(row, name)]:
            lost = f"{' and '.join(off)} off: what was acknowledged may be lost with the machine"
            yield Check.warning("server", "durability", lost, "switch it on, save for tests")
        else:
            yield Check.ok("server", "durability", "fsync, full_page_writes and synchronous_commit are on")
        if row.autovacuum:
            yield Check.ok("server", "autovacuum", "on")
        else:
            piled = "off: dead rows pile up, and whoever claims walks over them"
            yield Check.warning("server", "autovacuum", piled, "switch autovacuum and track_counts on")
        if row.ours == "read committed":
            kept = f"read committed; the default, {row.isolation}, is not heeded"
            yield Check.ok("server", "isolation", row.ours if row.isolation == row.ours else kept)
        else:
            changed = "something between us and the server changes BEGIN: let it alone"
            yield Check.broken("server", "isolation", f"our transactions run as {row.ours}", changed)
        yield _room(row)
        if row.hidden:
            hidden = f"{row.hidden} of other roles cannot be looked into"
            yield Check.warning("server", "sessions", hidden, "to see what they hold: GRANT pg_read_all_stats")

    def _clocks(self) -> Iterator[Check]:
        with self._reading() as connection:
            before = datetime.now(UTC)
            there = connection.execute(health.NOW).scalar_one()
            after = datetime.now(UTC)
        offset = (there - (before + (after - before) / 2)).total_seconds()
        found = f"the database's is {abs(offset):.2f} s {'ahead of' if offset > 0 else 'behind'} this machine's"
        if abs(offset) <= OFFSET:
            yield Check.ok("server", "clock", found)
        else:
            yield Check.warning(
                "server", "clock", f"{found}; the database's decides, logs here tell another", "set both by NTP"
            )

    def _pooler(self) -> Iterator[Check]:
        with self._engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            pooled, prepares = is_pooled(driver), driver.prepare_threshold is not None
        if pooled and prepares:
            yield Check.broken(
                "server",
                "pooler",
                "one stands in between, and statements are prepared",
                "set PIPELINE_PREPARE=auto or never",
            )
        elif pooled:
            yield Check.ok("server", "pooler", "one stands in between; nothing is prepared, as it must be")
        else:
            yield Check.ok("server", "pooler", "none: a direct connection")

    def _snapshots(self) -> Iterator[Check]:
        rows = [dict(row._mapping) for row in self._ask(health.SNAPSHOTS)]
        old = [row for row in rows if row["seconds"] is None or row["seconds"] > PINNED]
        if not rows:
            yield Check.ok("server", "snapshots", "none is held")
            return
        oldest = max(rows, key=lambda row: (row["transactions"], row["seconds"] or 0))
        found = f"the oldest is {age(oldest['seconds'])} and {oldest['transactions']} transactions old"
        who = f"by {oldest['application'] or 'an unnamed application'} (pid {oldest['pid']}, role {oldest['role']})"
        # An age that cannot be seen is judged by how much happened since.
        if any(row["seconds"] is not None or row["transactions"] > DEAD for row in old):
            yield Check.warning(
                "server",
                "snapshots",
                f"{found}, {who}: no dead row since then can go",
                f"end it, or: SELECT pg_terminate_backend({oldest['pid']})",
                tuple(rows),
            )
        else:
            yield Check.ok("server", "snapshots", found)

    def _prepared(self) -> Iterator[Check]:
        rows = [dict(row._mapping) for row in self._ask(health.PREPARED)]
        if rows and rows[0]["seconds"] > PINNED:
            yield Check.warning(
                "server",
                "prepared",
                f"transaction {rows[0]['gid']!r} was prepared {age(rows[0]['seconds'])} ago and never ended",
                "COMMIT PREPARED or ROLLBACK PREPARED it",
                tuple(rows),
            )
        else:
            yield Check.ok("server", "prepared", "no transaction was left prepared")

    def _slots(self) -> Iterator[Check]:
        rows = [dict(row._mapping) for row in self._ask(health.SLOTS)]
        idle = [row for row in rows if not row["active"]]
        if idle:
            names = ", ".join(row["slot_name"] for row in idle)
            yield Check.warning(
                "server",
                "slots",
                f"nobody reads from {names}: the server keeps rows and log for it",
                "start its reader, or: SELECT pg_drop_replication_slot(...)",
                tuple(rows),
            )
        else:
            yield Check.ok("server", "slots", "no replication slot is idle")

    def _dead_rows(self) -> Iterator[Check]:
        rows = [dict(row._mapping) for row in self._ask(health.TABLES, schema=self._schema, names=list(HOT))]
        many = [row for row in rows if row["dead"] > DEAD and row["dead"] > row["live"] / 2]
        if many:
            told = ", ".join(f"{row['name']} {row['dead']:,} beside {row['live']:,} live" for row in many)
            last = age(min((row["seconds"] for row in many if row["seconds"] is not None), default=None))
            yield Check.warning(
                "schema",
                "dead rows",
                f"{told}; last vacuum {last} ago",
                "see snapshots and autovacuum; then: VACUUM",
                tuple(many),
            )
        else:
            yield Check.ok("schema", "dead rows", "few in the hot tables")

    def _indexes(self) -> Iterator[Check]:
        rows = [dict(row._mapping) for row in self._ask(health.INDEXES, schema=self._schema)]
        lost = [row for row in rows if not row["being_built"]]
        if lost:
            names = ", ".join(row["name"] for row in lost)
            yield Check.broken(
                "schema", "indexes", f"invalid: {names}", "its owner runs: REINDEX INDEX CONCURRENTLY ...", tuple(lost)
            )
        elif rows:
            yield Check.ok("schema", "indexes", f"{len(rows)} being built just now")
        else:
            yield Check.ok("schema", "indexes", "all are valid")


def _room(row: Any) -> Check:
    room, most = row.most - row.used, row.most
    if row.role_most is not None and 0 <= row.role_most - row.role_used < room:
        room, most = row.role_most - row.role_used, row.role_most
    if room >= ROOM:
        return Check.ok("server", "connections", f"room for {room} more")
    more = "raise max_connections or the role's limit, put a pooler in between, or run fewer workers"
    return Check.warning("server", "connections", f"room for {max(room, 0)} more of {most}", more)


def age(seconds: float | None) -> str:
    """A length of time in words, or that it is not known."""
    if seconds is None:
        return "an unknown time"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
