"""The plugin in a project of somebody else's, as pytest meets it there."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
pytest_plugins = ["pytester"]

PLUGIN = "pipeline.testing.plugin"
HEAVY = ("sqlalchemy", "psycopg", "alembic", "pydantic", "jinja2", "pipeline.stages", "pipeline.testing.database")

STAGES = """
from pipeline import Done, Draft, Finding, Reject, Stage


class Write(Stage):
    def run(self, topic, ctx):
        return Done(draft=Draft(topic.title, "About it", topic.brief["text"]))


class Tone(Stage):
    def run(self, topic, ctx):
        if "synergy" in ctx.draft.body:
            return Reject([Finding("tone", "say it in plain words")])
        return Done()


PIPELINE = (Write, Tone)
"""

TESTS = """
from pipeline import Done
from pipeline.testing import Context, a_draft, a_topic, run_stage
from stages import Tone


def test_tone():
    assert isinstance(run_stage(Tone, a_topic(), Context(draft=a_draft(body="plain words"))), Done)


def test_drain(pipeline_project):
    pipeline_project.plan()

    left = pipeline_project.drain()

    assert pipeline_project.states() == {"good": ("tone", "done"), "bad": ("tone", "repair")}
    assert [t.job.topic for t in left.troubles] == ["bad"]


def test_a_second_one_starts_empty(pipeline_project):
    assert pipeline_project.services.reading.sites() == []
"""


@pytest.fixture
def project(pytester, monkeypatch, server_url):
    """A tiny project, whose pytest knows the plugin and is told nothing of this run."""
    site = pytester.mkdir("sites") / "acme"
    site.mkdir()
    (site / "site.toml").write_text('name = "Acme"\nbase_url = "https://acme.example"\n')
    (site / "topics.csv").write_text("lane,slug,title,type,text\na,good,Good,page,plain\nb,bad,Bad,page,synergy\n")
    pytester.mkpydir("stages").joinpath("__init__.py").write_text(STAGES)
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\npythonpath = ["."]\naddopts = "--strict-markers -W error"\n')
    for name in ("PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TEST_DATABASE_URL", server_url)
    return pytester


def run(project, *words):
    """pytest in a process of its own; the plugin is named where the package is not installed."""
    named = [] if entry_points(group="pytest11", name="pipeline") else ["-p", PLUGIN]
    return project.runpytest_subprocess(*named, *words, timeout=100)


def test_a_project_tests_its_own_stages(project):
    """A stage alone, all of them drained, and an empty database for each test; the checkout stays as it was."""
    project.makepyfile(test_mine=TESTS)

    run(project, "-p", "no:cacheprovider").assert_outcomes(passed=3)

    assert not (project.path / "public").exists()
    assert not (project.path / ".pipeline").exists()


def test_the_example_of_the_readme_runs(project):
    """The section "Test a stage", word for word."""
    section = Path(__file__).with_name("test-a-stage.md").read_text()
    readme = (ROOT / "README.md").read_text()
    if "## Test a stage" in readme:
        section = readme.partition("## Test a stage")[2].partition("\n## ")[0]
    (project.path / "sites/acme/topics.csv").write_text("lane,slug,title,type,text\na,good,Good,page,plain\n")
    project.mkdir("tests").joinpath("test_tone.py").write_text(section.partition("```python\n")[2].partition("```")[0])

    run(project).assert_outcomes(passed=2)


@pytest.mark.slow
def test_processes_of_one_run_share_a_server_of_their_own(project, monkeypatch):
    """Without a named server the embedded one is started, once, and is gone afterwards with its folder."""
    monkeypatch.delenv("TEST_DATABASE_URL")
    body = """
        from pathlib import Path

        def test_{n}(pipeline_database, pipeline_server):
            Path({seen!r}, "{n}").write_text(pipeline_server.url + chr(10) + pipeline_database)
    """
    seen = project.mkdir("seen")
    project.makepyfile(**{f"test_{n}": dedent(body.format(n=n, seen=str(seen))) for n in "ab"})

    run(project, "-n", "2", "--dist", "loadfile").assert_outcomes(passed=2)

    said = [(seen / n).read_text().splitlines() for n in "ab"]
    home = Path(re.search(r"host=([^&]+)", said[0][0])[1].replace("%2F", "/"))
    assert said[0][0] == said[1][0]
    assert said[0][1] != said[1][1]
    assert not home.exists()


def test_fixtures_are_overridden_where_there_are_several_sites(project):
    """By parametrization of ``pipeline_site``; without it, the refusal names them."""
    beta = project.path / "sites" / "beta"
    beta.mkdir()
    (beta / "site.toml").write_text('name = "Beta"\nbase_url = "https://beta.example"\n')
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("pipeline_site", ["acme", "beta"])
        def test_each(pipeline_project, pipeline_site):
            assert pipeline_project.site.slug == pipeline_site

        def test_neither(pipeline_project):
            pass
        """
    )

    result = run(project)

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*which site? there are 2: acme, beta; override the fixture pipeline_site*"])


def test_loading_the_plugin_costs_nothing():
    """It brings along pytest and itself; the database, the models and the stages stay outside."""
    code = f"import sys, {PLUGIN}; print(*[name for name in {HEAVY!r} if name in sys.modules])"

    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )

    assert said.stdout.split() == []


def test_every_public_name_is_there_and_listed():
    import pipeline.testing

    assert [n for n in pipeline.testing.__all__ if getattr(pipeline.testing, n).__name__ != n] == []
    assert not hasattr(pipeline.testing, "nothing")
