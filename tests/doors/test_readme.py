"""What the README tells to type is typed, by a shell, and works."""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.build import Services
from pipeline.project.loading import load_stages
from pipeline.project.site import load_site
from pipeline.project.topics import load_topics
from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.work import Prefix
from pipeline.views import Claim
from pipeline.wanted import hashed, specs
from tests.doors.scene import MODULE
from tests.factories import LEASE
from tests.warm import Process

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def commands_of(page: str) -> list[str]:
    """What a page tells to type, line by line, without its remarks."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


COMMANDS = commands_of(README)
SET_UP = [c for c in COMMANDS if c.startswith("python3 -m venv")]
EXPORTS = [c for c in COMMANDS if c.startswith("export ")]
THE_REST = [c for c in COMMANDS if c not in SET_UP + EXPORTS]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of this project with the first pages of two of the countries, and ``pipeline`` on a path of its own."""
    folder = tmp_path / "project"
    for name in ("stages", "sites", "alembic"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "alembic.ini", folder)
    topics = folder / "sites/acme/topics.csv"
    with topics.open(newline="") as file:
        header, *rows = csv.reader(file)
    kept = [r for r in rows if r[0] in ("japan", "italy") and int(r[1]) <= 4]
    with topics.open("w", newline="") as file:
        csv.writer(file).writerows([header, *kept])
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, module in (("pipeline", "pipeline.cli.main"), ("alembic", "alembic")):
        script = bin / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        script.chmod(0o755)
    return folder


def environment(project: Path, url: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
    own = {"PIPELINE_DATABASE_URL": url, "PYTHONPATH": str(ROOT), "PATH": f"{project.parent / 'bin'}:{env['PATH']}"}
    return env | own


def type_in(command: str, project: Path, url: str) -> tuple[int, str]:
    """Have a shell run it; its exit code, and what it said on standard error."""
    env = environment(project, url)
    done = subprocess.run(["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stderr


def type_all(commands: list[str], project: Path, url: str) -> list[tuple[str, int, str]]:
    """One after the other: by a shell the first of each noun, and whatever only a shell understands."""
    said, opened = [], set()
    for command in commands:
        program, noun, *words = shlex.split(command)
        if program != "pipeline" or noun not in opened or "&&" in words:
            code, told = type_in(command, project, url)
        else:
            process = Process(
                MODULE, [noun, *words], cwd=project, env=environment(project, url),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            _, told = process.communicate(timeout=100)
            code = process.wait()
        opened.add(noun)
        said.append((command, code, told if code else ""))
    return said


def planned(project: Path, services: Services) -> None:
    site, stages = load_site(project, "acme"), load_stages(ROOT)
    site_id = services.planning.register(site, specs(stages))
    services.planning.plan(site_id, hashed(site, stages, load_topics(site)))


def generating(services: Services, count: int) -> list[Claim]:
    """So many jobs of the only site, reserved at the first stage."""
    ((site_id, _),) = services.reading.sites()
    return services.work.claim([Prefix(site_id, "generate", 2, count, LEASE)], "test")


def failed_jobs(project: Path, services: Services) -> list[int]:
    """Two jobs that failed at the first stage, as the README's examples suppose."""
    planned(project, services)
    claims = generating(services, 2)
    services.work.acknowledge([Ack(c, Verb.FAIL, error_class="fail", error="no such city") for c in claims])
    return [c.job_id for c in claims]


def test_the_readme_begins_with_the_two_commands_that_ci_runs() -> None:
    """One ends with the main job, one with the tests; ``.ci/run`` reads both from here."""
    assert [c.split(" && ")[-1] for c in SET_UP] == [
        ".venv/bin/pipeline run --site acme",
        ".venv-test/bin/pytest -n 2",
    ]
    assert COMMANDS[:2] == SET_UP
    script = (ROOT / ".ci" / "run").read_text()
    assert "command_with 'pipeline run'" in script
    assert "command_with 'pytest'" in script


def test_every_other_command_works(project: Path, services: Services, database_url: str) -> None:
    """Typed one after the other, with the numbers of jobs that there are, each ends well."""
    first, second = failed_jobs(project, services)
    typed = [re.sub(r"\b41\b", str(first), re.sub(r"\b42\b", str(second), command)) for command in THE_REST]

    said = type_all(typed, project, database_url)

    # The run comes first in the README, and tells that two jobs need a person.
    assert [(c, code) for c, code, _ in said if code] == [("pipeline run --site acme --workers 4", 1)], said


@pytest.mark.slow
def test_every_command_of_the_operators_page_works(project: Path, services: Services, database_url: str) -> None:
    """Typed one after the other, with two jobs that failed and one that runs."""
    planned(project, services)
    claims = {c.topic.slug: c for c in generating(services, 8) if c.topic}
    failed = [Ack(claims[slug], Verb.FAIL, error_class="fail") for slug in ("kyoto", "tokyo", "rome")]
    services.work.acknowledge(failed)
    numbers = {"41": claims["tokyo"].job_id, "42": claims["rome"].job_id, "43": claims["japan"].job_id}
    commands = commands_of((ROOT / "docs" / "operating.md").read_text())
    typed = [re.sub(r"\b4[123]\b", lambda found: str(numbers[found.group()]), command) for command in commands]

    said = type_all(typed, project, database_url)

    assert [(c, code, why) for c, code, why in said if code] == []


def test_plain_alembic_does_the_same(project: Path, database_url: str) -> None:
    """``alembic upgrade head`` works from the project's root."""
    assert type_in("alembic upgrade head && alembic check", project, database_url)[0] == 0


def test_the_readme_stays_short() -> None:
    """150 lines at most."""
    assert len(README.splitlines()) <= 150
