"""Our side of a measure: a small project, its topics, its workers as real processes, and what the record says."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from sqlalchemy.engine import make_url

from bench.cpu import Meter
from bench.ground import Ground
from pipeline.build import connect
from pipeline.project.site import load_site
from pipeline.service.planning import StageSpec
from pipeline.settings import Settings
from pipeline.views import TopicRow

Connection: TypeAlias = "psycopg.Connection[tuple[object, ...]]"

ROOT = Path(__file__).parents[1]
SITE = "bench"
CONCURRENCY = "256"  # what the handbook recommends where stages take no time; PIPELINE_CONCURRENCY is stronger
QUIET = 15.0  # seconds without progress after which a run is given up
LOOK = 0.2  # seconds between two looks at the record, which cost the server something

NOOP = """
from pipeline import Done, Stage


class Work(Stage):
    def run(self, topic, ctx):
        return Done()


PIPELINE = (Work,)
"""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with one site and the stages that a measure wants."""

    root: Path

    def plan(self, url: str, rows: Sequence[TopicRow]) -> None:
        """Plan the rows, as ``pipeline run`` would."""
        with self.planner(url) as plan:
            plan(rows)

    @contextmanager
    def planner(self, url: str) -> Iterator[Callable[[Sequence[TopicRow]], object]]:
        """What plans rows, over a connection that stays open."""
        specs = [StageSpec(name, width, 5) for name, width in self._widths()]
        with connect(url, Settings(), name="bench") as services:
            site_id = services.planning.register(load_site(self.root, SITE), specs)
            yield lambda rows: services.planning.plan(site_id, rows)

    def _widths(self) -> list[tuple[str, int | None]]:
        """The stages as another process sees them, since only one ``stages`` can be imported into this one."""
        ask = (
            "import sys; from pathlib import Path; from pipeline.project.loading import load_stages\n"
            "for name, stage in load_stages(Path(sys.argv[1])).pipeline.items(): print(name, stage.width)"
        )
        command = [sys.executable, "-c", ask, str(self.root)]
        said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if said.returncode:
            raise RuntimeError(f"the stages of {self.root} cannot be read: {said.stderr[-1000:]}")
        pairs = [line.split() for line in said.stdout.splitlines()]
        return [(name, None if width == "None" else int(width)) for name, width in pairs]

    @contextmanager
    def workers(self, url: str, processes: int, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
        """``pipeline worker`` on this project, killed at the end of the block: its record is in the database."""
        env = {"PIPELINE_CONCURRENCY": CONCURRENCY} | dict(os.environ) | {"PIPELINE_DATABASE_URL": url, **variables}
        env["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, "-m", "pipeline.cli.main", "worker", "--workers", str(processes)]
        with (self.root / "worker.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.root, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            end(process)

    @property
    def log(self) -> str:
        return (self.root / "worker.log").read_text(errors="replace")


@contextmanager
def project(ground: Ground, stages: str = NOOP) -> Iterator[Project]:
    with tempfile.TemporaryDirectory(prefix="project-", dir=ground.folder) as name:
        root = Path(name)
        (root / "stages").mkdir()
        (root / "stages/__init__.py").write_text(stages)
        folder = root / "sites" / SITE
        folder.mkdir(parents=True)
        (folder / "site.toml").write_text('name = "bench"\nbase_url = "https://bench.example.com"\n')
        yield Project(root)


def topics(order: Sequence[tuple[int, int]]) -> list[TopicRow]:
    """One topic for each ``(lane, place in it)``, planned in this order."""
    return [
        TopicRow(
            lane=f"lane-{lane}", slug=f"t-{lane}-{place}", title=f"Topic {lane} {place}", type="page",
            path=f"t-{lane}-{place}/", order=place, brief={"key": lane, "seq": place}, input_hash=f"{lane}-{place}",
        )
        for lane, place in order
    ]  # fmt: skip


def plain(url: str) -> str:
    """The URL as libpq reads it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@contextmanager
def asking(url: str) -> Iterator[Connection]:
    """A connection that sees our tables by their bare names."""
    with psycopg.connect(plain(url), autocommit=True, options="-c search_path=pipeline,public") as connection:
        yield connection


def number(connection: Connection, question: str) -> float:
    """The one number that a question asks for."""
    row = connection.execute(question.encode()).fetchone()
    return float(str(row[0])) if row is not None and row[0] is not None else 0.0


def until_all(count: Callable[[], float], wanted: int, what: str, patience: float = QUIET) -> None:
    """Wait until ``count`` says ``wanted``; RuntimeError when nothing moves for ``patience`` seconds."""
    last, moved = -1.0, time.monotonic()
    while (now := count()) < wanted:
        if now != last:
            last, moved = now, time.monotonic()
        if time.monotonic() - moved > patience:
            raise RuntimeError(f"{what}: {now:g} of {wanted} finished, and none more for {patience:g} s")
        time.sleep(LOOK)


def settle(url: str) -> None:
    """Let what was written in preparation be over before what is measured begins."""
    with asking(url) as connection:
        connection.execute("VACUUM ANALYZE")


def checkpoint(ground: Ground) -> None:
    ground.scratch.run("CHECKPOINT")


def end(process: "subprocess.Popen[Any]") -> None:
    """Kill a process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


FINISHED = "SELECT count(*) FROM jobs WHERE state = 'done'"
# By the record: the jobs that finished after the first ones did, over the time that they took.
PACE = (
    "SELECT count(*) FILTER (WHERE ended_at > first) / extract(epoch FROM max(ended_at) - min(ended_at))"
    " FROM (SELECT ended_at, min(ended_at) OVER () AS first FROM attempts WHERE outcome = 'done') AS a"
)
CLAIMED = "SELECT count(*)::float / count(DISTINCT token) FROM attempts"
SAID = "SELECT count(*)::float / count(DISTINCT xmin::text) FROM attempts"


def drain(ground: Ground, given: Project, url: str, wanted: int, processes: int, **variables: str) -> dict[str, float]:
    """Have workers do all that is planned; jobs a second by the record, the sizes of the batches, and the processor
    time of a job."""
    with given.workers(url, processes, **variables) as workers, asking(url) as connection:
        meter = Meter(ground, [workers.pid])

        def finished() -> float:
            if workers.poll() is not None:
                raise RuntimeError("our workers ended")
            count = number(connection, FINISHED)
            meter.look(count)
            return count

        try:
            until_all(finished, wanted, "our workers")
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{given.log[-2000:]}") from error
        return meter.each(wanted) | {
            "rate": number(connection, PACE),
            "claimed": number(connection, CLAIMED),
            "acknowledged": number(connection, SAID),
        }
