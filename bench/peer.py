"""A peer's side of a measure: its script in its own environment, and what its tables say of it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.cpu import Meter
from bench.ground import Ground
from bench.install import RELEASES, install
from bench.ours import Connection, asking, end, number, plain, until_all
from bench.runs import read

SCRIPTS = Path(__file__).parent / "peers"
PATIENCE = 600.0  # seconds for one call of a script

# When each finished job was finished, by the peer's own record. (awa's is a view that takes seconds: its jobs note it.)
FINISHED = {
    "pgqueuer": "SELECT job_id AS id, created AS at FROM pgqueuer_log WHERE status = 'successful'",
    "procrastinate": "SELECT job_id AS id, at FROM procrastinate_events WHERE type = 'succeeded'",
    "dbos": "SELECT workflow_uuid AS id, to_timestamp(updated_at / 1000.0) AS at FROM dbos.workflow_status"
    " WHERE status = 'SUCCESS'",
    "oban": "SELECT id, completed_at AS at FROM oban_jobs WHERE state = 'completed'",
    "chancy": "SELECT id, completed_at AS at FROM chancy_jobs WHERE state = 'succeeded'",
    "absurd": "SELECT task_id AS id, completed_at AS at FROM absurd.r_default WHERE state = 'completed'",
}
COUNT = "SELECT count(*) FROM ({finished}) AS f"
PACE = (
    "SELECT count(*) FILTER (WHERE at > first) / nullif(extract(epoch FROM max(at) - min(at)), 0)"
    " FROM (SELECT at, min(at) OVER () AS first FROM ({finished}) AS f) AS a"
)


@dataclass(slots=True)
class Peer:
    """A peer on a database of its own; ``variables`` are those of ``bench/peers/journal.py``."""

    ground: Ground
    name: str
    url: str
    folder: Path
    variables: dict[str, str]
    cost: dict[str, float] = field(default_factory=dict)

    def at(self, url: str) -> "Peer":
        """The same on another database, a copy of this one."""
        return replace(self, url=url)

    def prepare(self) -> None:
        """Make its tables."""
        self._call("prepare")

    def enqueue(self, order: Sequence[tuple[int, int]]) -> None:
        self._call("enqueue", json.dumps(order))
        with asking(self.url) as connection:
            connection.execute("VACUUM ANALYZE")

    def _call(self, verb: str, said: str = "") -> None:
        answer = subprocess.run(
            self._command(verb), env=self._environment, input=said, capture_output=True, text=True, timeout=PATIENCE
        )
        if answer.returncode:
            raise RuntimeError(f"{self.name} {verb}: {answer.stderr[-2000:]}")

    @contextmanager
    def workers(self, processes: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
        started = []
        try:
            for _ in range(processes):
                with (self.folder / "worker.log").open("ab") as log:
                    command = self._command("work")
                    started.append(
                        subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)
                    )
            yield started
        finally:
            for process in started:
                end(process)

    @contextmanager
    def asker(self) -> Iterator["subprocess.Popen[str]"]:
        """A process that enqueues one job for each line it gets, and answers with the time before and after."""
        with (self.folder / "asker.log").open("ab") as log:
            process = subprocess.Popen(
                self._command("singly"), env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{self.name} singly: {(self.folder / 'asker.log').read_text()[-2000:]}")
            yield process
        finally:
            end(process)

    @property
    def log(self) -> str:
        return (self.folder / "worker.log").read_text(errors="replace")

    def finished(self) -> float:
        """How many jobs are finished, by its record."""
        with asking(self.url) as connection:
            return self._finished(connection)

    def _finished(self, connection: Connection) -> float:
        if self.name not in FINISHED:
            return float(len(read(self._noted)))
        return number(connection, COUNT.format(finished=FINISHED[self.name]))

    def drain(self, wanted: int, processes: int) -> float:
        """Have workers do all that is enqueued; jobs a second, by its record. Their processor time is in ``cost``."""
        with self.workers(processes) as workers, asking(self.url) as connection:
            meter = Meter(self.ground, [worker.pid for worker in workers])

            def finished() -> float:
                if any(worker.poll() is not None for worker in workers):
                    raise RuntimeError(f"a worker of {self.name} ended")
                count = self._finished(connection)
                meter.look(count)
                return count

            try:
                until_all(finished, wanted, self.name)
            except RuntimeError as error:
                raise RuntimeError(f"{error}\n{self.log[-2000:]}") from error
            self.cost = meter.each(wanted)
            if self.name in FINISHED:
                return number(connection, PACE.format(finished=FINISHED[self.name]))
        ends = sorted(run.ended for run in read(self._noted))
        return (len(ends) - 1) / (ends[-1] - ends[0])

    @property
    def _noted(self) -> Path:
        """The log of its jobs."""
        return Path(self.variables["PEER_LOG"])

    def _command(self, verb: str) -> list[str]:
        return [str(RELEASES[self.name].interpreter), str(SCRIPTS / f"on_{self.name}.py"), verb]

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "PEER_URL": plain(self.url), **self.variables}


@contextmanager
def peer(ground: Ground, name: str, **variables: str) -> Iterator[Peer]:
    """The peer, installed, on a fresh database with its tables made."""
    said = install([name])[name]
    if not RELEASES[name].installed:
        raise RuntimeError(f"{name} {said}")
    with ground.database(ours=False) as url, tempfile.TemporaryDirectory(dir=ground.folder) as folder:
        noted = {} if name in FINISHED else {"PEER_LOG": str(Path(folder) / "runs.log")}
        made = Peer(ground, name, url, Path(folder), noted | variables)
        made.prepare()
        yield made
