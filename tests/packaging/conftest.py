"""The wheel, built once a run from this tree."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree; with the backend at hand when there is one, else with a downloaded one."""
    folder = tmp_path_factory.mktemp("dist")
    at_hand = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    words = ["wheel", "--no-deps", "--quiet", "--disable-pip-version-check", *at_hand, "--wheel-dir", str(folder)]
    built = subprocess.run(
        [sys.executable, "-m", "pip", *words, str(ROOT)], capture_output=True, text=True, timeout=110
    )
    if "Could not find a version" in built.stderr and "hatchling" in built.stderr:
        pytest.skip("the build backend hatchling is neither installed nor within reach")
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found
