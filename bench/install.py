"""The peers: which releases, each in an environment of its own below ``.bench/peers`` (or ``BENCH_PEERS``)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOME = Path(os.environ.get("BENCH_PEERS", Path(__file__).parents[1] / ".bench" / "peers"))


@dataclass(frozen=True, slots=True)
class Release:
    """One peer: what to install, and the oldest Python that it runs on."""

    name: str
    pins: tuple[str, ...]
    python: tuple[int, int] = (3, 11)
    quick: bool = False

    @property
    def interpreter(self) -> Path:
        return HOME / self.name / "bin" / "python"

    @property
    def installed(self) -> bool:
        return (HOME / self.name / "installed").is_file()


RELEASES = {
    release.name: release
    for release in (
        Release("pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0"), quick=True),
        Release("procrastinate", ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"), quick=True),
        Release("dbos", ("dbos==3.4.0", "psycopg[binary]==3.3.9"), quick=True),
        Release("oban", ("oban==0.7.0", "psycopg[binary,pool]==3.3.9"), python=(3, 12)),
        Release("chancy", ("chancy==0.26.0", "psycopg[binary,pool]==3.3.9")),
        Release("absurd", ("absurd-sdk==0.5.1", "absurdctl", "psycopg[binary,pool]==3.3.9")),
        Release("awa", ("awa-pg==0.6.9",)),
    )
}


def install(names: Sequence[str] = ()) -> dict[str, str]:
    """Make what is missing of the environments of the named peers, or of all; what came of each."""
    return {name: _install(RELEASES[name]) for name in names or RELEASES}


def _install(release: Release) -> str:
    if release.installed:
        return "is there"
    python = _python(release.python)
    if python is None:
        return f"cannot be installed: needs Python {release.python[0]}.{release.python[1]}, which is not here"
    folder = HOME / release.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    pip = [str(release.interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *release.pins]
    for command in ([python, "-m", "venv", str(folder)], pip):
        said = subprocess.run(command, capture_output=True, text=True)
        if said.returncode:
            last = (said.stderr.strip() or said.stdout.strip()).splitlines()[-1:]
            return f"cannot be installed: {''.join(last)}"
    listed = subprocess.run([release.interpreter, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
    (folder / "installed").write_text(listed.stdout)
    return "installed"


def _python(oldest: tuple[int, int]) -> str | None:
    """This interpreter if it is new enough, else the first newer one that is found by its usual name."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    for minor in range(oldest[1], oldest[1] + 3):
        found = shutil.which(f"python{oldest[0]}.{minor}")
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    return None
