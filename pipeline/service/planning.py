"""Planning: a site's row and stages, its lanes and topics, their passes; floor 2."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.errors import NotFound
from pipeline.project.texts import load_text
from pipeline.service.append import BATCH_LENGTH, counters, stretches
from pipeline.service.base import revision
from pipeline.service.copying import copy_in
from pipeline.service.decision import decide
from pipeline.service.order import GAP, Order, StageSpec
from pipeline.sql import append, content, places, plan, tables
from pipeline.sql.batch import bound, rows
from pipeline.states import LaneState
from pipeline.views import Draft, Planned, TopicRow

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
        one has ended. One that has a text begins with that as its revision, behind the first stage. Raises ProjectError
        when a topic's lane or path is another than before, or its text cannot be read.
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
            behind = any(t.text for t in (*new, *again))
            arrived_at = plan.lock_first_gates(behind=True) if behind else plan.lock_first_gates()
            first_gates = list(connection.execute(arrived_at, at_site).scalars())
        # Jobs come before topics. What stands behind the second stage, or is held, goes on with the text that it has.
        asked = bound(topic_ids=[known[t.slug].id for t in decision.busy if t.text])
        early = (
            set(connection.execute(plan.lock_early(), {**at_site, **asked}).scalars()) if asked["p_topic_ids"] else ()
        )
        if new:
            self._append(connection, site_id, new, {name: (row.id, row.next_position) for name, row in locked.items()})
        changes = [
            {"id": known[t.slug].id, "title": t.title, "type": t.type, "brief": dict(t.brief),
             "input_hash": t.input_hash, "again": int(not known[t.slug].busy)}
            for t in differ
        ]  # fmt: skip
        for start in range(0, len(changes), BATCH):
            connection.execute(plan.change_topics(), {"changes": changes[start : start + BATCH]})
        plain = [known[t.slug].id for t in again if not t.text]
        for start in range(0, len(plain), BATCH):
            wanted = rows({"id": id} for id in plain[start : start + BATCH])
            connection.execute(plan.add_jobs(self._clock), {**at_site, "ids": wanted})
        self._begin_with_texts(connection, site_id, [t for t in again if t.text])
        self._begin_with_texts(
            connection, site_id, [t for t in decision.busy if known[t.slug].id in early], under_way=True
        )
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
            since, batch = dict(until), new[start : start + COPIED]
            copy_in(connection, tables.topics, COLUMNS, placed(batch))
            texts = [t for t in batch if t.text]
            grown = _stretches(batch, ids, since) if texts else stretches(since, until)
            connection.execute(append.add_jobs(self._clock), {**bound(site_id=site_id), **grown})
            self._begin_with_texts(connection, site_id, texts)
        connection.execute(append.count(), counters(counted, until))

    def _begin_with_texts(
        self, connection: Connection, site_id: int, topics: Sequence[TopicRow], *, under_way: bool = False
    ) -> None:
        """Make each topic's text its newest revision, if it is another, and begin a pass behind the first stage, where
        drafts are made; ``under_way``: there is one already."""
        for batch in _batches(topics):
            at = {**bound(site_id=site_id), **bound(slugs=[t.slug for t, _ in batch])}
            known = {row.slug: row for row in connection.execute(plan.texts_of(), at)}
            drafts = [
                revision(draft, known[t.slug].id, None, draft.lineage)
                for t, draft in batch
                if draft.hash != known[t.slug].content_hash
            ]
            ids = [row.id for row in known.values()]
            if drafts:
                connection.execute(content.add_revisions(), {"drafts": drafts, **bound(origin="imported")})
            connection.execute(plan.made(), bound(topic_ids=ids))
            if not under_way:
                wanted = {"ids": rows({"id": id} for id in ids)}
                connection.execute(plan.add_jobs(self._clock, behind=True), {**bound(site_id=site_id), **wanted})


def _batches(topics: Sequence[TopicRow]) -> Iterator[list[tuple[TopicRow, Draft]]]:
    """The topics with their texts, some megabytes at a time."""
    batch: list[tuple[TopicRow, Draft]] = []
    length = 0
    for topic in topics:
        assert topic.text is not None
        batch.append((topic, load_text(topic.text.path, topic.title)))
        length += len(batch[-1][1].body)
        if len(batch) == BATCH or length >= BATCH_LENGTH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _stretches(batch: Sequence[TopicRow], ids: Mapping[str, int], since: Mapping[int, int]) -> dict[str, Any]:
    """The positions of those topics that have no text, counted since, as ``append.add_jobs`` takes them."""
    until = dict(since)
    found: list[tuple[int, int, int]] = []
    open_at: dict[int, int] = {}  # by lane, the place in ``found`` of the stretch that may go on
    for topic in batch:
        lane = ids[topic.lane]
        position = until[lane]
        until[lane] += 1
        if topic.text:
            open_at.pop(lane, None)
        elif (at := open_at.get(lane)) is not None:
            found[at] = (lane, found[at][1], position)
        else:
            open_at[lane] = len(found)
            found.append((lane, position, position))
    return bound(lanes=[x[0] for x in found], first=[x[1] for x in found], last=[x[2] for x in found])
