"""Make a small project that works: a site with its pages, the ready-made stages, settings; ground floor.

All of it comes with the package, so no network is needed. It only ever writes into a folder that holds nothing yet.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import NotFound, Refused, UsageError
from pipeline.project.site import MAX_SLUG_BYTES, SLUG
from pipeline.project.topics import DEVICES

PACKAGE = Path(__file__).resolve().parents[1]
STARTER = Path(__file__).resolve().parent / "starter"
WELCOME = frozenset({".git", ".venv"})  # what may stand in a folder before its project begins
NAMED = 5  # entries in a refusal
IN_THE_WHEEL = "pipeline:migrations"


def start_project(folder: Path, site: str = "demo") -> list[Path]:
    """Write a project into a new or empty folder; the files that were made, in order.

    Raises UsageError for a name that no site can have, Refused for a folder that is not empty. What was written before
    an error is taken away again.
    """
    _check_name(site)
    _check_folder(folder)
    files = sorted(_files(site))
    made: list[Path] = []
    try:
        for name, text in files:
            path = folder / name
            for missing in [p for p in reversed(path.parents) if not p.exists()]:
                missing.mkdir()
                made.append(missing)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                made.append(path)
                file.write(text)
    except BaseException:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
    return [folder / name for name, _ in files]


def stages_folder() -> Path:
    """Where the ready-made stages are: in the installed package, or beside it in a checkout."""
    return _beside(STARTER / "stages", "stages")


def _check_name(site: str) -> None:
    if not SLUG.fullmatch(site) or len(site) > MAX_SLUG_BYTES or site in DEVICES:
        raise UsageError(f"{site[:60]!r} is no name for a site; use lower-case letters and digits, words joined by '-'")


def _check_folder(folder: Path) -> None:
    if folder.is_symlink() and not folder.exists():
        raise Refused(f"{folder} is a link that leads nowhere; name another folder")
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file; name a new folder")
    found = sorted({p.name for p in folder.iterdir()} - WELCOME) if folder.exists() else []
    if found:
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise Refused(f"{folder} is not empty: it holds {', '.join(found[:NAMED])}{more}; name a new folder")


def _files(site: str) -> Iterator[tuple[str, str]]:
    """Name and text of every file of the project."""
    values = {"@SITE@": site, "@MIGRATIONS@": _migrations()}
    for path in STARTER.rglob("*"):
        name = path.relative_to(STARTER).as_posix()
        if not path.is_file() or path.suffix in (".py", ".pyc"):
            continue  # stages: below
        text = path.read_text(encoding="utf-8")
        for mark, value in values.items():
            text = text.replace(mark, value)
        yield name.replace("site/", f"sites/{site}/", 1) if name.startswith("site/") else _NAMES.get(name, name), text
    stages = sorted(stages_folder().glob("*.py"))
    if not stages:
        raise NotFound(f"this installation has lost its stages (none in {stages_folder()}); install pipeline again")
    for path in stages:
        yield f"stages/{path.name}", path.read_text(encoding="utf-8")


_NAMES = {"gitignore": ".gitignore"}  # a real one would hide files of ours from git


def _migrations() -> str:
    """Where Alembic finds the revisions. A checkout has no ``pipeline/migrations``, so its own folder is named."""
    found = _beside(PACKAGE / "migrations", "alembic")
    return IN_THE_WHEEL if found.is_relative_to(PACKAGE) else str(found).replace("%", "%%")


def _beside(installed: Path, name: str) -> Path:
    return installed if installed.is_dir() else PACKAGE.parent / name
