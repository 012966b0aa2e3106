"""Walks of the model, replayed on the real services: after each step the database must map back to the model's world.

A walk is a function of its seed. Its choices are the model's, but for one: which of the due jobs a claim takes is the
database's, and the model must allow it.
"""

import random
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Expired
from pipeline.states import JobState as S
from pipeline.testing.database import SCHEMA
from pipeline.views import Claim
from tests.factories import ACTOR, Factory
from tests.model.machine import Machine
from tests.model.world import NOBODY, WORKER, Job, Scope, Step, World

LANE = "lane"
LEASE = timedelta(hours=1)  # it ends when the walk says so
TAKEN = ("expired", "forced")  # the error classes of those who take a reservation away

# What goes on is chosen more often than what ends or halts, so that walks come far.
WEIGHTS = {
    "claim": 8, "advance": 8, "resend": 8, "reject": 5, "expire": 4, "look": 5, "reap": 6, "renew": 5, "resume": 4,
    "settle": 8, "requeue": 4, "approve": 4, "skip": 1, "pause": 1, "cancel": 1, "force": 1, "crash": 1, "grant": 1,
}  # fmt: skip

_JOBS = text(f"""
SELECT j.*, j.lease_expires_at <= clock_timestamp() AS over,
       (SELECT count(*) FROM {SCHEMA}.attempts a
        WHERE a.job_id = j.id AND a.stage = j.stage AND a.round = j.round AND a.charged) AS charged,
       (SELECT count(*) FROM {SCHEMA}.attempts a
        WHERE a.job_id = j.id AND a.stage = :last AND a.outcome = 'done') AS completions
FROM {SCHEMA}.jobs j WHERE j.id = ANY(:ids) ORDER BY j.position""")

_GATES = text(f"""
SELECT g.stage, g.passed, l.state FROM {SCHEMA}.lanes l LEFT JOIN {SCHEMA}.gates g ON g.lane_id = l.id
WHERE l.site_id = :site_id""")

_RECORDS = text(f"SELECT fence, outcome, error_class FROM {SCHEMA}.attempts WHERE job_id = ANY(:ids)")


class Replay:
    """One lane of the model and one of the database, kept in step."""

    def __init__(self, make: Factory, scope: Scope, seed: int, broken: Iterable[str] = ()) -> None:
        self.make = make
        self.scope = scope
        self.seed = seed
        self.random = random.Random(seed)
        self.machine = Machine(scope, broken)
        self.world = self.machine.start()
        self.way: list[Step] = []
        self.names = [f"stage-{n}" for n in range(len(scope.strict))]
        self.claims: dict[int, Claim] = {}
        self.seen: dict[int, Expired] = {}  # by reaper
        specs = [StageSpec(n, 1 if s else None, scope.attempts) for n, s in zip(self.names, scope.strict, strict=True)]
        make.site(f"walk-{seed}", specs)
        self.ids = make.plan(lane=LANE, count=scope.jobs)
        with make.engine.begin() as connection:
            given = {"site_id": make.site_id}
            if scope.skips:
                connection.execute(
                    text(f"UPDATE {SCHEMA}.lanes SET on_failed = 'skip' WHERE site_id = :site_id"), given
                )
            found = connection.execute(
                text(f"SELECT name, ordinal FROM {SCHEMA}.stages WHERE site_id = :site_id"), given
            )
            ordinals = {row.ordinal: self.names.index(row.name) for row in found}
        self.ordinals = {-1: -1, **ordinals}

    def walk(self, steps: int) -> Counter[str]:
        """Take so many steps in both; returns how often each verb was taken and each answer heard.

        Raises AssertionError where they differ, with the steps so far.
        """
        taken: Counter[str] = Counter()
        self._compare()
        for _ in range(steps):
            options = list(self.machine.steps(self.world))
            if not options:
                break
            step, after = self._choose(options)
            self.way.append(step)
            if step.verb == "claim":
                step, after = self._claim(step, options)
                self.way[-1] = step
            else:
                heard = self._do(step)
                self._same("the answer", step.reply, heard if step.reply else "")
            self.world = after
            taken[step.name] += 1
            if step.reply:
                taken[step.reply] += 1
            self._compare()
        return taken

    def _choose(self, options: list[tuple[Step, World]]) -> tuple[Step, World]:
        verbs = sorted({step.name for step, _ in options})
        verb = self.random.choices(verbs, [WEIGHTS.get(v, 2) for v in verbs])[0]
        return self.random.choice([option for option in options if option[0].name == verb])

    def _same(self, what: str, model: Any, database: Any) -> None:
        if model != database:
            steps = "\n  ".join(map(str, self.way))
            raise AssertionError(
                f"walk {self.seed} ({self.scope.name}): {what} differs\n model:    {model}\n database: {database}\n"
                f" after:\n  {steps}"
            )

    # In the database.

    def _claim(self, step: Step, options: list[tuple[Step, World]]) -> tuple[Step, World]:
        stage = self.names[self.world.jobs[step.job].stage]
        found = self.make.claim(stage, worker=f"worker-{step.worker}", lease=LEASE)
        self._same("whether something is due", [True], [c.job_id in self.ids for c in found])
        place = self.ids.index(found[0].job_id)
        allowed = [o for o in options if o[0] == step._replace(job=place)]
        self._same(f"whether job {place + 1} is due", 1, len(allowed))
        step, after = allowed[0]
        self.claims[after.workers[step.worker].token] = found[0]
        return step, after

    def _do(self, step: Step) -> str:
        """The step on the real services; the answer that a worker hears."""
        services, site_id = self.make.services, self.make.site_id
        if step.worker >= 0 and step.verb in WORKER | {"renew"}:
            return self._say(step, self.claims[self.world.workers[step.worker].token])
        job_id = self.ids[step.job] if step.job >= 0 else 0
        match step.verb:
            case "unsent" | "crash":
                pass
            case "expire":
                self.make.expire(job_id)
            case "look":
                (candidate,) = [e for e in services.work.expired(site_id) if e.job_id == job_id]
                self._same("whether the lease is over", True, candidate.over)
                self.seen[step.worker] = candidate
            case "reap":
                services.work.reap([self.seen.pop(step.worker)])
            case "cancel":
                services.operate.cancel([job_id], actor=ACTOR)
            case "force":
                services.operate.cancel([job_id], actor=ACTOR, force=True)
            case "requeue":
                services.operate.requeue([job_id], actor=ACTOR, grant=self.scope.grant)
            case "send back":
                services.operate.requeue([job_id], actor=ACTOR, grant=self.scope.grant, stage=self.names[0])
            case "skip":
                services.operate.skip([job_id], actor=ACTOR)
            case "grant":
                services.operate.grant([job_id], actor=ACTOR, attempts=self.scope.grant)
            case "approve":
                services.operate.approve([job_id], actor=ACTOR)
            case "pause":
                services.lanes.pause(site_id, LANE, actor=ACTOR)
            case "resume":
                services.lanes.resume(site_id, LANE, actor=ACTOR)
            case "settle":
                services.lanes.settle(site_id)
            case _:
                raise AssertionError(f"no service for {step.verb!r}")
        return ""

    def _say(self, step: Step, claim: Claim) -> str:
        work = self.make.services.work
        if step.verb == "renew":
            return "written" if claim.fence in work.renew([claim]) else "lost"
        ack = Ack(claim, Verb(step.verb), hold="please look" if step.verb == "hold" else None)
        return work.acknowledge([ack], wait=True).fates[claim.fence].value

    # Back to the model.

    def _compare(self) -> None:
        """Every job, gate, lane and record of the database, in the model's words, is that of the model."""
        with self.make.engine.begin() as connection:
            jobs = connection.execute(_JOBS, {"ids": self.ids, "last": self.names[-1]}).all()
            gates = connection.execute(_GATES, {"site_id": self.make.site_id}).all()
            records = connection.execute(_RECORDS, {"ids": self.ids}).all()
        for n, row in enumerate(jobs):
            self._same(f"job {n + 1}", self.world.jobs[n], self._job(row))
        passed = {row.stage: row.passed for row in gates}
        self._same("passed", self.world.passed, tuple(passed.get(name, 0) for name in self.names))
        self._same("the lane", self.world.active, gates[0].state == "active")
        fences = {claim.fence: token for token, claim in self.claims.items()}
        recorded = {fences[r.fence]: r.error_class if r.error_class in TAKEN else r.outcome for r in records}
        self._same("what is recorded", dict(self.world.records), recorded)

    def _job(self, row: Any) -> Job:
        reserved = row.state == S.RESERVED
        fences = {claim.fence: token for token, claim in self.claims.items() if claim.token == row.token}
        return Job(
            state=S(row.state),
            stage=self.names.index(row.stage),
            cleared=self.ordinals[row.cleared],
            attempts=row.attempts,
            permitted=row.max_attempts,
            returned=row.given_back,
            rounds=row.max_rounds - row.round,
            gate=row.gate_id is not None,
            slot=row.slot is not None,
            hold=row.hold is not None,
            cancel=row.cancel_requested and reserved,
            spent=row.state == S.REPAIR and row.error_class == "rejected",
            token=fences[row.fence] if row.token else NOBODY,
            over=bool(row.over),
            runs=row.charged + reserved,
            completions=row.completions,
        )
