"""Public bug reports of comparable systems, tried on ours: lanes out of order, or standing still (O-16 to O-22)."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from pipeline.build import services as build_services
from pipeline.db import make_engine, sqlstate
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.states import JobState
from pipeline.views import Claim
from tests.bugs.blocks import Cost, ask
from tests.bugs.spoilt import SCHEMA
from tests.db.conftest import Sql
from tests.factories import ACTOR, LEASE, Factory, draft_of
from tests.processes.conftest import Facts
from tests.processes.project import Project

STRICT = (StageSpec("publish", 1, 5),)
WORKERS = 12


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_o16_twelve_workers_at_one_lane(make: Factory, database_url: str, sql: Sql, count: int) -> None:
    """Twelve workers compete for the jobs of one strict lane: each is done once, by position, one after the other, and
    the server refuses nothing (no 23505)."""
    make.site(stages=STRICT)
    ids = make.plan(count=count)
    crowd = make_engine(database_url, schema=SCHEMA, connections=WORKERS, name="crowd")
    refused: list[str | None] = []
    event.listen(crowd, "handle_error", lambda context: refused.append(sqlstate(context.sqlalchemy_exception)))
    work = build_services(crowd).work
    over = threading.Event()
    done: list[int] = []

    def compete(_: int) -> int:
        tries = 0
        while not over.is_set():
            tries += 1
            for claim in work.claim([Prefix(make.site_id, "publish", 2, 4, LEASE)], "one of many"):
                done.append(claim.job_id)
                assert work.acknowledge([Ack(claim, Verb.ADVANCE)], wait=True).fates[claim.fence] is Fate.WRITTEN
                if len(done) == len(ids):
                    over.set()
        return tries

    with ThreadPoolExecutor(WORKERS) as pool:
        tries = [pool.submit(compete, n) for n in range(WORKERS)]
        assert min(t.result(timeout=60) for t in tries) > 1

    crowd.dispose()
    assert done == ids
    assert refused == []
    turns = sql("SELECT job_id, outcome, reserved_at, ended_at FROM attempts ORDER BY reserved_at")
    assert [(row.job_id, row.outcome) for row in turns] == [(i, "done") for i in ids]
    assert all(one.ended_at <= other.reserved_at for one, other in itertools.pairwise(turns))


def test_o16_a_lane_that_waits_for_its_hour_says_so(make: Factory) -> None:
    """The head is due in an hour: nobody is claimed before it, and the lane shows its head and until when."""
    make.site(stages=STRICT)
    first, second = make.plan(count=2)
    make.plan(lane="other")
    make.say(make.claim("publish")[0], Verb.RETRY, delay=timedelta(hours=1))

    claims = make.claim("publish", 5)

    assert [c.topic.lane for c in claims if c.topic] == ["other"]
    lane = next(line for line in make.services.lanes.list(make.site_id) if line.lane == "lane")
    assert lane.head is not None
    assert (lane.head.job, lane.head.state, lane.waiting) == (first, "pending", 1)
    (waiting,) = [j for j in make.services.reading.jobs(make.site_id, [], 10) if j.id == first]
    assert waiting.run_at is not None
    assert waiting.run_at - make.job(first).created_at > timedelta(minutes=59)
    assert make.state(second) is JobState.WAITING


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_o17_whoever_claims_in_batches_runs_a_lane_in_series(
    project: Project, make: Factory, facts: Facts, count: int
) -> None:
    """Workers with room for four at once write down each start and end: in a lane they never overlap, and come in its
    order; two lanes do overlap."""
    project.site()
    project.stages("""
        class Publish(Stage):
            width = 1

            def run(self, topic, ctx):
                log = os.open(SIGNS / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(log, f"start {topic.slug}\\n".encode())
                time.sleep(0.01)
                os.write(log, f"end {topic.slug}\\n".encode())
                os.close(log)
                return Done()

        PIPELINE = (Publish,)
    """)
    make.site(stages=STRICT)
    workers = [project.worker(CONCURRENCY="4") for _ in range(count)]
    make.plan(lane="a", count=12)
    make.plan(lane="b", count=12)

    facts.until("done", 24)

    lines = (project.root / "signs/log").read_text().splitlines()
    for lane in "ab":
        mine = [line for line in lines if f" {lane}-" in line]
        assert mine == [f"{what} {lane}-{n}" for n in range(1, 13) for what in ("start", "end")]
    assert any(one[-3:-1] != other[-3:-1] for one, other in itertools.pairwise(lines))
    assert [w.stop() for w in workers] == [0] * count


LANES, DEEP, SHALLOW, HALTED = 200, 1000, 10, 20

# In each lane: its head pending at the strict gate (of the first lanes: failed), the others behind it.
FILL = (
    "INSERT INTO lanes (site_id, name, next_position)"
    f" SELECT :site, 'lane-' || n, :depth + 1 FROM generate_series(1, {LANES}) n",
    "INSERT INTO gates (lane_id, stage, ordinal, width)"
    " SELECT l.id, s.name, s.ordinal, 1 FROM lanes l JOIN stages s USING (site_id) WHERE l.site_id = :site",
    "INSERT INTO topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)"
    " SELECT :site, l.id, p, l.name || '-' || p, l.name || '/' || p || '/', 'A title', 'page', '{}', 'hash'"
    " FROM lanes l, generate_series(1, :depth) p WHERE l.site_id = :site",
    "INSERT INTO jobs (site_id, lane_id, topic_id, position, stage, state, max_attempts, run_at, gate_id, slot,"
    " attempts)"
    " SELECT :site, t.lane_id, t.id, t.position, 'publish',"
    " CASE WHEN t.position > 1 THEN 'waiting' WHEN h.halted THEN 'failed' ELSE 'pending' END, 5,"
    " clock_timestamp(), CASE WHEN t.position > 1 OR NOT h.halted THEN g.id END,"
    " CASE WHEN t.position = 1 AND NOT h.halted THEN 1 END, 0"
    " FROM topics t JOIN lanes l ON l.id = t.lane_id JOIN gates g ON g.lane_id = l.id"
    f" CROSS JOIN LATERAL (SELECT split_part(l.name, '-', 2)::int <= {HALTED} AS halted) h WHERE t.site_id = :site",
    "ANALYZE",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_o18_halted_lanes_and_deep_ones_cost_the_others_nothing(scenery: Factory) -> None:
    """Two hundred lanes, a thousand jobs deep, twenty of them halted: claims take the heads of all the others, and then
    those that follow, and touch as many blocks as for a site whose lanes are ten deep."""
    make, engine = scenery, scenery.engine
    sites = {depth: make.site(f"deep-{depth}", STRICT) for depth in (SHALLOW, DEEP)}
    for depth, site_id in sites.items():
        for statement in FILL:
            ask(engine, statement, site=site_id, depth=depth)
    touched: dict[int, float] = {}
    for depth, make.site_id in sites.items():
        for position in (1, 2, 3):
            claimed: list[Claim] = []
            with Cost(engine) as cost:
                while batch := make.claim("publish", 8):
                    claimed += batch
            lanes = {(c.topic.lane, c.topic.position) for c in claimed if c.topic is not None}
            assert lanes == {(f"lane-{n}", position) for n in range(HALTED + 1, LANES + 1)}
            acks = [Ack(c, Verb.ADVANCE) for c in claimed]
            assert set(make.services.work.acknowledge(acks, wait=True).fates.values()) == {Fate.WRITTEN}
        assert len(cost.statements) > 20
        touched[depth] = cost.blocks / len(cost.statements)
    print(touched)

    assert touched[DEEP] < 1.3 * touched[SHALLOW], touched


@pytest.mark.slow
def test_o19_the_last_two_before_a_gate_leave_nobody_behind(make: Factory, sql: Sql) -> None:
    """Two hundred times at once: the head leaves its gate, the next one comes to it, and a third is planned. Each time
    the next one has its turn afterwards."""
    make.site()
    barrier = threading.Barrier(3)

    def at_once(body: Any) -> Any:
        barrier.wait(20)
        return body()

    with ThreadPoolExecutor(3) as pool:
        for turn in range(200):
            lane = f"lane-{turn}"
            head, following = make.plan(lane=lane, count=2)
            for stage in ("generate", "validate"):
                for claim in make.claim(stage, 2):
                    if stage == "generate" or claim.job_id == head:
                        make.say(claim, draft=draft_of(claim) if stage == "generate" else None)
                    else:
                        comes = claim
            (leaves,) = make.claim("publish", 5)
            assert (leaves.job_id, comes.job_id) == (head, following)
            rows = [make.row(lane, n) for n in (1, 2, 3)]
            acts = [
                pool.submit(at_once, lambda c=leaves: make.say(c)),
                pool.submit(at_once, lambda c=comes: make.say(c)),
                pool.submit(at_once, lambda r=rows: make.services.planning.plan(make.site_id, r)),
            ]
            for act in acts:
                act.result(timeout=20)

            assert [c.job_id for c in make.claim("publish", 5)] == [following], turn
            (third,) = make.claim("generate", 5)
            make.services.work.acknowledge([Ack(third, Verb.RELEASE)], wait=True)
            make.services.operate.skip(make.job_ids(lane)[2:], actor=ACTOR)


def test_o20_a_failure_holds_back_all_that_follow(make: Factory) -> None:
    """The first fails for good, and one in the middle is cancelled: nothing behind is ever claimed, everyone names the
    same one as the reason, and one requeue lets the chain go on in its order up to the cancelled one."""
    make.site(stages=STRICT)
    ids = make.plan(count=4)
    make.say(make.claim("publish")[0], Verb.FAIL)
    make.services.operate.cancel([ids[2]], actor=ACTOR)

    assert make.claim("publish", 5) == []
    (lane,) = make.services.lanes.list(make.site_id)
    assert lane.head is not None
    assert (lane.head.job, lane.head.state) == (ids[0], "failed")
    troubles = {t.job.id: t.waiting for t in make.services.reading.troubles(make.site_id)}
    assert set(troubles) == {ids[0], ids[2]}
    make.services.operate.requeue([ids[0]], actor=ACTOR)
    done = []
    while claims := make.claim("publish", 5):
        done += [c.job_id for c in claims]
        make.say(claims[0])
    assert done == ids[:2]
    assert make.services.lanes.list(make.site_id)[0].head.job == ids[2]  # type: ignore[union-attr]
    make.services.operate.requeue([ids[2]], actor=ACTOR)
    while claims := make.claim("publish", 5):
        done += [c.job_id for c in claims]
        make.say(claims[0])
    assert done == ids


def test_o21_what_is_cancelled_while_it_runs_lets_nobody_through(make: Factory, sql: Sql) -> None:
    """A running stage is cancelled, and then returns normally: the cancel was first, so it stands. Its draft does not
    count, and the next in the lane waits."""
    make.site()
    first, second = make.plan(count=2)
    claims = {c.job_id: c for c in make.claim("generate", 2)}
    (asked,) = make.services.operate.cancel([first], actor=ACTOR)

    settled = make.say(claims[first], draft=draft_of(claims[first]))
    make.say(claims[second], draft=draft_of(claims[second]))
    make.say(make.claim("validate")[0])

    assert asked.to_state is JobState.RESERVED
    assert settled.outcomes == {claims[first].fence: "cancelled"}
    assert [make.state(first), make.state(second)] == [JobState.CANCELLED, JobState.WAITING]
    assert make.claim("publish", 5) == []
    topic = make.job(first).topic_id
    assert sql("SELECT count(*) FROM revisions WHERE topic_id = :id", id=topic)[0][0] == 0
    assert sql("SELECT revision_id FROM topics WHERE id = :id", id=topic)[0][0] is None
