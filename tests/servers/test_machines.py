"""Workers on several machines: each in a network, a process table and a host name of its own, on one server."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.doors.scene import ROOT, TOML, harmless
from tests.processes.project import until
from tests.servers.scratch import Scratch

TOOLS = ("ip", "unshare", "setpriv")
missing = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks"),
    pytest.mark.skipif(bool(missing), reason=f"missing here: {', '.join(missing)} (iproute2, util-linux)"),
]

NET = "10.213.77"
LEASE = 3
LANES, LENGTH = "abc", 4

STAGES = f"""
import hashlib
import os
import time
from datetime import timedelta
from pathlib import Path

from pipeline import Done, Draft, Found, Stage

SIGNS = Path(__file__).parents[1] / "signs"
HOST = os.environ["HOST"]


class Write(Stage):
    lease = timedelta(seconds={LEASE})

    def run(self, topic, ctx):
        return Done(draft=Draft(topic.title, "", topic.title))


class Release(Stage):
    width = 1
    target = "files"
    lease = timedelta(seconds={LEASE})

    def run(self, topic, ctx):
        if HOST == "one":  # careless: it never asks whether its result is still wanted
            (SIGNS / f"held-{{topic.slug}}").touch()
            while not (SIGNS / "go").exists():
                time.sleep(0.02)
        data = ctx.draft.body.encode()
        file = ctx.site.output / topic.path / "index.html"

        def look():
            return Found(hashlib.sha256(file.read_bytes()).hexdigest(), "") if file.exists() else None

        def act():
            (SIGNS / f"acted-{{topic.slug}}-{{HOST}}").touch()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            return ""

        digest = hashlib.sha256(data).hexdigest()
        ctx.ledger.publish("files", topic.path, digest, look, act, topic_id=topic.id, revision=ctx.revision)
        return Done()


PIPELINE = (Write, Release)
"""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


@dataclass(slots=True)
class Machine:
    """A host with one network card, ``card``, on the bridge."""

    name: str
    namespace: str
    project: Path
    url: str
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """A command of the project on this machine, its talk in a file."""
        inside = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "--pid", "--fork", "--kill-child",
                  "--mount-proc", "sh", "-c", 'hostname "$HOST" && exec "$@"', "sh"]  # fmt: skip
        own = {"PIPELINE_DATABASE_URL": self.url, "HOST": self.name, "PYTHONPATH": str(ROOT), "PIPELINE_POLL": "0.1",
               "PIPELINE_REAP": "0.3", "PIPELINE_GRACE": "5", "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*inside, sys.executable, "-m", "pipeline.cli.main", *words],
                cwd=self.project, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def cut_off(self) -> None:
        ip("-n", self.namespace, "link", "set", "card", "down")

    def bring_back(self) -> None:
        ip("-n", self.namespace, "link", "set", "card", "up")

    @property
    def log(self) -> Path:
        return self.project / f"{self.name}.log"

    def said(self) -> str:
        text = self.log.read_text()
        harmless(text)
        return text


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """The name of a namespace with a bridge; whatever is in it is gone afterwards."""
    name = f"pl-hub-{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "add", "hub", "type", "bridge")
        ip("-n", name, "addr", "add", f"{NET}.1/24", "dev", "hub")
        ip("-n", name, "link", "set", "hub", "up")
        yield name
    finally:
        ip("netns", "del", name)


@pytest.fixture
def server(hub: str, scratch_folder: Path) -> Iterator[Scratch]:
    folder = scratch_folder / "bridge"
    folder.mkdir(mode=0o700)
    server = Scratch(folder, address=f"{NET}.1", trusted=f"{NET}.0/24", namespace=hub)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machines(hub: str, server: Scratch, tmp_path: Path) -> Iterator[list[Machine]]:
    """Three of them, with one project folder."""
    project = tmp_path / "project"
    (project / "sites/demo").mkdir(parents=True)
    (project / "signs").mkdir()
    (project / "stages").mkdir()
    (project / "stages/__init__.py").write_text(STAGES)
    (project / "sites/demo/site.toml").write_text(TOML)
    rows = [f"{lane},{n},{lane}{n},Title of {lane}{n},page" for lane in LANES for n in range(1, LENGTH + 1)]
    (project / "sites/demo/topics.csv").write_text("\n".join(["lane,position,slug,title,type", *rows]) + "\n")
    made: list[Machine] = []
    try:
        for number, name in enumerate(("one", "two", "three"), start=2):
            namespace = f"pl-{name}-{os.getpid()}"
            ip("netns", "add", namespace)
            url = server.url().render_as_string(hide_password=False)
            made.append(Machine(name, namespace, project, url))
            port = f"port{number}"
            ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "card", "netns", namespace)
            ip("-n", hub, "link", "set", port, "master", "hub", "up")
            ip("-n", namespace, "addr", "add", f"{NET}.{number}/24", "dev", "card")
            ip("-n", namespace, "link", "set", "card", "up")
            ip("-n", namespace, "link", "set", "lo", "up")
        yield made
    finally:
        for machine in made:
            for process in machine.processes:
                process.kill()
                process.wait()
            ip("netns", "del", machine.namespace)


def rows(machine: Machine, statement: str) -> list[list[str]]:
    """Asked from a machine: the server cannot be reached from outside."""
    code = (
        "import os, sys, psycopg\n"
        "url = os.environ['PIPELINE_DATABASE_URL'].replace('+psycopg', '')\n"
        "with psycopg.connect(url, connect_timeout=5) as connection:\n"
        "    for row in connection.execute(sys.argv[1]): print(*row, sep='|')\n"
    )
    done = subprocess.run(
        ["ip", "netns", "exec", machine.namespace, sys.executable, "-c", code, statement],
        env={**os.environ, "PIPELINE_DATABASE_URL": machine.url}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.split("|") for line in done.stdout.splitlines()]


LIVE = "SELECT count(*) FROM pipeline.publications WHERE live_path IS NOT NULL AND topic_id IS NOT NULL"
RELEASES = """
SELECT t.slug, a.outcome, split_part(a.worker, '/', 1), a.fence FROM pipeline.attempts a
JOIN pipeline.jobs j ON j.id = a.job_id JOIN pipeline.topics t ON t.id = j.topic_id
WHERE a.stage = 'release' ORDER BY a.fence
"""
OVERTAKEN = """
SELECT later.id FROM pipeline.attempts a JOIN pipeline.jobs later ON later.id = a.job_id AND a.stage = 'release'
JOIN pipeline.jobs earlier ON earlier.lane_id = later.lane_id AND earlier.position < later.position
WHERE a.reserved_at < (SELECT max(d.ended_at) FROM pipeline.attempts d
    WHERE d.job_id = earlier.id AND d.stage = 'release' AND d.outcome = 'done')
"""


@pytest.mark.guarantee("R5")
@pytest.mark.guarantee("R8")
def test_a_machine_that_is_cut_off_writes_nothing_and_the_others_go_on(machines: list[Machine]) -> None:
    """Three lanes' heads are in its hands when its network goes; after their lease two others publish all, in order."""
    one, two, three = machines
    assert one.start("db", "upgrade").wait(timeout=60) == 0, one.said()
    words = ("run", "--site", "demo", "--workers", "1")
    first = one.start(*words)
    heads = [f"held-{lane}1" for lane in LANES]
    signs = one.project / "signs"
    until(lambda: all((signs / head).exists() for head in heads), "the first machine holds each lane's head", 60)
    rest = [two.start(*words), three.start(*words)]
    until(lambda: "ready" in two.said() or "running" in two.said(), "another machine watches")
    assert rows(two, LIVE) == [["0"]]

    one.cut_off()
    assert [process.wait(timeout=60) for process in rest] == [0, 0], two.said() + three.said()
    assert rows(two, LIVE) == [[str(len(LANES) * LENGTH)]]
    assert first.poll() is None
    one.bring_back()
    (signs / "go").touch()

    assert first.wait(timeout=60) == 0, one.said()
    assert one.said().count("worker 1: lost job") == len(LANES), one.said()
    assert [path.name for path in signs.glob("acted-*-one")] == []
    tried = rows(two, RELEASES)
    ended = [(outcome, host) for slug, outcome, host, _ in tried if slug.endswith("1")]
    assert sorted(outcome for outcome, _ in ended) == ["done"] * 3 + ["expired"] * 3
    assert {host for outcome, host in ended if outcome == "expired"} == {"one"}
    done = [slug for slug, outcome, _, _ in tried if outcome == "done"]
    assert sorted(done) == sorted(f"{lane}{n}" for lane in LANES for n in range(1, LENGTH + 1))
    assert rows(two, OVERTAKEN) == []
    for lane in LANES:
        assert [slug for slug in done if slug[0] == lane] == [f"{lane}{n}" for n in range(1, LENGTH + 1)]
