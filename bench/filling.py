"""Databases that are full before anything is measured: rows by SQL, valid as the product would have left them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from bench.ground import Ground
from bench.hands import STAGES
from pipeline.build import Services
from pipeline.project.site import Site
from pipeline.service.planning import StageSpec
from pipeline.testing.database import SCHEMA

LANES = """
INSERT INTO lanes (site_id, name, state, next_position)
SELECT s.id, %(kind)s || n, %(state)s, %(finished)s + %(heads)s + %(behind)s + %(fresh)s + 1
FROM sites s, generate_series(1, %(lanes)s) n WHERE s.slug LIKE %(sites)s ORDER BY n, s.id"""

GATES = """
INSERT INTO gates (lane_id, stage, ordinal, width, passed)
SELECT l.id, 'publish', 3000, 1, %(finished)s FROM lanes l JOIN sites s ON s.id = l.site_id
WHERE s.slug LIKE %(sites)s AND l.name LIKE %(kind)s || '%%' ORDER BY l.id"""

# Position by position, as pages were added over the years.
TOPICS = """
INSERT INTO topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash, pass, released)
SELECT l.site_id, l.id, p, l.name || '-' || p, l.name || '/' || p || '/', 'Page ' || p, 'page', '{"n": 1}', 'hash',
  CASE WHEN p <= %(finished)s THEN %(passes)s ELSE 1 END, p <= %(finished)s
FROM generate_series(1, %(finished)s + %(heads)s + %(behind)s + %(fresh)s) p,
  lanes l JOIN sites s ON s.id = l.site_id
WHERE s.slug LIKE %(sites)s AND l.name LIKE %(kind)s || '%%' ORDER BY p, l.id"""

FINISHED = """
INSERT INTO jobs (site_id, lane_id, topic_id, position, pass, stage, cleared, state, max_attempts, attempts, run_at,
  finished_at)
SELECT t.site_id, t.lane_id, t.id, t.position, n, 'publish', 3000, 'done', 5, 1, past.time, past.time
FROM generate_series(1, %(passes)s) n, topics t JOIN lanes l ON l.id = t.lane_id JOIN sites s ON s.id = l.site_id,
  LATERAL (SELECT clock_timestamp() - (%(passes)s - n + 1) * interval '1 day' AS time) past
WHERE t.position <= %(finished)s AND s.slug LIKE %(sites)s AND l.name LIKE %(kind)s || '%%' ORDER BY n, t.id"""

ATTEMPTS = """
INSERT INTO attempts (fence, job_id, stage, round, token, worker, reserved_at, ended_at, outcome, charged)
SELECT nextval('fences'), id, 'publish', 0, gen_random_uuid(), 'worker', run_at, run_at, 'done', true
FROM jobs WHERE state = 'done' ORDER BY id"""

# The lane's head, those behind it, and at the first stage whatever is still to be made.
UNFINISHED = """
INSERT INTO jobs (site_id, lane_id, topic_id, position, stage, cleared, state, max_attempts, run_at, gate_id, slot,
  error_class)
SELECT t.site_id, t.lane_id, t.id, t.position, CASE WHEN at.fresh THEN 'generate' ELSE 'publish' END,
  CASE WHEN at.fresh THEN -1 ELSE 2000 END,
  CASE WHEN at.fresh THEN 'pending' WHEN at.head THEN %(head)s ELSE 'waiting' END, 5,
  clock_timestamp() + CASE WHEN at.head THEN %(due)s::interval ELSE interval '0' END,
  CASE WHEN at.head AND %(head)s = 'failed' THEN NULL WHEN NOT at.fresh THEN g.id END,
  CASE WHEN at.head AND %(head)s = 'pending' THEN 1 END,
  CASE WHEN at.head AND %(head)s = 'failed' THEN 'Broken' END
FROM topics t JOIN lanes l ON l.id = t.lane_id JOIN sites s ON s.id = l.site_id JOIN gates g ON g.lane_id = l.id,
  LATERAL (SELECT t.position = %(finished)s + 1 AND %(heads)s = 1 AS head,
    t.position > %(finished)s + %(heads)s + %(behind)s AS fresh) at
WHERE t.position > %(finished)s AND s.slug LIKE %(sites)s AND l.name LIKE %(kind)s || '%%' ORDER BY t.position, t.id"""


@dataclass(frozen=True, slots=True)
class Filled:
    """So many ``lanes`` on each site whose slug is ``LIKE sites``, all in one situation.

    In each: ``finished`` topics with ``passes`` finished passes each; the head of its strict stage in the state
    ``head``, due after ``due``, with ``behind`` waiting for it; and ``fresh`` pending at the first stage.
    """

    lanes: int
    kind: str = "lane-"
    sites: str = "%"
    state: str = "active"
    finished: int = 0
    passes: int = 1
    head: str | None = "pending"
    due: str = "0"
    behind: int = 0
    fresh: int = 0


@contextmanager
def plain(ground: Ground, url: str) -> "Iterator[psycopg.Connection[Any]]":
    """A connection as the server's own superuser, each statement a transaction of its own."""
    address = ground.scratch.url(str(make_url(url).database)).set(drivername="postgresql")
    options = f"-c search_path={SCHEMA} -c synchronous_commit=off"
    with psycopg.connect(address.render_as_string(), autocommit=True, options=options) as connection:
        yield connection


def make_sites(services: Services, count: int = 1, stages: Sequence[StageSpec] = STAGES) -> list[int]:
    """So many sites; their ids."""
    names = [f"site-{n}" for n in range(1, count + 1)]
    sites = [
        Site(slug=name, folder=Path("."), output=Path("."), name=name, base_url="https://example.com") for name in names
    ]
    return [services.planning.register(site, stages) for site in sites]


def fill(connection: "psycopg.Connection[Any]", *parts: Filled) -> None:
    """Make the rows, then let the server know of them as after a night's autovacuum."""
    connection.execute("SET session_replication_role = replica")  # no foreign key is asked for each row
    for part in parts:
        values = {field: getattr(part, field) for field in Filled.__dataclass_fields__}
        values["heads"] = int(part.head is not None)
        for statement in (LANES, GATES, TOPICS, FINISHED, UNFINISHED):
            connection.execute(statement.encode(), values)
        if part.finished:
            connection.execute(ATTEMPTS.encode())
    connection.execute("SET session_replication_role = origin")
    connection.execute("VACUUM (ANALYZE)")
