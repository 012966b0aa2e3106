"""What leaves the house: a wheel that holds all that it needs and nothing else, and works by itself."""

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

VERSIONS = ("3.11", "3.12", "3.13")
# Folder of this tree → where the wheel has it.
CARRIED = {"pipeline": "pipeline", "alembic": "pipeline/migrations", "stages": "pipeline/project/starter/stages"}


def files_of(folder: Path) -> set[str]:
    found = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts and p.suffix != ".pyc")
    return {p.relative_to(folder).as_posix() for p in found}


def test_the_wheel_holds_what_it_needs_and_nothing_else(wheel: Path) -> None:
    """The package with its theme and its starter, the migrations, the ready-made stages, the licence."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        about = {name for name in names if ".dist-info/" in name}
        entry_points = archive.read(next(name for name in about if name.endswith("entry_points.txt"))).decode()

    expected = {f"{place}/{name}" for source, place in CARRIED.items() for name in files_of(ROOT / source)}
    assert names - about == expected
    assert {
        "pipeline/py.typed",
        "pipeline/migrations/env.py",
        "pipeline/migrations/versions/0001_create_sites.py",
        "pipeline/content/theme/base.html",
        "pipeline/project/starter/README.md",
        "pipeline/project/starter/gitignore",
        "pipeline/project/starter/site/topics.csv",
        "pipeline/project/starter/stages/publish.py",
    } <= names
    assert {name.partition(".dist-info/")[2] for name in about} == {
        "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE",
    }  # fmt: skip
    assert "pipeline = pipeline.cli.main:main" in entry_points


def interpreter(version: str) -> str | None:
    """A Python of that version that can make environments; pyenv's own, then what is on PATH."""
    home = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    places = [*map(str, sorted(home.glob(f"versions/{version}.*/bin/python"), reverse=True))]
    ask = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    for place in [*places, shutil.which(f"python{version}")]:
        if place is None:
            continue
        found = subprocess.run([place, "-c", ask], capture_output=True, text=True, check=False)
        if found.returncode == 0 and found.stdout.strip() == version:
            return place
    return None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_works_by_itself(version: str, wheel: Path, run_folder: Path) -> None:
    """In an empty environment, far from this tree: a project is made, run, checked and migrated."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here that can make environments")
    folder = run_folder / f"wheel-{version}"
    folder.mkdir()
    folder.chmod(0o755)
    ours = ("PYTHON", "PIPELINE_", "VIRTUAL_ENV", "DATABASE_URL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env["PATH"] = f"{folder / 'venv' / 'bin'}{os.pathsep}{env['PATH']}"

    try:
        type_in(f"{python} -m venv venv && pip install -q --disable-pip-version-check {wheel}", folder, env)
        made = type_in("pipeline init x && cd x && pipeline run --site demo", folder, env)
        type_in("pipeline db check && alembic upgrade head && alembic check", folder / "x", env)
        type_in("pip check", folder, env)

        assert "8 of 8 topics live" in made
        assert len(list((folder / "x/public/demo").rglob("index.html"))) == 9
        assert "script_location = pipeline:migrations" in (folder / "x/alembic.ini").read_text()
        assert type_in("pipeline db shell -- -Atc 'SELECT count(*) FROM pipeline.topics'", folder / "x", env) == "8\n"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def type_in(command: str, folder: Path, env: Mapping[str, str]) -> str:
    """What a shell answers to it; it must end well."""
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
