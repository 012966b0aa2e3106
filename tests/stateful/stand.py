"""What all rules stand on: a verb is foretold by the model, done on the real services, and compared, reply and rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import note, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from pipeline import errors
from pipeline.build import Services
from pipeline.db import sqlstate
from pipeline.project.site import Site as ProjectSite
from pipeline.service.append import input_hash
from pipeline.service.audit import Audit
from pipeline.service.planning import StageSpec
from pipeline.states import JobState as S
from pipeline.testing import database
from pipeline.testing.database import SCHEMA
from pipeline.views import TopicRow
from tests.stateful.compare import TITLE, TYPE, Reader, differences, foretold
from tests.stateful.coverage import Coverage
from tests.stateful.model import Job, Refusal, Site, Stage, World

T = TypeVar("T")
R = TypeVar("R")

KINDS = ("ProjectError", "Conflict", "NotFound", "LeaseLost", "Refused")
LANES = ("north", "south")
MOST = 5  # topics of a lane, so that they meet at their gates
GAP = 1000


@dataclass(frozen=True)
class Ground:
    """What a run has: the services, a reader of its own, and the count of what was reached."""

    engine: Engine
    services: Services
    reader: Reader
    coverage: Coverage


class Stand(RuleBasedStateMachine):
    """One example: an empty database, two sites, and the model of it all."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        self.services = ground.services
        self.reader = ground.reader
        self.coverage = ground.coverage
        self.world = World()
        self.ended = False  # our sessions were: the next to be used will find out
        with ground.engine.begin() as connection:
            database.empty(connection)
        self.coverage.examples += 1

    def teardown(self) -> None:
        if self.ended:
            self.ground.engine.dispose()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Two sites, of three stages and of two; some topics are planned."""
        widths = st.sampled_from(
            [(None, None, 1), (None, 2, 1), (1, None, 2), (2, 1, 1), (None, 1, 2), (None, None, 3)]
        )
        draft, check, publish = data.draw(widths, "widths of acme")
        attempts = data.draw(st.integers(1, 3), "attempts")
        self._site("acme", [("draft", draft), ("check", check), ("publish", publish)], attempts)
        self._site("beta", [("draft", None), ("publish", 1)], 2)
        self._plan("acme", [("north", f"n{k}", 1) for k in range(3)] + [("south", "s0", 1)])
        self.set_out(data)

    def set_out(self, data: st.DataObject) -> None:
        """Bring them on their way, so that examples begin at different places."""

    def _site(self, slug: str, stages: Sequence[tuple[str, int | None]], attempts: int) -> None:
        specs = [StageSpec(name, width, attempts) for name, width in stages]
        here = Path(".")
        site = ProjectSite(slug=slug, folder=here, output=here, name=slug, base_url="https://example.com")
        site_id = self.services.planning.register(site, specs)
        rows = {n: Stage(n, GAP * k, w, attempts) for k, (n, w) in enumerate(stages, 1)}
        self.world.sites[slug] = Site(slug, site_id, stages=rows)

    def _plan(self, slug: str, topics: Sequence[tuple[str, str, int]], *, dry: bool = False) -> None:
        site_id = self.world.sites[slug].id
        rows = [topic_row(lane, name, version, n) for n, (lane, name, version) in enumerate(topics)]
        foretold, heard = self.do(
            "plan",
            lambda world: world.sites[slug].plan(topics),
            lambda: self.services.planning.plan(site_id, rows, dry_run=dry),
            dry=dry,
        )
        if heard is not None and foretold is not None:
            told = {name: getattr(heard, name) for name in ("new", "changed", "unchanged", "busy")}
            self.same("planned", foretold, told | {"closed": sorted(heard.closed), "absent": sorted(heard.absent)})

    # Foretell, do, compare.

    def do(
        self, verb: str, predict: Callable[[World], T], act: Callable[[], R], *, dry: bool = False
    ) -> tuple[T | None, R | None]:
        """What the model foretells, and what the services answer; (None, None) where both refuse alike.

        With ``dry`` nothing may have changed, in no table.
        """
        twin = self.world.copy()
        expected: T | None = None
        try:
            expected, kind = predict(twin), "done"
        except Refusal as refusal:
            kind = str(refusal)
        before = self.reader.whole() if dry or kind != "done" else None
        heard: R | None = None
        try:
            heard, answer = self.patiently(act), "done"
        except errors.PipelineError as error:
            answer = next((c.__name__ for c in type(error).__mro__ if c.__name__ in KINDS), type(error).__name__)
            note(f"{verb}: {answer}: {error}")
        self.same(f"answer to {verb}", kind, answer)
        self.coverage.steps += 1
        self.coverage.replies[f"{verb}{' (dry)' if dry else ''}: {kind}"] += 1
        if before is not None:
            self.same("every table", before, self.reader.whole())
        elif kind == "done":
            moves, twin.moves = twin.moves, []
            self.coverage.moves.update(moves)
            self.world = twin
        self.compare()
        return expected, heard

    def patiently(self, act: Callable[[], R]) -> R:
        """A session that was ended between two verbs fails the first to use it, before it did anything; then again."""
        try:
            return act()
        except DBAPIError as error:
            if not (self.ended and error.connection_invalidated):
                raise
            self.coverage.codes[sqlstate(error) or "none"] += 1
            note(f"the session was ended: {sqlstate(error)}")
            self.ended = False
            return act()

    def same(self, what: str, model: Any, database: Any) -> None:
        assert model == database, f"{what} differs\n  model:    {model}\n  database: {database}"

    def compare(self) -> None:
        """Learn how the database calls what is new, and who got a turn at a late gate; then all must be the same."""
        jobs = self.reader.jobs()
        known = {job.id for _, job in self.world.jobs()}
        for row in jobs:
            if row["id"] not in known:
                site = self.world.sites[row["site"]]
                for job in site.jobs:
                    if not job.id and (job.slug, job.number) == (row["slug"], row["number"]):
                        job.id = row["id"]
                        break
        states = {row["id"]: row["state"] for row in jobs}
        for site in self.world.sites.values():
            for lane in site.lanes.values():
                for gate in lane.gates.values():
                    ready = site.next_in_turn(lane.name, gate) if gate.late else []
                    if ready and states.get(ready[0].id) == S.PENDING:
                        self.coverage.moves.update(("promote", S.WAITING, S.PENDING) for _ in ready)
                        site.promote(lane.name, gate)
        found = differences(foretold(self.world), self.reader.world(jobs))
        assert not found, "\n  ".join(["the database is not what the model says:", *found])

    @invariant()
    def the_audit_is_clean(self) -> None:
        """Every invariant holds; and nobody could be promoted who is not, but where upkeep has still to look."""
        if self.world.sites and self.reader.broken():
            raise AssertionError(Audit(self.ground.engine, schema=SCHEMA).violations())
        for site in self.world.sites.values():
            for lane in site.lanes.values():
                ready = [g.stage for g in lane.gates.values() if not g.late and site.next_in_turn(lane.name, g)]
                assert not ready, f"lane {lane.name} stands still at {ready}"

    # What to choose from.

    def site(self, data: st.DataObject) -> Site:
        return self.world.sites[data.draw(st.sampled_from(["acme"] * 4 + ["beta"]), "site")]

    def lane(self, data: st.DataObject, site: Site) -> str:
        """A lane of the site; now and then one that is not there."""
        return data.draw(st.sampled_from([*sorted(site.lanes)] * 9 + ["nowhere"]), "lane")

    def stage(self, data: st.DataObject, site: Site) -> str:
        return data.draw(st.sampled_from([*site.stages] * 9 + ["nothing"]), "stage")

    def job(self, data: st.DataObject, fit: Callable[[Site, Job], bool]) -> Job | None:
        """A job: a state first, so that rare ones come as often; most are ``fit``."""
        everybody = list(self.world.jobs())
        fitting = [(site, job) for site, job in everybody if fit(site, job)]
        if not fitting or data.draw(st.integers(0, 9), "as it should be") == 9:
            fitting = everybody
        by_state: dict[S, dict[str, Job]] = {}
        for site, job in fitting:
            name = f"{site.slug}/{job.slug}#{job.number}" if job.slug else f"{site.slug} itself"
            by_state.setdefault(job.state, {})[name] = job
        if not by_state:
            return None
        names = by_state[data.draw(st.sampled_from(sorted(by_state)), "state")]
        return names[data.draw(st.sampled_from(sorted(names)), "job")]

    def reserved(self) -> list[Job]:
        return [job for _, job in self.world.jobs() if job.state is S.RESERVED]

    def end_sessions(self) -> int:
        """End every session that the pool keeps; returns how many."""
        ended = self.reader.rows(
            "SELECT pg_terminate_backend(pid, 5000) AS ended FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'test' AND pid <> pg_backend_pid()"
        )
        return len(ended)


def topic_row(lane: str, slug: str, version: int, line: int = 0) -> TopicRow:
    brief = {"v": version}
    return TopicRow(lane, slug, TITLE, TYPE, f"{slug}/", line, brief, line, input_hash(TITLE, TYPE, brief, {}))


def shift(engine: Engine, statement: str, **values: Any) -> None:
    """Move a column where time, or patience, would bring it."""
    with engine.begin() as connection:
        connection.execute(text(statement), values)
