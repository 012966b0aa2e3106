"""The state machine of one lane, as parts 3 to 5 of the design tell it: every step that a world allows.

It shares the names of the states with the product and nothing else; least of all its SQL. Each switch in ``broken``
takes one rule away: ``twins.py`` lists them, and shows that the rule was needed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pipeline.states import FINAL, HALTING, JobState as S
from tests.model.world import IDLE, NOBODY, NOTHING, WORKER, Candidate, Draft, Job, Scope, Step, Worker, World, tokens

OUTCOMES = {
    "advance": {"done"},
    "reject": {"rejected"},
    "retry": {"retry", "failed"},
    "snooze": {"snoozed"},
    "hold": {"held"},
    "fail": {"failed"},
    "repair": {"repair"},
    "release": {"released"},
}
"""What a worker's verb may be recorded as; or as ``cancelled``, where a cancel was asked for."""

AWAY: dict[str, Any] = {"gate": False, "slot": False}
NOT_RESERVED: dict[str, Any] = {"token": NOBODY, "over": False}


class Machine:
    """The steps of a lane within a scope, with some rules taken away."""

    def __init__(self, scope: Scope, broken: Iterable[str] = ()) -> None:
        self.scope = scope
        self.broken = frozenset(broken)
        self._said = tuple(sorted(WORKER & scope.verbs))

    def start(self) -> World:
        """All topics are planned, in an active lane; nothing has begun."""
        scope = self.scope
        draft = Draft(
            World((), (IDLE,) * scope.workers, (NOTHING,) * scope.reapers, (0,) * len(scope.strict), True, ())
        )
        new = Job(S.PENDING, 0, -1, 0, scope.attempts, 0, scope.rounds)
        draft.jobs = [new] * scope.jobs
        for n in range(scope.jobs):
            self._arrive(draft, n, 0)
        self._give_turns(draft, scope.gates)
        return draft.world()

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Every step that may be taken next. A step that changes nothing is left out."""
        yield from self._by_workers(world)
        yield from self._by_time(world)
        yield from self._by_reapers(world)
        yield from self._by_people(world)

    # Order: arrival, passed, promotion.

    def _arrive(self, draft: Draft, n: int, stage: int, **new: Any) -> None:
        """Bring a job to a stage, under the lock of its gate, if it has one."""
        job = draft.jobs[n]._replace(**{"stage": stage, "hold": False, **AWAY, **NOT_RESERVED, **new})
        turn = self.scope.strict[stage] and (
            (n + 1 > draft.passed[stage] and job.cleared < stage) or "second turn" in self.broken
        )
        draft.jobs[n] = job._replace(state=S.WAITING if turn else S.PENDING, gate=turn)

    def head(self, jobs: Iterable[Job], passed: int, stage: int) -> int | None:
        """The lowest place beyond ``passed`` that still owes the gate of this stage its turn, whatever its state."""
        return next(
            (n for n, j in enumerate(jobs) if n >= passed and j.cleared < stage and j.state not in FINAL),
            None,
        )

    def _give_turns(self, draft: Draft, stages: Iterable[int], by: int = -1) -> None:
        """After the write: move ``passed`` of the locked gates, then promote. ``by`` is the job that moved."""
        for stage in stages:
            job = draft.jobs[by]
            if "passed set directly" in self.broken and (job.cleared >= stage or job.state is S.SKIPPED) and by >= 0:
                draft.passed[stage] = max(draft.passed[stage], by + 1)
            elif not ("skip leaves passed" in self.broken and job.state is S.SKIPPED):
                head = self.head(draft.jobs, draft.passed[stage], stage)
                draft.passed[stage] = len(draft.jobs) if head is None else head
            if draft.active:
                self._promote(draft, stage)

    def _promote(self, draft: Draft, stage: int) -> None:
        free = "no look for room" in self.broken or not any(j.slot and j.stage == stage for j in draft.jobs)
        n = self.head(draft.jobs, draft.passed[stage], stage)
        if "predecessor and room" in self.broken:
            n = next((m for m in range(len(draft.jobs)) if self._follows(draft, m, stage)), None)
        if "whoever waits" in self.broken:
            n = next((m for m, j in enumerate(draft.jobs) if j.state is S.WAITING and j.stage == stage), None)
            free = True
        if n is None or not free:
            return
        job = draft.jobs[n]
        held = job.hold and "held is promoted" not in self.broken
        if job.stage == stage and job.state is S.WAITING and job.gate and not held:
            draft.jobs[n] = job._replace(state=S.PENDING, slot=True)

    def _follows(self, draft: Draft, n: int, stage: int) -> bool:
        """The rule that breaks order: what stands just before it is released or skipped, and it waits here."""
        job, before = draft.jobs[n], draft.jobs[n - 1]
        return (
            (n == 0 or before.state in FINAL or before.cleared >= stage)
            and job.stage == stage and job.state is S.WAITING and job.gate and not job.hold
        )  # fmt: skip

    # Workers.

    def _by_workers(self, world: World) -> Iterator[tuple[Step, World]]:
        for w, worker in enumerate(world.workers):
            if worker.job < 0:
                yield from self._claims(world, w)
                continue
            if worker.said:
                draft = Draft(world)
                if "resend unguarded" in self.broken:
                    self._say(draft, worker.job, worker.said)
                    answer = "written"
                else:
                    answer = self._answer(draft, worker, worker.said, self._write(draft, worker, worker.said))
                draft.workers[w] = IDLE
                if world.jobs != tuple(draft.jobs) or "resent for ever" not in self.broken:
                    yield Step(worker.said, worker.job, w, answer, again=True), draft.world()
            else:
                yield from self._outcomes(world, w, worker)
            if "crash" in self.scope.verbs:
                draft = Draft(world)
                draft.workers[w] = IDLE
                yield Step("crash", worker.job, w), draft.world()

    def _claims(self, world: World, w: int) -> Iterator[tuple[Step, World]]:
        if w > 0 and world.workers[w - 1].job < 0:
            return  # one idle worker is as good as another
        unguarded = "claim without state" in self.broken
        for n, job in enumerate(world.jobs):
            due = job.state is S.PENDING or (unguarded and job.state is S.RESERVED)
            left = job.attempts < job.permitted or "claim without attempts" in self.broken
            if not (due and left and (world.active or "claim while paused" in self.broken)):
                continue
            draft = Draft(world)
            charge = "charged at failure" not in self.broken
            token = self._token(world, n)
            draft.jobs[n] = job._replace(
                state=S.RESERVED, token=token, over=False, attempts=job.attempts + charge, runs=job.runs + 1
            )
            draft.workers[w] = Worker(n, token)
            yield Step("claim", n, w), draft.world()

    def _token(self, world: World, n: int) -> int:
        if "token used again" in self.broken:
            known = [w.token for w in world.workers if w.job == n] + [r.token for r in world.reapers if r.job == n]
            if known:
                return known[0]
        return max((*tokens(world), *(t for t, _ in world.records), NOBODY)) + 1

    def _outcomes(self, world: World, w: int, worker: Worker) -> Iterator[tuple[Step, World]]:
        """What a worker at work may do next: renew its lease, or end; and the answer to that may be lost."""
        job = world.jobs[worker.job]
        if "renew" in self.scope.verbs:
            draft = Draft(world)
            if self._ours(job, worker.token) or ("renew without token" in self.broken and job.state is S.RESERVED):
                draft.jobs[worker.job] = job._replace(over=False)
                if job.over:
                    yield Step("renew", worker.job, w, "written"), draft.world()
            else:
                draft.workers[w] = IDLE
                yield Step("renew", worker.job, w, "lost"), draft.world()
        for verb in self._said:
            if verb == "reject" and job.stage == 0:
                continue
            draft = Draft(world)
            written = self._write(draft, worker, verb)
            answer = self._answer(draft, worker, verb, written)
            draft.workers[w] = IDLE
            yield Step(verb, worker.job, w, answer), draft.world()
            if verb in self.scope.unsure:
                waits = Worker(worker.job, worker.token, verb)
                if written:
                    draft.workers[w] = waits
                    yield Step(verb, worker.job, w), draft.world()
                draft = Draft(world)
                draft.workers[w] = waits
                yield Step("unsent", worker.job, w), draft.world()

    def _ours(self, job: Job, token: int) -> bool:
        same = job.token == token or "no token check" in self.broken
        return same and (job.state is S.RESERVED or "no state check" in self.broken)

    def _answer(self, draft: Draft, worker: Worker, verb: str, written: bool) -> str:
        """On no row the fence is looked up: the first answer may have been lost on its way."""
        recorded = draft.records.get(worker.token, "")
        if written or recorded in OUTCOMES[verb] | {"cancelled"} or "lost is not told" in self.broken:
            return "written"
        return "lost"

    def _write(self, draft: Draft, worker: Worker, verb: str) -> bool:
        if not self._ours(draft.jobs[worker.job], worker.token):
            return False
        self._say(draft, worker.job, verb)
        return True

    def _say(self, draft: Draft, n: int, verb: str) -> None:
        """Write what a worker says of a job that it holds."""
        job = draft.jobs[n]
        scope, left, broken = self.scope, self._left(job), self.broken
        none_left = job.attempts >= job.permitted
        if "charged at failure" in broken and verb in ("retry", "fail", "repair"):
            job = draft.jobs[n] = job._replace(attempts=job.attempts + 1)
        fresh = {"attempts": 0, "permitted": scope.attempts, "returned": 0, "runs": 0}
        match verb:
            case "advance" if job.stage == scope.last:
                self._end(draft, n, "done", S.DONE, left, cleared=job.stage, completions=job.completions + 1, **AWAY)
            case "advance":
                after = job.stage + 1
                entered = (*left, *self._gate(after))
                cleared = max(job.cleared, job.stage)
                self._end(draft, n, "done", None, entered, stage=after, cleared=cleared, spent=False, **fresh)
            case "reject" if job.rounds == 0:
                self._end(draft, n, "rejected", S.REPAIR, left, spent=True, **AWAY)
            case "reject":
                entered = (*left, *self._gate(0))
                self._end(draft, n, "rejected", None, entered, stage=0, rounds=job.rounds - 1, **fresh)
            case "retry" if not none_left:
                self._end(draft, n, "retry", S.PENDING, ())
            case "fail" | "retry":
                away = scope.gates if scope.skips and "skip leaves gates" not in broken else left
                self._end(draft, n, "failed", S.SKIPPED if scope.skips else S.FAILED, away, spent=False, **AWAY)
            case "snooze":
                self._end(draft, n, "snoozed", S.PENDING, (), attempts=job.attempts - 1, runs=job.runs - 1)
            case "hold":
                kept = job.slot and "hold keeps the slot" in broken
                given = {"attempts": job.attempts - 1, "runs": job.runs - 1}
                self._end(draft, n, "held", S.WAITING, left, hold=True, slot=kept, **given)
            case "repair":
                self._end(draft, n, "repair", S.REPAIR, left, spent=False, **AWAY)
            case "release":
                free = job.returned < job.permitted or "release without bound" in broken
                given = {"attempts": job.attempts - free, "runs": job.runs - free}
                self._back(draft, n, "released", **given, returned=job.returned + (job.returned < job.permitted))

    def _left(self, job: Job) -> tuple[int, ...]:
        return (job.stage,) if job.gate else ()

    def _gate(self, stage: int) -> tuple[int, ...]:
        return (stage,) if self.scope.strict[stage] else ()

    def _back(self, draft: Draft, n: int, outcome: str, **new: Any) -> None:
        """Pending again at its place; or to repair, when no attempt is left."""
        job = draft.jobs[n]
        if new.get("attempts", job.attempts) < job.permitted or "last attempt forgotten" in self.broken:
            self._end(draft, n, outcome, S.PENDING, (), **new)
        else:
            self._end(draft, n, outcome, S.REPAIR, self._left(job), spent=False, **AWAY, **new)

    def _end(self, draft: Draft, n: int, outcome: str, state: S | None, gates: Iterable[int], **new: Any) -> None:
        """Take the token away and record it; ``state`` None: by the rule of arrival. A cancel that was asked for wins,
        except over done; it gives nothing back."""
        job = draft.jobs[n]
        draft.records[job.token] = outcome
        if job.cancel and state is not S.DONE and "cancel forgotten" not in self.broken:
            draft.records[job.token] = outcome if outcome == "expired" else "cancelled"
            draft.jobs[n] = job._replace(state=S.CANCELLED, cancel=False, **AWAY, **NOT_RESERVED)
        elif state is None:
            self._arrive(draft, n, new.pop("stage"), cancel=False, **new)
        else:
            draft.jobs[n] = job._replace(**{"state": state, "cancel": False, **NOT_RESERVED, **new})
        self._give_turns(draft, gates, n)

    # Time and reapers.

    def _by_time(self, world: World) -> Iterator[tuple[Step, World]]:
        if "expire" in self.scope.verbs:
            for n, job in enumerate(world.jobs):
                if job.state is S.RESERVED and not job.over:
                    draft = Draft(world)
                    draft.jobs[n] = job._replace(over=True)
                    yield Step("expire", n), draft.world()

    def _by_reapers(self, world: World) -> Iterator[tuple[Step, World]]:
        """In two steps: candidates are read without locks, then written under the whole guard."""
        for r, seen in enumerate(world.reapers):
            if seen.job >= 0:
                draft = Draft(world)
                draft.reapers[r] = NOTHING
                job = draft.jobs[seen.job]
                guard = job.state is S.RESERVED and job.token == seen.token
                guard = guard and (job.over or "lease not judged" in self.broken)
                if guard or "reaper unguarded" in self.broken:
                    self._back(draft, seen.job, "expired")
                    if "reap unrecorded" in self.broken:
                        draft.records.pop(job.token)
                yield Step("reap", seen.job, r), draft.world()
            elif "look" in self.scope.verbs and not (r and world.reapers[r - 1].job < 0):
                for n, job in enumerate(world.jobs):
                    if job.state is S.RESERVED and job.over and "nobody reaps" not in self.broken:
                        draft = Draft(world)
                        draft.reapers[r] = Candidate(n, job.token)
                        yield Step("look", n, r), draft.world()

    # People and upkeep.

    def _by_people(self, world: World) -> Iterator[tuple[Step, World]]:
        verbs = self.scope.verbs
        for n, job in enumerate(world.jobs):
            for verb in self._allowed(job):
                if verb in verbs:
                    draft = Draft(world)
                    self._order(draft, n, verb)
                    yield Step(verb, n), draft.world()
        if "pause" in verbs and world.active:
            draft = self._demoted(world)
            draft.active = False
            yield Step("pause"), draft.world()
        if "resume" in verbs and not world.active:
            draft = Draft(world)
            draft.active = True
            for n, job in enumerate(draft.jobs):
                awake = not job.hold or "resume wakes what is held" in self.broken
                if job.state is S.WAITING and not job.gate and awake:
                    draft.jobs[n] = job._replace(state=S.PENDING)
            if "resume without turns" not in self.broken:
                self._give_turns(draft, self.scope.gates)
            yield Step("resume"), draft.world()
        if "settle" in verbs and not world.active and any(j.state is S.PENDING for j in world.jobs):
            yield Step("settle"), self._demoted(world).world()

    def _demoted(self, world: World) -> Draft:
        draft = Draft(world)
        for n, job in enumerate(draft.jobs):
            if job.state is S.PENDING:
                kept = job.slot and "pause keeps the slot" in self.broken
                draft.jobs[n] = job._replace(state=S.WAITING, slot=kept)
        return draft

    def _allowed(self, job: Job) -> Iterator[str]:
        """The verbs that a person may use on a job, in its state and within the scope's bounds."""
        most = self.scope.most or self.scope.attempts
        trusted = "cancel without state" in self.broken and job.state in FINAL
        if job.state in (S.WAITING, S.PENDING) or (job.state is S.RESERVED and not job.cancel) or trusted:
            yield "cancel"
        if job.state is S.RESERVED:
            yield "force"
        elif job.state not in FINAL and not (job.state is S.REPAIR and "repair is not skipped" in self.broken):
            yield "skip"
        if job.state in HALTING:
            if not job.spent and job.attempts + self.scope.grant <= most:
                yield "requeue"
            if job.stage > 0:
                yield "send back"
        if job.state in (S.WAITING, S.PENDING, S.RESERVED) and job.permitted + self.scope.grant <= most:
            yield "grant"
        if job.hold:
            yield "approve"

    def _order(self, draft: Draft, n: int, verb: str) -> None:
        """Write what a person orders."""
        job = draft.jobs[n]
        scope, left, broken = self.scope, self._left(job), self.broken
        match verb:
            case "cancel" if job.state is S.RESERVED:
                draft.jobs[n] = job._replace(cancel=True)
            case "cancel":
                draft.jobs[n] = job._replace(state=S.CANCELLED, hold=False, **AWAY)
                self._give_turns(draft, left, n)
            case "force":
                if "force unrecorded" not in broken:
                    draft.records[job.token] = "forced"
                kept = {} if "force keeps the token" in broken else NOT_RESERVED
                draft.jobs[n] = job._replace(state=S.CANCELLED, cancel=False, **AWAY, **kept)
                self._give_turns(draft, left, n)
            case "requeue":
                self._arrive(draft, n, job.stage, permitted=job.attempts + scope.grant)
                if "requeue takes a slot" in broken and draft.jobs[n].gate:
                    draft.jobs[n] = draft.jobs[n]._replace(state=S.PENDING, slot=True)
                self._give_turns(draft, self._gate(job.stage), n)
            case "send back":
                fresh = {"attempts": 0, "permitted": scope.grant, "runs": 0}
                self._arrive(draft, n, 0, rounds=scope.rounds, spent=False, **fresh)
                self._give_turns(draft, self._gate(0), n)
            case "skip":
                draft.jobs[n] = job._replace(state=S.SKIPPED, hold=False, spent=False, **AWAY)
                self._give_turns(draft, scope.gates, n)
            case "grant":
                draft.jobs[n] = job._replace(permitted=job.permitted + scope.grant)
            case "approve":
                self._arrive(draft, n, job.stage)
                self._give_turns(draft, self._gate(job.stage), n)
