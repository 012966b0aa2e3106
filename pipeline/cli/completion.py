"""Words that a shell may complete: names of sites, from the project's folder; floor 4. No database is asked."""

import os
from collections.abc import Sequence
from pathlib import Path

ASKS = ("--install-completion", "--show-completion")


def asked_for(arguments: Sequence[str]) -> bool:
    """Whether a shell asks for words, or a person for what their shell needs; then the library ends the process."""
    return "_PIPELINE_COMPLETE" in os.environ or any(word in ASKS for word in arguments[:1])


def site_names(incomplete: str) -> list[str]:
    """The sites here that begin so. Never fails, and loads nothing: it runs at each press of a key."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "sites").is_dir() or (folder / "pipeline.toml").is_file():  # as settings.project_root
            found = sorted(path.parent.name for path in folder.glob("sites/*/site.toml"))
            return [name for name in found if name.startswith(incomplete) and name.isprintable()]
    return []


def site_slashes(incomplete: str) -> list[str]:
    """The same for what is named as SITE/SOMETHING."""
    return [] if "/" in incomplete else [f"{name}/" for name in site_names(incomplete)]
