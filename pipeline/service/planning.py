"""Planning: a site's row and stages, its lanes and topics, their passes; floor 2."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, update

from pipeline.errors import ProjectError, StagesError
from pipeline.project.site import Site
from pipeline.service.base import Service
from pipeline.sql import gates, plan
from pipeline.sql.batch import bound, rows
from pipeline.sql.tables import events, jobs, stages
from pipeline.states import UNFINISHED
from pipeline.views import Planned, TopicRow

GAP = 1000
BATCH = 1000


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What the database needs to know of a stage class."""

    name: str
    width: int | None
    max_attempts: int


class Planning(Service):
    """What makes work."""

    def register(self, site: Site, specs: Sequence[StageSpec]) -> int:
        """Bring the site's row and its stages up to date; returns the site's id.

        Raises StagesError when ``PIPELINE`` cannot be reconciled with the order that jobs already follow.
        """

        def body(connection: Connection) -> int:
            values = bound(
                slug=site.slug,
                name=site.name,
                base_url=site.base_url,
                time_zone=site.time_zone,
                locale=site.locale,
                settings={"lanes": dict(site.lanes), "paths": dict(site.paths)},
            )
            site_id = int(connection.execute(plan.put_site(), values).one().id)
            self._register_stages(connection, site_id, specs)
            self._make_gates(connection, site_id)
            return site_id

        return self._write(body)

    def _register_stages(self, connection: Connection, site_id: int, specs: Sequence[StageSpec]) -> None:
        known = {row.name: row for row in connection.execute(plan.known_stages(), bound(site_id=site_id))}
        names = {spec.name for spec in specs}
        for name in [n for n, row in known.items() if n not in names and row.state != "retired"]:
            self._retire(connection, site_id, name)
        taken = {row.ordinal for row in known.values()}
        place = 0
        for index, spec in enumerate(specs):
            row = known.get(spec.name)
            if row is None:
                # Ordinals stay, those of stages that were removed as well: the next one up is the neighbour.
                above = [o for o in taken if o > place]
                last = all(s.name not in known for s in specs[index + 1 :])
                ordinal = max(above, default=place) + GAP if last or not above else (place + min(above)) // 2
                if ordinal == place:
                    raise StagesError(f"there is no room for stage {spec.name!r} between its neighbours' ordinals")
                new = {"site_id": site_id, "ordinal": ordinal, "name": spec.name, "width": spec.width}
                connection.execute(insert(stages).values(**new, max_attempts=spec.max_attempts))
                taken.add(ordinal)
                place = ordinal
                continue
            if row.ordinal <= place:
                raise StagesError(
                    f"stage {spec.name!r} stands earlier in the database than in stages:PIPELINE; the order of stages"
                    " that jobs already follow cannot be turned round: give the class a new name"
                )
            place = row.ordinal
            if row.state == "retired" or row.max_attempts != spec.max_attempts:
                state = "active" if row.state == "retired" else row.state
                connection.execute(
                    update(stages)
                    .where(stages.c.site_id == site_id, stages.c.name == spec.name)
                    .values(state=state, max_attempts=spec.max_attempts)
                )

    def _make_gates(self, connection: Connection, site_id: int) -> None:
        """Make the gates that are missing, before anybody can come to their stage; each begins behind what is over."""
        made = list(connection.execute(plan.put_gates(), bound(site_id=site_id)).scalars())
        if made:
            connection.execute(gates.move_passed(), {"gates": made})

    def _retire(self, connection: Connection, site_id: int, name: str) -> None:
        here = (jobs.c.site_id == site_id, jobs.c.stage == name, jobs.c.state.in_(UNFINISHED))
        standing = connection.execute(jobs.select().with_only_columns(jobs.c.id).where(*here).limit(1)).first()
        if standing is not None:
            raise StagesError(
                f"stage {name!r} is no longer in stages:PIPELINE, but unfinished jobs stand at it (job {standing.id});"
                f" put it back until they have ended, or skip them: pipeline jobs skip {standing.id}"
            )
        connection.execute(
            update(stages).where(stages.c.site_id == site_id, stages.c.name == name).values(state="retired")
        )
        connection.execute(insert(events).values(site_id=site_id, verb="retire", actor="pipeline", reason=name))

    def plan(self, site_id: int, topics: Sequence[TopicRow]) -> Planned:
        """Make every topic of the file exist with an up-to-date pass, all or nothing.

        New topics go to the end of their lanes, in the file's order. A changed one gets a new pass, once its current
        one has ended. Raises ProjectError when a topic's lane or path is another than before.
        """
        return self._write(lambda connection: self._plan(connection, site_id, topics))

    def _plan(self, connection: Connection, site_id: int, topics: Sequence[TopicRow]) -> Planned:
        at_site = bound(site_id=site_id)
        names = [{"name": name} for name in sorted({t.lane for t in topics})]
        connection.execute(plan.put_lanes(), {**at_site, "names": names})
        connection.execute(plan.lock_lanes(), at_site).all()
        self._make_gates(connection, site_id)
        known = {row.slug: row for row in connection.execute(plan.known_topics(), at_site)}
        _refuse_moves(topics, known)

        new = [t for t in topics if t.slug not in known]
        differ = [t for t in topics if t.slug in known and _differs(t, known[t.slug])]
        busy = [t for t in differ if known[t.slug].busy]
        again = [t for t in differ if not known[t.slug].busy]

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
            connection.execute(plan.count_positions(), at_site)
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
        if first_gates and ids:
            connection.execute(gates.move_passed(), {"gates": first_gates})
            connection.execute(gates.promote(self._clock), {"gates": first_gates})
        slugs = {t.slug for t in topics}
        return Planned(
            new=len(new),
            changed=len(again),
            unchanged=len(topics) - len(new) - len(differ),
            busy=len(busy),
            absent=tuple(sorted(set(known) - slugs)),
            appended=tuple(_out_of_order(topics, known)),
        )


def _differs(topic: TopicRow, row: Any) -> bool:
    """Whether the file says something else than what the newest pass was planned for, or began with."""
    return bool(row.input_hash != topic.input_hash or (row.made_from is not None and row.made_from != topic.input_hash))


def _refuse_moves(topics: Sequence[TopicRow], known: Mapping[str, Any]) -> None:
    for topic in topics:
        row = known.get(topic.slug)
        if row is None:
            continue
        if row.lane != topic.lane:
            raise ProjectError(
                f"line {topic.line}: topic {topic.slug!r} belongs to lane {row.lane!r} and cannot move to"
                f" {topic.lane!r}; set its lane back, or give it a new slug"
            )
        if row.path != topic.path:
            raise ProjectError(
                f"line {topic.line}: topic {topic.slug!r} lives at {row.path!r} and cannot move to {topic.path!r};"
                " set its path back, or give it a new slug"
            )


def _out_of_order(topics: Sequence[TopicRow], known: Mapping[str, Any]) -> list[str]:
    """New topics that the file puts before one that is planned already: their lane has gone past that place."""
    later: dict[str, bool] = defaultdict(bool)
    late: list[str] = []
    for topic in reversed(topics):
        if topic.slug in known:
            later[topic.lane] = True
        elif later[topic.lane]:
            late.append(topic.slug)
    return late[::-1]
