"""``pipeline init``: a project of one's own; floor 4."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.render import as_json, count, out, safe
from pipeline.cli.status import JsonOption


def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.", metavar="DIR")],
    site: Annotated[str, typer.Option("--site", help="What to call its site.", metavar="NAME")] = "demo",
    json: JsonOption = False,
) -> None:
    """Make a small project that works: a site, its stages, its settings.

    Example: pipeline init coffee && cd coffee && pipeline run --site demo
    """
    from pipeline.project.starting import start_project

    made = start_project(folder, site)
    if json:
        names = [path.relative_to(folder).as_posix() for path in made]
        out(as_json({"folder": str(folder.resolve()), "site": site, "files": names}))
        return
    out(f"made {safe(folder)}: {count(len(made), 'file')}; {safe(folder / 'README.md')} tells how to go on")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    out(f"next: {safe(enter)}pipeline run --site {site}")
