"""The history checker: pure functions over the records of a run, one for each point of its list.

They believe none of the three logs alone: what clients were told is held against the database, and what stages did
against both.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tests.chaos.history import Answer
from tests.chaos.records import STRICT, Attempt, Broken, Event, Job, Records, Run

SETTLED = ("done", "skipped")
HALTED = ("failed", "repair", "cancelled")
TAKEN = ("expired", "cancelled", "released")  # outcomes that leave a stage running behind
PLANS = ("plan", "append", "insert")
NEVER = float("inf")
CLOCKS = 0.005  # seconds by which a stage's own clock and the server's may be read apart


def settled_and_not_invented(r: Records) -> Iterator[Broken]:
    """(1) Each acknowledged plan is there and came to an end; nothing is there that nobody asked for."""
    there = {(t.site, t.slug): t for t in r.topics.values()}
    may_be: set[tuple[str, str]] = set()
    for call in r.calls:
        if call.verb not in PLANS:
            continue
        if call.answer is not Answer.REFUSED:
            may_be |= {(call.asked["site"], slug) for slug in call.asked["slugs"]}
        if call.answer is Answer.OK:
            for slug in call.got:
                if (call.asked["site"], slug) not in there:
                    yield Broken(1, "an acknowledged topic is lost", {"slug": slug, "call": call.id})
    for key, topic in there.items():
        if key not in may_be:
            yield Broken(1, "a topic is there that nobody planned, or whose plan was refused", {"slug": topic.slug})
    passes = defaultdict(list)
    for job in r.jobs.values():
        if job.topic is not None:
            passes[job.topic].append(job)
    for id, topic in r.topics.items():
        if not passes[id]:
            yield Broken(1, "a topic has no pass", {"slug": topic.slug})
    for job in r.jobs.values():
        if job.topic is not None and job.state not in SETTLED:
            explained = job.state in HALTED and (job.error_class is not None or _last(r, job) is not None)
            if not explained:
                yield Broken(1, "a job came to no end", {"job": job.id, "state": job.state, "stage": job.stage})


def _last(r: Records, job: Job) -> Event | None:
    mine = [e for e in r.events if e.job == job.id and e.to_state == job.state]
    return mine[-1] if mine else None


def accepted_once(r: Records) -> Iterator[Broken]:
    """(2) One accepted completion of each stage of a pass and round, one outcome for each fence; all of it was run."""
    done = Counter((a.job, a.stage, a.round) for a in r.attempts.values() if a.outcome == "done")
    for (id, stage, round), count in done.items():
        # Requeued at a stage that it had done, it may be done once more: its round is another then.
        if count > 1:
            yield Broken(2, "accepted more than once", {"job": id, "stage": stage, "round": round, "times": count})
    for fence in r.double_runs:
        yield Broken(2, "one reservation was run twice", {"fence": fence})
    for fence, run in r.runs.items():
        attempt = r.attempts.get(fence)
        if attempt is None:
            yield Broken(2, "a stage ran under a fence that nobody gave", {"fence": fence})
        elif (r.jobs[attempt.job].topic, attempt.stage) != (run.topic, run.stage):
            yield Broken(2, "a stage ran on another job than its fence says", {"fence": fence})
    for job in r.jobs.values():
        if job.state == "done" and job.topic is not None and not done[job.id, job.stage, job.round]:
            yield Broken(2, "done without an accepted completion", {"job": job.id})
    for fence, attempt in r.attempts.items():
        if attempt.outcome == "done" and r.jobs[attempt.job].topic is not None:
            accepted = r.runs.get(fence)
            if accepted is None or accepted.end is None:
                yield Broken(2, "accepted without having been run to its end", {"fence": fence})


def told_the_truth(r: Records) -> Iterator[Broken]:
    """(3) What a client was told was done is in the database; what it was told was refused is not."""
    by_call: dict[str, list[Event]] = defaultdict(list)
    for event in r.events:
        by_call[event.reason].append(event)
    for call in r.calls:
        if call.verb in PLANS:
            continue
        found = by_call[call.id]
        if call.answer is Answer.REFUSED and found:
            yield Broken(3, "refused, and yet done", {"call": call.id, "verb": call.verb})
        jobs = sorted({e.job for e in found if e.job is not None})
        if "jobs" in call.asked:
            wrong = set(jobs) - set(call.asked["jobs"])
            if wrong:
                yield Broken(3, "something else was done than was asked", {"call": call.id, "jobs": sorted(wrong)})
            if call.answer is Answer.OK and jobs != sorted(call.got):
                yield Broken(3, "answered ok, and not done", {"call": call.id, "verb": call.verb})
            if call.answer is Answer.UNKNOWN and jobs and jobs != sorted(call.asked["jobs"]):
                yield Broken(3, "done in part", {"call": call.id, "verb": call.verb, "jobs": jobs})
        elif call.answer is Answer.OK and call.got and not found and call.verb != "move":
            yield Broken(3, "answered ok, and not noted", {"call": call.id, "verb": call.verb})
    for id, events in by_call.items():
        twice = [key for key, n in Counter((e.job, e.verb) for e in events).items() if id and n > 1]
        if twice and id.startswith("call-"):
            yield Broken(3, "one call was done twice", {"call": id})


def in_order(r: Records) -> Iterator[Broken]:
    """(4) At the strict stage no first pass began before every earlier position of its lane had ended there."""
    lanes: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in r.jobs.values():
        if job.topic is not None and job.number == 1:
            topic = r.topics[job.topic]
            lanes[topic.site, topic.lane].append(job)
    runs: dict[int, list[Run]] = defaultdict(list)
    ends: dict[int, float] = {}  # wall: when the topic left the strict stage
    for fence, run in r.runs.items():
        attempt = r.attempts.get(fence)
        if run.stage == STRICT and attempt is not None:
            runs[attempt.job].append(run)
            if attempt.outcome == "done" and run.end_wall is not None:
                ends[attempt.job] = run.end_wall
    for jobs in lanes.values():
        jobs.sort(key=lambda job: r.topics[job.topic or 0].position)
        over = [ends.get(j.id, (j.finished_at or NEVER) if j.state == "skipped" else NEVER) for j in jobs]
        latest = 0.0  # of all before: the pairs are judged for suspects alone
        for place, job in enumerate(jobs):
            for run in runs[job.id]:
                if run.wall + CLOCKS < latest and run.wall > _placed(r, job):
                    yield from _overtaken(r, job, run, jobs[:place], over)
            latest = max(latest, over[place])


def _placed(r: Records, job: Job) -> float:
    return r.topics[job.topic or 0].placed_at


def _overtaken(r: Records, job: Job, run: Run, earlier: Sequence[Job], over: Sequence[float]) -> Iterator[Broken]:
    """The earlier ones that still had their turn before them, of those that stood there by then."""
    for other, end in zip(earlier, over, strict=False):
        if end > run.wall + CLOCKS and _placed(r, other) <= run.wall:
            yield Broken(4, "began before its turn", {"job": job.id, "fence": run.fence, "before": other.id})


def attempts_are_counted(r: Records) -> Iterator[Broken]:
    """(5) Reservations of a job follow one another without overlap, and within the permitted number."""
    by_job: dict[int, list[Attempt]] = defaultdict(list)
    for fence in sorted(r.attempts):
        by_job[r.attempts[fence].job].append(r.attempts[fence])
    for id, mine in by_job.items():
        for one, next_ in pairwise(mine):
            if next_.reserved_at < one.ended_at:
                yield Broken(5, "reserved while it was reserved", {"job": id, "fences": (one.fence, next_.fence)})
        job = r.jobs[id]
        counted = sum(a.charged and (a.stage, a.round) == (job.stage, job.round) for a in mine)
        if job.attempts > job.max_attempts or (job.state in SETTLED and counted != job.attempts):
            yield Broken(
                5, "its attempts are not those on record", {"job": id, "counted": counted, "has": job.attempts}
            )


def files_are_the_ledger(r: Records) -> Iterator[Broken]:
    """(6) What the target has is what the ledger calls live, made under a reservation of that topic; done is live."""
    live = {(p.site, p.key): p for p in r.pages}
    for place, page in live.items():
        if r.files.get(place) != page.hash:
            yield Broken(6, "the file is not what the ledger says", {"page": place})
        attempt = r.attempts.get(page.fence)
        if attempt is None or r.jobs[attempt.job].topic != page.topic:
            yield Broken(6, "live under a fence that is not its own", {"page": place, "fence": page.fence})
    skipped = [r.topics[j.topic] for j in r.jobs.values() if j.state == "skipped" and j.topic is not None]
    given_up = {(t.site, f"{t.slug}/index.html") for t in skipped}
    for place in r.files.keys() - live.keys():
        # Written by one whose confirmation never came; its topic was given up then.
        if place not in given_up:
            yield Broken(6, "a file that the ledger does not know", {"page": place})
    published = {p.topic for p in r.pages}
    for job in r.jobs.values():
        if job.topic is not None and job.state == "done" and job.topic not in published:
            yield Broken(6, "done, and not live", {"job": job.id})


def overlaps(r: Records) -> tuple[int, list[Broken]]:
    """(7) How many executions of one pass overlapped; each only where the first had lost its reservation before."""
    by_job: dict[int, list[Run]] = defaultdict(list)
    for fence in sorted(r.runs):
        if fence in r.attempts:
            by_job[r.attempts[fence].job].append(r.runs[fence])
    count, broken = 0, []
    for id, mine in by_job.items():
        for place, run in enumerate(mine):
            for earlier in mine[:place]:
                if earlier.end is None or earlier.end <= run.start:
                    continue
                count += 1
                if r.attempts[earlier.fence].outcome not in TAKEN:
                    fences = (earlier.fence, run.fence)
                    broken.append(Broken(7, "two ran at once, and both by right", {"job": id, "fences": fences}))
    return count, broken


def recoveries(r: Records) -> tuple[list[float], list[Broken]]:
    """(8) How long jobs of dead or frozen workers stood; each at most the bound, if nothing else was in the way."""
    by_pid: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in r.attempts.values():
        if attempt.outcome == "expired":
            by_pid[attempt.pid].append(attempt)
    took, broken = [], []
    for death in r.deaths:
        for attempt in by_pid[death.pid]:
            if not attempt.reserved_at < death.at < attempt.ended_at:
                continue
            if any(begin < attempt.ended_at and end > death.at for begin, end in r.outages):
                continue
            seconds = attempt.ended_at - death.at
            took.append(seconds)
            if seconds > r.bound:
                broken.append(Broken(8, "recovered late", {"fence": attempt.fence, "seconds": round(seconds, 2)}))
    return took, broken


POINTS: Sequence[Callable[[Records], Iterator[Broken]]] = (
    settled_and_not_invented,
    accepted_once,
    told_the_truth,
    in_order,
    attempts_are_counted,
    files_are_the_ledger,
)


def check(r: Records) -> list[Broken]:
    """Every broken promise of a run."""
    found = [broken for point in POINTS for broken in point(r)]
    return [*found, *overlaps(r)[1], *recoveries(r)[1]]
