"""Planning: a site's row and stages, its lanes and topics, their passes; floor 2."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.errors import NotFound
from pipeline.service.append import counters, stretches
from pipeline.service.copying import copy_in
from pipeline.service.decision import decide
from pipeline.service.order import GAP, Order, StageSpec
from pipeline.sql import append, places, plan, tables
from pipeline.sql.batch import bound, rows
from pipeline.states import LaneState
from pipeline.views import Planned, TopicRow

BATCH = 1000
COPIED = 10_000  # topics a COPY: no statement may take longer than a minute
COLUMNS = ("site_id", "lane_id", "position", "slug", "path", "title", "type", "brief", "input_hash")

__all__ = ["GAP", "Planning", "StageSpec"]

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Planning(Order):
    """What makes work."""

    def plan(self, site_id: int, topics: Sequence[TopicRow], *, dry_run: bool = False) -> Planned:
        """Make every topic of the file exist with an up-to-date pass, all or nothing.

        New topics go to the end of their lanes, in the file's order. A changed one gets a new pass, once its current
        one has ended. Raises ProjectError when a topic's lane or path is another than before.
        """
        return self._write(lambda connection: self._plan(connection, site_id, topics), dry_run=dry_run)

    def _plan(self, connection: Connection, site_id: int, topics: Sequence[TopicRow]) -> Planned:
        at_site = bound(site_id=site_id)
        names = sorted({t.lane for t in topics})
        named = {**at_site, **bound(names=names)}
        if connection.execute(append.missing(), named).all():
            connection.execute(append.share_stages(), at_site).all()
            connection.execute(plan.put_lanes(), {**at_site, "names": [{"name": name} for name in names]})
        # Only its own: others may be held by an application that plans there.
        locked = {row.name: row for row in connection.execute(places.lock_lanes(), named)}
        if not {t.lane for t in topics} <= set(locked):
            raise NotFound("the site was removed from the database meanwhile; nothing was planned: run it again")
        self._make_gates(connection, site_id)
        known = {row.slug: row for row in connection.execute(plan.known_topics(), at_site)}
        decision = decide(topics, known, [name for name, row in locked.items() if row.state == LaneState.CLOSED])
        new, again = decision.new, decision.changed
        differ = (*again, *decision.busy)

        first_gates: list[int] = []
        if new or again:
            first_gates = list(connection.execute(plan.lock_first_gates(), at_site).scalars())
        if new:
            self._append(connection, site_id, new, {name: (row.id, row.next_position) for name, row in locked.items()})
        changes = [
            {"id": known[t.slug].id, "title": t.title, "type": t.type, "brief": dict(t.brief),
             "input_hash": t.input_hash, "again": int(not known[t.slug].busy)}
            for t in differ
        ]  # fmt: skip
        for start in range(0, len(changes), BATCH):
            connection.execute(plan.change_topics(), {"changes": changes[start : start + BATCH]})
        for start in range(0, len(again), BATCH):
            wanted = rows({"id": known[t.slug].id} for t in again[start : start + BATCH])
            connection.execute(plan.add_jobs(self._clock), {**at_site, "ids": wanted})
        if new or again:
            self._give_turns(connection, first_gates)
        return decision.planned()

    def _append(
        self, connection: Connection, site_id: int, new: Sequence[TopicRow], lanes: Mapping[str, tuple[int, int]]
    ) -> None:
        """Put the new topics at the ends of the ``lanes``, which are locked: by name, the id and the next position."""
        ids = {name: lane_id for name, (lane_id, _) in lanes.items()}
        counted = dict(lanes.values())
        until = dict(counted)

        def placed(batch: Sequence[TopicRow]) -> Iterator[tuple[Any, ...]]:
            for t in batch:
                at = ids[t.lane]
                brief = _as_json(dict(t.brief))
                yield site_id, at, until[at], t.slug, t.path, t.title, t.type, brief, t.input_hash
                until[at] += 1

        for start in range(0, len(new), COPIED):
            since = dict(until)
            copy_in(connection, tables.topics, COLUMNS, placed(new[start : start + COPIED]))
            connection.execute(append.add_jobs(self._clock), {**bound(site_id=site_id), **stretches(since, until)})
        connection.execute(append.count(), counters(counted, until))
