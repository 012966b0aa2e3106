"""From an empty folder to two hosts, as a newcomer would go: wheel, project, own stage, own server."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_wheel import type_in

OWN_STAGE = '''"""Every page ends in a word of thanks."""

from dataclasses import replace

from pipeline import Done, Outcome, Stage, StageContext, TopicView


class Thank(Stage):
    def run(self, topic: TopicView, ctx: StageContext) -> Outcome:
        return Done(draft=replace(ctx.draft, body=ctx.draft.body + "\\n\\nThank you for reading.\\n"))
'''


def two_hosts(folder: Path, env: dict[str, str]) -> list[tuple[int, str]]:
    """The same run at once under two host names, where the system lets us have them."""
    named = ["unshare", "--uts", "sh", "-c"] if os.geteuid() == 0 and shutil.which("unshare") else ["sh", "-c"]
    runs = []
    for host in ("north", "south"):
        name = f"hostname {host}; " if named[0] == "unshare" else ""
        command = [*named, f"{name}exec pipeline run --site demo --workers 1"]
        runs.append(subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    return [(run.wait(timeout=200), run.stdout.read().decode()) for run in runs if run.stdout]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_newcomer_gets_from_nothing_to_two_hosts(wheel: Path, run_folder: Path, fresh_database: str) -> None:
    """Each step with what the documents say, and nothing else."""
    folder = run_folder / "newcomer"
    folder.mkdir()
    folder.chmod(0o755)
    ours = ("PYTHON", "PIPELINE_", "VIRTUAL_ENV", "DATABASE_URL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env["PATH"] = f"{folder / 'venv' / 'bin'}{os.pathsep}{env['PATH']}"
    project = folder / "coffee"
    pages = project / "public" / "demo"

    try:
        type_in(f"{sys.executable} -m venv venv && pip install -q --disable-pip-version-check {wheel}", folder, env)
        assert "8 of 8 topics live" in type_in(
            "pipeline init coffee && cd coffee && pipeline run --site demo", folder, env
        )

        (project / "stages" / "thank.py").write_text(OWN_STAGE)
        tuple_of = project / "stages" / "__init__.py"
        text = tuple_of.read_text()
        text = text.replace("PIPELINE = (Generate, Validate", "PIPELINE = (Generate, Thank, Validate")
        tuple_of.write_text(
            text.replace("from stages.validate", "from stages.thank import Thank\nfrom stages.validate")
        )
        topics = project / "sites" / "demo" / "topics.csv"
        slug = topics.read_text().splitlines()[1].split(",")[2]
        type_in(f"pipeline topics edit demo/{slug} --set title='A new title for the page of {slug}'", project, env)
        assert "1 changed" in type_in("pipeline run --site demo", project, env)
        thanked = [p for p in pages.rglob("index.html") if "Thank you for reading." in p.read_text()]
        assert len(thanked) == 1

        shutil.rmtree(project / "public")
        env["PIPELINE_DATABASE_URL"] = fresh_database
        type_in("pipeline db upgrade && pipeline db check", project, env)
        runs = two_hosts(project, env)

        assert [code for code, _ in runs] == [0, 0], runs
        assert "8 of 8 topics live" in type_in("pipeline run --site demo", project, env)
        assert len([p for p in pages.rglob("index.html") if "Thank you for reading." in p.read_text()]) == 8
        hosts = type_in(
            "pipeline db shell -- -Atc \"SELECT DISTINCT split_part(worker, '/', 1) FROM pipeline.attempts\"",
            project,
            env,
        )
        assert set(hosts.split()) <= {"north", "south", os.uname().nodename}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
