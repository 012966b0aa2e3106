"""Rules of people who ask something of jobs, of lanes, stages and sites, or plan."""

from datetime import timedelta
from typing import Any

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy.orm import Session

from pipeline import Topic, plan
from pipeline.service.operate import Filter
from pipeline.states import JobState as S
from pipeline.testing.database import SCHEMA
from tests.factories import ACTOR
from tests.stateful import asking
from tests.stateful.asking import SOURCES, Order, Picked
from tests.stateful.compare import TITLE, TYPE, VERSIONS
from tests.stateful.coverage import BY_NUMBER
from tests.stateful.model import Refusal, Site, World
from tests.stateful.stand import LANES, MOST, Stand

orders = st.sampled_from(BY_NUMBER)
rarely = st.sampled_from([False, False, False, False, True])
sometimes = st.booleans()


class PeopleRules(Stand):
    """Plan; cancel, requeue, approve, skip, grant; prune; upkeep; sessions that end."""

    def order(self, data: st.DataObject, verb: str) -> Order:
        force = verb in ("cancel", "skip") and data.draw(sometimes, "force")
        stages = ["draft", "check", "publish", "nothing"]
        stage = data.draw(st.sampled_from([None, None, *stages]), "to stage") if verb == "requeue" else None
        grant = data.draw(st.integers(1, 2), "grant") if verb in ("requeue", "grant") else 0
        return Order(verb, force, stage, grant)

    def ask(self, order: Order, jobs: Any, *, dry: bool) -> Any:
        operate = self.services.operate
        said: dict[str, Any] = {"actor": ACTOR, "reason": "because", "dry_run": dry}
        match order.verb:
            case "cancel" | "skip":
                return getattr(operate, order.verb)(jobs, force=order.force, **said)
            case "requeue":
                return operate.requeue(jobs, stage=order.stage, grant=order.grant, **said)
            case "approve":
                return operate.approve(jobs, **said)
        return operate.grant(jobs, attempts=order.grant, **said)

    def compare_moves(self, foretold: asking.Moves | None, heard: Any, *, dry: bool) -> None:
        if foretold is None:
            return
        self.same("who was moved", [(i, s) for i, s, _ in foretold], [(m.job_id, m.from_state) for m in heard])
        self.same("their stages", [j.stage for *_, j in foretold], [m.stage for m in heard])
        if not (dry and self.world.late()):
            ends = {j.id: j.state for _, j in self.world.jobs()}
            to = [j.state if dry else ends[j.id] for *_, j in foretold]
            self.same("their new states", to, [m.to_state for m in heard])

    @rule(data=st.data(), verb=orders, count=st.integers(1, 2), dry=rarely, unknown=st.integers(0, 19))
    def asks_by_number(self, data: st.DataObject, verb: str, count: int, dry: bool, unknown: int) -> None:
        self._ask_by_number(data, verb, count, dry=dry, unknown=unknown == 19)

    def _ask_by_number(self, data: st.DataObject, verb: str, count: int, *, dry: bool, unknown: bool = False) -> None:
        order = self.order(data, verb)
        chosen = [self.job(data, lambda site, job: asking.allowed(order, site, job)) for _ in range(count)]
        jobs = [job for job in chosen if job is not None]
        ids = sorted({j.id for j in jobs} | ({2**40} if unknown else set()))

        def predict(world: World) -> asking.Moves:
            try:
                return asking.by_number(world, order, ids)
            except Refusal:
                first = next((f for i in ids if (f := world.find(i)) and not asking.allowed(order, *f)), None)
                if first is not None:
                    self.coverage.refused[verb, first[1].state] += 1
                raise

        foretold, heard = self.do(verb, predict, lambda: self.ask(order, ids, dry=dry), dry=dry)
        self.compare_moves(foretold, heard, dry=dry)

    @rule(data=st.data())
    def asks_what_may_be_asked(self, data: st.DataObject) -> None:
        usual = [v for v in BY_NUMBER if any(asking.allowed(Order(v), *found) for found in self.world.jobs())]
        self._ask_by_number(data, data.draw(st.sampled_from(usual or BY_NUMBER), "verb"), 1, dry=False)

    @precondition(lambda self: any(job.hold for _, job in self.world.jobs()))
    @rule(data=st.data())
    def lets_go_what_is_held(self, data: st.DataObject) -> None:
        self._ask_by_number(data, "approve", 1, dry=False)

    @rule(data=st.data(), verb=orders, dry=sometimes)
    def asks_by_filter(self, data: st.DataObject, verb: str, dry: bool) -> None:
        """By lane, stage, states and error class, each given or not."""
        order = self.order(data, verb)
        site = self.site(data)
        states = st.sets(st.sampled_from([*sorted(SOURCES[verb]), *S]), min_size=0, max_size=3)
        picked = Picked(
            site.slug,
            self.lane(data, site) if data.draw(sometimes, "of a lane") and site.lanes else None,
            self.stage(data, site) if data.draw(sometimes, "of a stage") else None,
            frozenset(data.draw(states, "states")),
            data.draw(st.sampled_from([None, None, None, "Broken", "rejected", "expired"]), "error"),
        )
        wanted = Filter(site.id, picked.lane, picked.stage, picked.states, picked.error)
        foretold, heard = self.do(
            f"{verb} by filter",
            lambda world: asking.by_filter(world, order, picked),
            lambda: self.ask(order, wanted, dry=dry),
            dry=dry,
        )
        self.compare_moves(foretold, heard, dry=dry)

    # Planning.

    def topics(self, data: st.DataObject, site: Site, most_new: int = 2) -> list[tuple[str, str, int]]:
        """Some that are planned, as they were or changed, and some new ones; as (lane, slug, version)."""
        known = data.draw(st.lists(st.sampled_from(sorted(site.topics)), max_size=3, unique=True), "known") if (
            site.topics) else []  # fmt: skip
        rows = []
        for slug in known:
            topic = site.topics[slug]
            version = data.draw(st.sampled_from([topic.version, *VERSIONS]), f"version of {slug}")
            rows.append((topic.lane, slug, version))
        lane = data.draw(st.sampled_from(LANES), "lane of new ones")
        there = sum(t.lane == lane for t in site.topics.values())
        for n in range(min(data.draw(st.integers(0, most_new), "new"), MOST - there)):
            rows.append((lane, f"{lane[0]}{len(site.topics) + n}", 1))
        if rows and data.draw(st.integers(0, 14), "misplaced") == 14:
            rows[0] = ("south" if rows[0][0] == "north" else "north", *rows[0][1:])
        return rows

    @rule(data=st.data(), dry=rarely)
    def plans_a_file(self, data: st.DataObject, dry: bool) -> None:
        site = self.site(data)
        self._plan(site.slug, self.topics(data, site), dry=dry)

    @rule(data=st.data(), commit=st.sampled_from([True, True, False]), via=st.sampled_from(["core", "orm", "psycopg"]))
    def plans_inside_a_transaction(self, data: st.DataObject, commit: bool, via: str) -> None:
        """Of a caller, who then commits or rolls back."""
        site = self.site(data)
        rows = self.topics(data, site)
        topics = [Topic(lane, slug, TITLE, TYPE, {"v": version}) for lane, slug, version in rows]

        def act() -> list[Any]:
            if via == "psycopg":
                url = self.ground.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
                with psycopg.connect(url) as plain:
                    planned = plan(plain, site.slug, topics, schema=SCHEMA)
                    (plain.commit if commit else plain.rollback)()
                return planned
            with self.ground.engine.connect() as connection, Session(connection) as session:
                planned = plan(connection if via == "core" else session, site.slug, topics, schema=SCHEMA)
                (connection.commit if commit else connection.rollback)()
            return planned

        foretold, heard = self.do(
            "plan inside", lambda world: world.sites[site.slug].plan_inside(rows), act, dry=not commit
        )
        if foretold is not None and heard is not None:
            self.same("planned", foretold, [(p.slug, p.position, p.new) for p in heard])

    # Time, upkeep, sessions.

    @precondition(lambda self: any(t.number > 1 for s in self.world.sites.values() for t in s.topics.values()))
    @rule(data=st.data(), dry=rarely)
    def prunes(self, data: st.DataObject, dry: bool) -> None:
        site = self.site(data)

        def predict(world: World) -> dict[str, int]:
            passes, assemblies, gone = world.sites[site.slug].prune()
            fences = [f for f, record in world.records.items() if record.job in gone]
            for fence in fences:
                del world.records[fence]
            return {"passes": passes, "assemblies": assemblies, "attempts": len(fences)}

        foretold, heard = self.do(
            "prune",
            predict,
            lambda: self.services.prune.prune(site.id, timedelta(0), actor=ACTOR, dry_run=dry),
            dry=dry,
        )
        assert heard is not None
        self.same("pruned", foretold, {k: getattr(heard, k) for k in ("passes", "assemblies", "attempts")})

    @rule(data=st.data(), what=st.sampled_from(["hasten", "hasten", "reconnect", "end"]))
    def something_else(self, data: st.DataObject, what: str) -> None:
        """An assembly is hastened; our pool is made anew; or its sessions are ended: who uses one next is told, has
        done nothing, and does it again."""
        if what == "reconnect":
            self.ground.engine.dispose()
            self.coverage.replies["reconnect: done"] += 1
        elif what == "end":
            self.ended = self.end_sessions() > 0 or self.ended
        else:
            site = self.site(data)

            def predict(world: World) -> None:
                for job in world.sites[site.slug].jobs:
                    job.due = job.due or (job.slug is None and job.state is S.PENDING)

            self.do("hasten", predict, lambda: self.services.operate.hasten(site.id))
