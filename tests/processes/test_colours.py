"""Stages in three colours, thread, event loop and process: each keeps the same promises."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest
from sqlalchemy import Engine, select

from pipeline.service.planning import StageSpec
from pipeline.sql.tables import publications, revisions
from tests.factories import Factory
from tests.processes.conftest import Facts, process_of
from tests.processes.project import Project, WorkerProcess, until

pytestmark = pytest.mark.slow  # real processes, and many of them

COLOURS = ("thread", "loop", "process")
CAN_BE_ENDED = ("loop", "process")  # a thread is told, and ends by itself

TOOLS = {
    "thread": """
def wait(ctx, name):
    return signed(name, ctx)
""",
    "process": """
def wait(ctx, name):
    return signed(name, ctx)
""",
    "loop": """
import asyncio

async def wait(ctx, name):
    while not (SIGNS / name).exists():
        if ctx.cancelled():
            return False
        await asyncio.sleep(0.003)
    return True
""",
}


class Painter:
    """Writes a project whose stages have one colour: ``run`` as a thread's, with ``await`` before each call of ctx."""

    def __init__(self, project: Project, make: Factory) -> None:
        self._project = project
        self._make = make

    def paint(self, colour: str, run: str, *, head: str = "", name: str = "generate", **attributes: str) -> None:
        lines = {"executor": "'process'"} if colour == "process" else {}
        lines |= attributes
        define = "async def" if colour == "loop" else "def"
        body = run if colour == "loop" else run.replace("await ", "")
        text = [head, TOOLS[colour], f"class {name.title()}(Stage):"]
        text += [f"    {key} = {value}" for key, value in lines.items()]
        text += [f"    {define} run(self, topic, ctx):", indent(body.strip("\n"), " " * 4)]
        self._project.site()
        self._project.stages("\n".join([*text, "", f"PIPELINE = ({name.title()},)", ""]))
        self._make.site(stages=(StageSpec(name, None, 5),))


@pytest.fixture
def paint(project: Project, make: Factory) -> Callable[..., None]:
    return Painter(project, make).paint


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still are there, corpses too."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[1] if entry.name.isdigit() else ""
        except OSError:
            continue
        if parent == str(pid):
            found.append(int(entry.name))
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def stopped_clean(worker: WorkerProcess) -> bool:
    """Whether the worker ends as asked, with everything that it had started."""
    mine = children(worker.pid)
    return worker.stop() == 0 and until(lambda: not any(runs(pid) for pid in mine), "its processes are gone")


EVERYTHING = """
    match topic.position:
        case 1: return Done(draft=draft(topic, "ä" * 100 + "\\U0001f600"), metrics={"by": os.getpid()})
        case 2: return Reject([Finding("short", "write more", line=3)])
        case 3: return Retry("soon", timedelta(0))
        case 4: raise RuntimeError("no luck")
        case 5: return 42
        case 6: return Done(metrics={"what": object()})
        case 7: return Done(draft="no draft")
        case 8: raise SystemExit("enough")
        case 9: return Done(draft=Draft("not a number", "", "body", {"n": float("nan")}))
        case 10: raise UnicodeError("unreadable")
        case 11: return Hold("look at it")
        case 12: return Fail("never")
        case 13: return Repair("mend it")
        case 14: return Snooze(timedelta(hours=1), "later")
        case 15: raise Unreadable()
        case 16: return Done(draft=Draft("a lone one", "", "\\ud800"))
        case 17: raise RuntimeError("\\x00 \\ud800 " + "\\N{SNOWMAN}" * 1_000_000)
        case 18: return Reject([1])
        case 19: return Retry("soon", after=5)
"""


@pytest.mark.parametrize("colour", COLOURS)
def test_whatever_comes_of_a_stage_is_understood(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts, engine: Engine
) -> None:
    """Outcomes, exceptions and answers that are none end alike wherever the stage ran."""
    unreadable = "class Unreadable(Exception):\n    def __str__(self):\n        raise ValueError()\n"
    paint(colour, EVERYTHING, head=unreadable, retry="Backoff(attempts=2, first=timedelta(0), cap=timedelta(0))")
    make.site(stages=(StageSpec("generate", None, 2),))
    ids = make.plan(count=19)
    worker = project.worker()
    until(lambda: facts.count("failed", "repair", "done") == 17, "all have ended that end", 60)
    until(lambda: facts.outcomes(ids[13]) == ["snoozed"] and facts.outcomes(ids[10]) == ["held"], "two wait")

    states = {n: str(make.state(i)) for n, i in enumerate(ids, start=1)}
    assert {n for n, state in states.items() if state == "done"} == {1}
    assert {n for n, state in states.items() if state == "failed"} == {3, 4, 8, 12, 15, 17}
    by_place = {n: facts.attempts(i) for n, i in enumerate(ids, start=1)}
    assert [a.outcome for a in by_place[4]] == ["retry", "failed"]
    assert by_place[4][0].error == "no luck"
    assert by_place[2][-1].outcome == "rejected"
    assert by_place[2][-1].error == "short: write more"
    assert "returned int; it must return an outcome" in by_place[5][0].error
    assert "not JSON serializable" in by_place[6][0].error
    assert [by_place[n][0].error_class for n in (8, 10, 15)] == ["SystemExit", "UnicodeError", "Unreadable"]
    assert (by_place[11][0].outcome, make.job(ids[10]).hold) == ("held", "look at it")
    assert len(by_place[17][0].error.encode()) <= 4000
    assert all(a[-1].error for n, a in by_place.items() if n not in (1, 11))
    mine = by_place[1][0].metrics["by"]
    assert (mine != worker.pid) == (colour == "process")
    with engine.begin() as connection:
        assert connection.execute(select(revisions.c.body)).scalars().all() == ["ä" * 100 + "\U0001f600"]
    assert stopped_clean(worker)


PUBLISHES = """
    known = await ctx.corpus.unknown({"lane/lane-1/", "no/"})
    cards = await ctx.corpus.lane("lane")
    twins = await ctx.corpus.twins(draft(topic))
    {look_and_act}
    done = await ctx.ledger.publish(
        "files", f"{topic.slug}.html", "hash", look, act, topic_id=topic.id, inputs="inputs"
    )
    again = await ctx.ledger.publish(
        "files", f"{topic.slug}.html", "hash", lambda: Found("hash", "tag"), act, topic_id=topic.id
    )
    return Done(metrics={
        "unknown": sorted(known), "cards": [c.path for c in cards], "twins": twins, "done": done, "again": again,
        "acted": len(acts),
    })
"""
PLAIN = """
    acts = []
    def look():
        return None
    def act():
        acts.append(1)
        return "tag"
"""


@pytest.mark.parametrize("colour", [*COLOURS, "loop, awaiting"])
def test_publishing_goes_through_the_ledger(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts, engine: Engine
) -> None:
    """Intent, look, act, confirmation; what is there already is not done again. An async stage may await all of it."""
    how = PLAIN.replace("def look", "async def look").replace("def act", "async def act") if "," in colour else PLAIN
    run = PUBLISHES.replace("    {look_and_act}", how)
    if "," in colour:
        run = run.replace('lambda: Found("hash", "tag")', "there").replace(
            "    done =", '    async def there():\n        return Found("hash", "tag")\n    done ='
        )
    paint(colour.split(",")[0], run, name="publish", target="'files'")
    (job_id,) = make.plan()
    worker = project.worker()
    facts.until("done", 1)

    assert facts.attempts(job_id)[0].metrics == {
        "unknown": ["no/"], "cards": ["lane/lane-1/"], "twins": {"title": [], "description": []},
        "done": True, "again": False, "acted": 1,
    }  # fmt: skip
    with engine.begin() as connection:
        row = connection.execute(select(publications)).one()
    assert (row.live_path, row.live_hash, row.live_remote) == ("lane-1.html", "hash", "tag")
    assert stopped_clean(worker)


UNHAPPY = """
    def fails():
        raise {error}
    if topic.position == 1:
        return Done()
    await ctx.ledger.publish("files", f"{{topic.slug}}.html", "hash", lambda: None, fails, topic_id=topic.id)
"""


@pytest.mark.parametrize("colour", COLOURS)
def test_a_target_is_published_to_or_the_job_goes_to_a_person(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """Done without a ledger entry is repair; what ``act`` raises is the stage's own exception."""
    paint(colour, UNHAPPY.format(error="KeyError('own')"), name="publish", target="'files'", retry="NOW")
    first, second = make.plan(count=2)
    worker = project.worker()
    facts.until("repair", 1)
    facts.until("failed", 1)

    assert "published nothing through ctx.ledger" in facts.attempts(first)[0].error
    assert [a.error_class for a in facts.attempts(second)] == ["KeyError"] * 5
    assert stopped_clean(worker)


TAKEN = """
    await ctx.ledger.publish("files", "one.html", "hash", lambda: None, lambda: "tag", topic_id=topic.id)
    return Done()
"""


@pytest.mark.parametrize("colour", COLOURS)
def test_two_topics_do_not_share_a_path(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """The second is told that the path is taken, which no retry can help."""
    paint(colour, TAKEN, name="publish", target="'files'")
    ids = make.plan(count=2)
    worker = project.worker(CONCURRENCY="1")
    facts.until("repair", 1)
    facts.until("done", 1)

    assert [a.error_class for i in ids for a in facts.attempts(i) if a.outcome == "repair"] == ["PathTaken"]
    assert stopped_clean(worker)


WAITS = """
    sign(f"began-{os.getpid()}")
    if not await wait(ctx, "go"):
        sign("cancelled")
        return Retry("told to stop")
    return Done()
"""


@pytest.mark.parametrize("colour", COLOURS)
def test_a_cancel_is_seen_by_the_stage(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """An operator's cancel comes to a running stage with the next heartbeat, and the job lands where it was sent."""
    paint(colour, WAITS, lease="timedelta(seconds=2)")
    (job_id,) = make.plan()
    worker = project.worker()
    project.until_signs("began-", 1)

    make.services.operate.cancel([job_id], actor="test")

    facts.until("cancelled", 1)
    assert facts.outcomes(job_id) == ["cancelled"]
    if colour != "loop":  # there the task is cancelled, wherever it waits
        assert project.signs("cancelled") == [""]
    assert stopped_clean(worker)


HANGS = {
    "thread": "    while not ctx.cancelled():\n        time.sleep(0.003)\n    return Retry('too late')",
    "loop": "    await asyncio.sleep(600)",
    "process": "    time.sleep(600)",
}


@pytest.mark.parametrize("colour", COLOURS)
def test_a_run_ends_at_its_deadline(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """A task is cancelled, a process killed, a thread told; it is tried again, and charged."""
    paint(colour, HANGS[colour], deadline="timedelta(seconds=0.3)", retry="Backoff(2, timedelta(0), timedelta(0))")
    make.site(stages=(StageSpec("generate", None, 2),))
    (job_id,) = make.plan()
    worker = project.worker()

    facts.until("failed", 1)

    assert [(a.outcome, a.charged) for a in facts.attempts(job_id)] == [("retry", True), ("failed", True)]
    expected = "deadline" if colour in CAN_BE_ENDED else "retry"
    assert [a.error_class for a in facts.attempts(job_id)] == [expected] * 2
    assert stopped_clean(worker)


SLEEPER = """
    sign(f"began-{os.getppid() if APART else os.getpid()}")
    if not await wait(ctx, f"go-{os.getppid() if APART else os.getpid()}"):
        return Retry("told to stop")

    def act():
        sign("wrote")
        return "tag"

    await ctx.ledger.publish("files", "page.html", "hash", lambda: None, act, topic_id=topic.id)
    return Done()
"""


@pytest.mark.parametrize("colour", COLOURS)
def test_a_lost_lease_writes_nothing(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """A worker that was stopped past its lease drops the result, in the database and outside."""
    head = f"APART = {colour == 'process'}\n"
    paint(colour, SLEEPER, head=head, name="publish", target="'files'", lease="timedelta(seconds=1.5)", retry="NOW")
    (job_id,) = make.plan()
    sleeper = project.worker(CONCURRENCY="1")
    project.until_signs("began-", 1)
    sleeper.send(signal.SIGSTOP)

    other = project.worker(CONCURRENCY="1")
    project.until_signs("began-", 2)
    project.sign(f"go-{sleeper.pid}")
    sleeper.send(signal.SIGCONT)
    until(lambda: sleeper.said(f"lost job {job_id}"), "the sleeper sees that it lost its job")
    assert project.signs("wrote") == []
    project.sign(f"go-{other.pid}")
    facts.until("done", 1)

    first, second = facts.attempts(job_id)
    assert (first.outcome, process_of(first.worker)) == ("expired", sleeper.pid)
    assert (second.outcome, process_of(second.worker)) == ("done", other.pid)
    assert project.signs("wrote") == [""]
    assert stopped_clean(sleeper)


DEAF = """
    sign(f"began-{topic.slug}")
    while not (SIGNS / "go").exists():
        try:
            await pause(0.01)
        except BaseException:
            sign("ended")
            raise
    return Done()
"""


@pytest.mark.parametrize("colour", COLOURS)
def test_a_worker_that_stops_gives_back_what_does_not_end(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """Asked to stop, it waits for the grace period, ends what can be ended, and gives the jobs back uncharged."""
    pause = "import asyncio\npause = asyncio.sleep\n" if colour == "loop" else "pause = time.sleep\n"
    paint(colour, DEAF, head=pause)
    make.plan(count=3)
    worker = project.worker(CONCURRENCY="2", GRACE="PT0.3S")
    project.until_signs("began-", 2)
    mine = children(worker.pid)

    assert worker.stop() == 0

    assert [(a.outcome, a.charged) for a in facts.attempts()] == [("released", False)] * 2
    assert facts.count("pending") == 3
    assert project.signs("ended") == ([""] if colour == "loop" else [])
    assert len(mine) == (2 if colour == "process" else 0)
    until(lambda: not any(runs(pid) for pid in mine), "its processes are gone")


@pytest.mark.parametrize("colour", COLOURS)
def test_what_ends_within_the_grace_period_is_kept(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """Running stages finish, and nothing more is claimed."""
    paint(colour, WAITS)
    make.plan(count=3)
    worker = project.worker(CONCURRENCY="2")
    project.until_signs("began-", 1)
    until(lambda: facts.count("reserved") == 2, "two are held")

    worker.send(signal.SIGTERM)
    project.sign("go")

    assert worker.ends() == 0
    assert {a.outcome for a in facts.attempts()} <= {"done", "released"}
    assert facts.count("done") >= 1
    assert facts.count("done", "pending") == 3


DIES = """
    sign(f"began-{topic.slug}-{os.getpid()}")
    first = sum(n.startswith(f"began-{topic.slug}-") for n in os.listdir(SIGNS)) == 1
    if topic.position == 1 and first:
        time.sleep(600)
    if topic.position == 2 and first:
        os._exit(7)
    if topic.position == 3 and first:
        os.kill(os.getpid(), 11)
    print("noise", topic.slug)
    return Done(draft=draft(topic))
"""


def test_a_stage_whose_process_dies_is_tried_again(
    paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """Killed, exited or crashed: charged as any failure, with what is known; no other job suffers."""
    paint("process", DIES, retry="NOW")
    ids = make.plan(count=8)
    worker = project.worker()
    (victim,) = project.until_signs("began-lane-1-", 1)
    until(lambda: facts.count("done") == 7, "all others are done")

    os.kill(int(victim), signal.SIGKILL)
    facts.until("done", 8)

    dead = {n: facts.attempts(i)[0] for n, i in enumerate(ids, start=1) if n < 4}
    assert [(a.outcome, a.error_class, a.charged) for a in dead.values()] == [("retry", "died", True)] * 3
    assert "signal SIGKILL" in dead[1].error
    assert "exit code 7" in dead[2].error
    assert "signal SIGSEGV" in dead[3].error
    assert all(facts.outcomes(i) == ["done"] for i in ids[3:])
    assert not [pid for pid in children(worker.pid) if not runs(pid)]
    assert worker.said("noise lane-8")
    assert stopped_clean(worker)


def test_a_process_is_used_again(paint: Callable[..., None], project: Project, make: Factory, facts: Facts) -> None:
    """One after the other, and never two jobs at once; the process of a worker that is killed ends as well."""
    paint("process", "    time.sleep(0.01)\n    return Done(metrics={'by': os.getpid()})")
    make.plan(count=20)
    worker = project.worker(CONCURRENCY="2")
    facts.until("done", 20)
    used = {a.metrics["by"] for a in facts.attempts()}

    assert 1 <= len(used) <= 2
    worker.send(signal.SIGKILL)
    worker.ends()
    until(lambda: not any(runs(pid) for pid in used), "the processes have noticed")


@pytest.mark.parametrize("colour", COLOURS)
def test_a_large_draft_passes(
    colour: str, paint: Callable[..., None], project: Project, make: Factory, facts: Facts, engine: Engine
) -> None:
    """5 MiB out, and in again with the next round."""
    run = """
        if topic.round == 0:
            return Done(draft=draft(topic, "x" * (5 << 20)))
        return Done()
    """
    second = """
        assert len(ctx.draft.body) == 5 << 20
        return Done(metrics={"length": len(ctx.draft.body)})
    """
    paint(colour, run)
    stages = project.root / "stages/__init__.py"
    text = stages.read_text().replace("PIPELINE = (Generate,)", "")
    define = "async def" if colour == "loop" else "def"
    executor = '    executor = "process"\n' if colour == "process" else ""
    text += f"class Validate(Stage):\n{executor}    {define} run(self, topic, ctx):{second}\n"
    stages.write_text(text + "PIPELINE = (Generate, Validate)\n")
    make.site(stages=(StageSpec("generate", None, 5), StageSpec("validate", None, 5)))
    (job_id,) = make.plan()
    worker = project.worker()

    facts.until("done", 1)

    assert facts.attempts(job_id)[-1].metrics == {"length": 5 << 20}
    assert stopped_clean(worker)


def test_an_answer_that_is_too_large_goes_to_a_person(
    paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """The pipe has a limit, and the job says so."""
    paint("process", "    return Done(draft=draft(topic, 'x' * (65 << 20)))")
    (job_id,) = make.plan()
    worker = project.worker()
    facts.until("repair", 1)

    assert "at most 67108864 can be passed on" in facts.attempts(job_id)[0].error
    assert stopped_clean(worker)


MANY = """
class Wide(Stage):
    async def run(self, topic, ctx):
        sign(f"began-{topic.slug}")
        await wait(ctx, "go")
        return Done()


class Narrow(Stage):
    def run(self, topic, ctx):
        sign("narrow-began")
        signed("narrow")
        return Done()

PIPELINE = (Narrow, Wide)
"""


def test_many_tasks_overlap_beside_a_thread(project: Project, make: Factory, facts: Facts) -> None:
    """Fifty async jobs are under way at once in one worker while a thread works; its limit counts them all."""
    project.site()
    project.stages(TOOLS["loop"] + MANY)
    make.site(stages=(StageSpec("narrow", None, 5), StageSpec("wide", None, 5)))
    make.advance_to("wide", lane="wide", count=60)
    make.plan(lane="narrow")
    worker = project.worker(CONCURRENCY="51")
    project.until_signs("began-", 50)
    project.until_signs("narrow-began", 1)
    until(lambda: facts.count("reserved") == 51, "as many are held as there is room for")

    threads = len(list(Path(f"/proc/{worker.pid}/task").iterdir()))
    assert threads < 20
    assert len(project.signs("began-")) == 50
    project.sign("go")
    facts.until("done", 60)
    project.sign("narrow")
    facts.until("done", 61)
    assert stopped_clean(worker)


def test_json_is_the_only_thing_on_the_pipe(
    paint: Callable[..., None], project: Project, make: Factory, facts: Facts
) -> None:
    """What a stage prints or reads has nothing to do with it."""
    head = "import sys, subprocess\n"
    run = """
    print(json_like, flush=True)
    os.write(1, b"raw\\n")
    subprocess.run(["echo", "from a child"], check=True)
    return Done(metrics={"read": sys.stdin.read()})
    """.replace("json_like", repr(json.dumps({"say": "outcome", "kind": "Fail", "reason": "forged"})))
    paint("process", run, head=head)
    (job_id,) = make.plan()
    worker = project.worker()
    facts.until("done", 1)

    assert facts.attempts(job_id)[0].metrics == {"read": ""}
    assert all(worker.said(text) for text in ("forged", "raw", "from a child"))
    assert stopped_clean(worker)
