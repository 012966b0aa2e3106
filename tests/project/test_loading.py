"""``stages:PIPELINE``: what is accepted, and what is refused with the name of what is wrong."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from pipeline.errors import StagesError
from pipeline.project.loading import Stages, load_stages

HEAD = """
from datetime import timedelta
from pipeline import Done, SiteStage, Stage
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[str], Stages]]:
    """Loads a project's stages from their text; whatever is called ``stages`` before is there again after."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "stages"}
    path = list(sys.path)

    def write_and_load(text: str) -> Stages:
        (tmp_path / "stages").mkdir()
        (tmp_path / "stages/__init__.py").write_text(HEAD + dedent(text))
        return load_stages(tmp_path)

    yield write_and_load
    for name in [name for name in sys.modules if name.split(".")[0] == "stages"]:
        del sys.modules[name]
    sys.modules.update(kept)
    sys.path[:] = path


def test_stages_have_three_colours(load: Callable[[str], Stages]) -> None:
    """Plain, async, and in a process."""
    found = load("""
        class One(Stage):
            def run(self, topic, ctx): return Done()
        class Two(Stage):
            async def run(self, topic, ctx): return Done()
        class Three(Stage):
            executor = "process"
            deadline = timedelta(seconds=5)
            def run(self, topic, ctx): return Done()
        PIPELINE = (One, Two, Three)
    """)

    assert list(found.pipeline) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("attributes", "run", "said"),
    [
        ("executor = 'process'", "async def run(self, topic, ctx): return Done()", "is async and asks for .*'process'"),
        (
            "executor = 'fork'",
            "def run(self, topic, ctx): return Done()",
            "executor 'fork'; there is 'thread' .*'process'",
        ),
        ("executor = None", "def run(self, topic, ctx): return Done()", "executor None; there is"),
        ("", "def run(self, topic, ctx): yield Done()", "yields; it must return one outcome"),
        ("", "async def run(self, topic, ctx): yield Done()", "yields; it must return one outcome"),
        ("deadline = 5", "def run(self, topic, ctx): return Done()", "deadline 5; use a timedelta"),
        ("deadline = timedelta(0)", "def run(self, topic, ctx): return Done()", "deadline .*; use a timedelta"),
        ("lease = None", "def run(self, topic, ctx): return Done()", "lease None; use a timedelta"),
    ],
)
def test_nonsense_is_refused(load: Callable[[str], Stages], attributes: str, run: str, said: str) -> None:
    """With the class and what it may be instead."""
    with pytest.raises(StagesError, match=f"stage Odd.*{said}"):
        load(f"class Odd(Stage):\n    {attributes or 'pass'}\n    {run}\nPIPELINE = (Odd,)")


@pytest.mark.parametrize(("attributes", "run"), [("pass", "async def"), ("executor = 'process'", "def")])
def test_the_sites_own_job_runs_in_a_thread(load: Callable[[str], Stages], attributes: str, run: str) -> None:
    """It is refused to be anything else, not silently run otherwise."""
    with pytest.raises(StagesError, match="ASSEMBLE Home must have a plain def run"):
        load(f"""
class Page(Stage):
    def run(self, topic, ctx): return Done()
class Home(SiteStage):
    {attributes}
    {run} run(self, site, ctx): return Done()
PIPELINE = (Page,)
ASSEMBLE = Home
""")
