"""Rules of people who change lanes, stages and sites, and where topics stand; and of upkeep."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.factories import ACTOR
from tests.stateful import house
from tests.stateful.model import Site
from tests.stateful.people_rules import rarely
from tests.stateful.stand import LANES, MOST, Stand, topic_row

turns = st.sampled_from(["pause", "resume", "close", "open"])
halves = st.sampled_from(["pause", "resume"])
widths = st.sampled_from([None, 1, 1, 2, 3])


class HouseRules(Stand):
    """Pause, resume, close, open; widths and policies; move, insert; retire, restore; settle, heal."""

    def by(self, dry: bool) -> dict[str, Any]:
        return {"actor": ACTOR, "reason": "because", "dry_run": dry}

    @precondition(lambda self: any(s.lanes for s in self.world.sites.values()))
    @rule(data=st.data(), verb=turns, dry=rarely)
    def turns_a_lane(self, data: st.DataObject, verb: str, dry: bool) -> None:
        site = self.site(data)
        fitting = sorted(n for n, lane in site.lanes.items() if lane.state in house.TURNS[verb][0])
        name = self.lane(data, site) if not fitting else data.draw(st.sampled_from([*fitting, "nowhere"]), "lane")
        late = self.world.late()
        foretold, heard = self.do(
            f"{verb} lane",
            lambda world: house.turn_lane(world, world.sites[site.slug], verb, name),
            lambda: getattr(self.services.lanes, verb)(site.id, name, **self.by(dry)),
            dry=dry,
        )
        if foretold is not None and heard is not None:
            self.same("turned", foretold[:2], (heard.from_state, heard.to_state))
            self.same("how many run", foretold[3], heard.running)
            if not late:
                self.same("how many were moved", foretold[2], heard.jobs)

    @rule(data=st.data(), verb=halves, what=st.sampled_from(["site", "stage"]), dry=rarely)
    def turns_a_site_or_a_stage(self, data: st.DataObject, verb: str, what: str, dry: bool) -> None:
        site = self.site(data)
        if what == "site":
            foretold, heard = self.do(
                f"{verb} site",
                lambda world: house.turn_site(world.sites[site.slug], verb),
                lambda: getattr(self.services.sites, verb)(site.id, **self.by(dry)),
                dry=dry,
            )
            if heard is not None:
                self.same("turned", foretold, (heard.from_state, heard.to_state))
            return
        fitting = [g.name for g in site.stages.values() if g.state in house.TURNS[verb][0]]
        stage = data.draw(st.sampled_from([*fitting * 3, *site.stages, "nothing"]), "stage")
        self.do(
            f"{verb} stage",
            lambda world: house.turn_stage(world.sites[site.slug], verb, stage),
            lambda: getattr(self.services.planning, verb)(site.id, stage, **self.by(dry)),
            dry=dry,
        )

    @rule(data=st.data(), dry=rarely)
    def retires_a_stage(self, data: st.DataObject, dry: bool) -> None:
        site = self.site(data)
        stage = self.stage(data, site)
        foretold, heard = self.do(
            "retire",
            lambda world: house.retire(world, world.sites[site.slug], stage),
            lambda: self.services.planning.retire(site.id, stage, **self.by(dry)),
            dry=dry,
        )
        if foretold is not None and heard is not None:
            self.same("what follows", foretold[0], heard.next)
            if not dry:
                self.same("how many moved on", foretold[1], heard.moved)

    @precondition(lambda self: any(g.state == "retired" for s in self.world.sites.values() for g in s.stages.values()))
    @rule(data=st.data())
    def restores_a_stage(self, data: st.DataObject) -> None:
        site = self.site(data)
        gone = [g.name for g in site.stages.values() if g.state == "retired"]
        stage = data.draw(st.sampled_from(gone), "stage") if gone else self.stage(data, site)
        self.do(
            "restore",
            lambda world: house.restore(world.sites[site.slug], stage),
            lambda: self.services.planning.restore(site.id, stage, actor=ACTOR),
        )

    # Widths.

    def limited(self, data: st.DataObject, site: Site) -> str:
        """A stage; rather one where somebody holds a slot."""
        busy = sorted({j.stage for j in site.jobs if j.slot})
        wanted = data.draw(st.booleans(), "a busy one")
        if busy and wanted:
            return data.draw(st.sampled_from(busy), "stage")
        return self.stage(data, site)

    @precondition(lambda self: any(s.lanes for s in self.world.sites.values()))
    @rule(data=st.data(), what=st.sampled_from(["width", "width", "max_attempts", "default"]), dry=rarely)
    def sets_a_lane(self, data: st.DataObject, what: str, dry: bool) -> None:
        site = self.site(data)
        name, stage = self.lane(data, site), self.limited(data, site)
        changes: dict[str, Any] = {}
        default: list[str] = []
        match what:
            case "width":
                changes = {"width": data.draw(widths, "width")}
            case "max_attempts":
                changes = {"max_attempts": data.draw(st.integers(1, 3), "attempts")}
            case _:
                default = ["width", "max_attempts"]
        late = self.world.late()
        foretold, heard = self.do(
            "set lane",
            lambda world: house.set_lane(world, world.sites[site.slug], name, stage, changes, default),
            lambda: self.services.widths.of_lane(site.id, name, stage, changes, default=default, **self.by(dry)),
            dry=dry,
        )
        if foretold is not None and heard is not None:
            self.same("what was set", foretold[:2], (heard.before, heard.after))
            if not late:
                self.same("how many were judged anew", foretold[2], heard.jobs)

    @rule(data=st.data(), width=widths, dry=rarely)
    def sets_a_stage(self, data: st.DataObject, width: int | None, dry: bool) -> None:
        site = self.site(data)
        stage = self.limited(data, site)
        late = self.world.late()
        foretold, heard = self.do(
            "set stage",
            lambda world: house.set_stage(world, world.sites[site.slug], stage, width),
            lambda: self.services.widths.of_stage(site.id, stage, width, **self.by(dry)),
            dry=dry,
        )
        if foretold is not None and heard is not None:
            self.same("what was set", ({"width": foretold[0]}, {"width": width}), (heard.before, heard.after))
            if not late:
                self.same("how many were judged anew", foretold[1], heard.jobs)

    @precondition(lambda self: any(s.lanes for s in self.world.sites.values()))
    @rule(data=st.data(), policy=st.sampled_from(["skip", "halt"]), dry=rarely)
    def sets_what_a_failure_does(self, data: st.DataObject, policy: str, dry: bool) -> None:
        site = self.site(data)
        name = self.lane(data, site)
        foretold, heard = self.do(
            "set on_failed",
            lambda world: house.set_on_failed(world.sites[site.slug], name, policy),
            lambda: self.services.widths.on_failed(site.id, name, policy, **self.by(dry)),
            dry=dry,
        )
        if heard is not None:
            self.same("what was set", {"on_failed": foretold}, heard.before)

    # Places.

    def topic(self, data: st.DataObject, site: Site, what: str, *, near: str | None = None) -> str:
        """One that may be moved, or to which another may; now and then any, or none."""
        lane = site.topics[near].lane if near in site.topics else None
        fit = [
            t.slug
            for t in site.topics.values()
            if (site.unfinished(t.slug) is not None or near) and lane in (None, t.lane) and t.slug != near
        ]
        return data.draw(st.sampled_from([*sorted(fit) * 9, *sorted(site.topics), "nobody"]), what)

    @rule(data=st.data(), before=st.booleans(), dry=rarely)
    def moves_a_topic(self, data: st.DataObject, before: bool, dry: bool) -> None:
        site = self.site(data)
        slug = self.topic(data, site, "topic")
        mate = self.topic(data, site, "mate", near=slug)
        where = {"before" if before else "after": mate}
        foretold, heard = self.do(
            "move",
            lambda world: house.move(world, world.sites[site.slug], slug, mate, before=before),
            lambda: self.services.places.move(site.id, slug, **where, **self.by(dry)),  # type: ignore[arg-type]
            dry=dry,
        )
        if heard is not None:
            self.same("moved", foretold, (heard.before and heard.before.position, heard.after.position))

    @rule(data=st.data(), dry=rarely)
    def moves_a_topic_to_another_lane(self, data: st.DataObject, dry: bool) -> None:
        site = self.site(data)
        slug = self.topic(data, site, "topic")
        lane = data.draw(st.sampled_from([*LANES * 5, "nowhere"]), "to lane")
        foretold, heard = self.do(
            "move to lane",
            lambda world: house.move_to_lane(world, world.sites[site.slug], slug, lane),
            lambda: self.services.places.move_to_lane(site.id, slug, lane, **self.by(dry)),
            dry=dry,
        )
        if heard is not None and heard.before is not None:
            places = (heard.before.lane, heard.before.position), (heard.after.lane, heard.after.position)
            self.same("moved", foretold, places)

    @rule(data=st.data(), dry=rarely)
    def inserts_a_topic(self, data: st.DataObject, dry: bool) -> None:
        site = self.site(data)
        mate = self.topic(data, site, "mate")
        lane = site.topics[mate].lane if mate in site.topics else "north"
        slug = f"{lane[0]}{len(site.topics)}"
        if sum(t.lane == lane for t in site.topics.values()) > MOST:
            return
        foretold, heard = self.do(
            "insert",
            lambda world: house.insert(world, world.sites[site.slug], lane, slug, 1, mate),
            lambda: self.services.places.insert(site.id, topic_row(lane, slug, 1), mate, **self.by(dry)),
            dry=dry,
        )
        if heard is not None:
            self.same("inserted", foretold, heard.after.position)

    # Upkeep.

    @rule(data=st.data(), what=st.sampled_from(["settle", "heal", "move on"]))
    def upkeep(self, data: st.DataObject, what: str) -> None:
        self.mend(self.site(data), what)

    def mend(self, site: Site, what: str) -> None:
        model = {"settle": house.settle, "heal": house.heal, "move on": house.move_on}[what]
        services = self.services
        act = {"settle": services.lanes.settle, "heal": services.work.heal, "move on": services.planning.move_on}[what]
        foretold, heard = self.do(what, lambda world: model(world, world.sites[site.slug]), lambda: act(site.id))
        self.same(f"how many it found to {what}", foretold, heard)
