"""Planning: a site's row and stages, its lanes and topics, their passes; floor 2."""

from collections.abc import Sequence

from sqlalchemy import Connection

from pipeline.errors import NotFound
from pipeline.service.decision import decide
from pipeline.service.order import GAP, Order, StageSpec
from pipeline.sql import append, places, plan
from pipeline.sql.batch import bound, rows
from pipeline.states import LaneState
from pipeline.views import Planned, TopicRow

BATCH = 1000

__all__ = ["GAP", "Planning", "StageSpec"]


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
        locked = {row.name: row.state for row in connection.execute(places.lock_lanes(), named)}
        if not {t.lane for t in topics} <= set(locked):
            raise NotFound("the site was removed from the database meanwhile; nothing was planned: run it again")
        self._make_gates(connection, site_id)
        known = {row.slug: row for row in connection.execute(plan.known_topics(), at_site)}
        decision = decide(topics, known, [name for name, state in locked.items() if state == LaneState.CLOSED])
        new, again = decision.new, decision.changed
        differ = (*again, *decision.busy)

        first_gates: list[int] = []
        if new or again:
            first_gates = list(connection.execute(plan.lock_first_gates(), at_site).scalars())
        ids: list[int] = []
        for start in range(0, len(new), BATCH):
            batch = [
                {"n": n, "lane": t.lane, "slug": t.slug, "path": t.path, "title": t.title, "type": t.type,
                 "brief": dict(t.brief), "input_hash": t.input_hash}
                for n, t in enumerate(new[start : start + BATCH])
            ]  # fmt: skip
            added = connection.execute(plan.add_topics(), {**at_site, "topics": batch})
            ids.extend(row.id for row in added)
            connection.execute(plan.count_positions(), named)
        changes = [
            {"id": known[t.slug].id, "title": t.title, "type": t.type, "brief": dict(t.brief),
             "input_hash": t.input_hash, "again": int(not known[t.slug].busy)}
            for t in differ
        ]  # fmt: skip
        for start in range(0, len(changes), BATCH):
            connection.execute(plan.change_topics(), {"changes": changes[start : start + BATCH]})
        ids.extend(known[t.slug].id for t in again)
        for start in range(0, len(ids), BATCH):
            wanted = rows({"id": i} for i in ids[start : start + BATCH])
            connection.execute(plan.add_jobs(self._clock), {**at_site, "ids": wanted})
        if ids:
            self._give_turns(connection, first_gates)
        return decision.planned()
