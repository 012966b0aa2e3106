"""Words that a shell may complete: sites, topics and lanes of the project's folder; floor 4. No database is asked."""

import csv
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from pipeline.states import JobState

ASKS = ("--install-completion", "--show-completion")


def asked_for(arguments: Sequence[str]) -> bool:
    """Whether a shell asks for words, or a person for what their shell needs; then the library ends the process."""
    return "_PIPELINE_COMPLETE" in os.environ or any(word in ASKS for word in arguments[:1])


def site_names(incomplete: str) -> list[str]:
    """The sites here that begin so. Never fails, and loads nothing: it runs at each press of a key."""
    found = sorted(path.parent.name for path in _root().glob("sites/*/site.toml"))
    return _fitting(found, incomplete)


def site_topics(incomplete: str) -> list[str]:
    """The same for what is named as SITE/SLUG, from the site's topics file."""
    return _of_a_site(incomplete, "slug")


def site_lanes(incomplete: str) -> list[str]:
    """The same for what is named as SITE/LANE."""
    return _of_a_site(incomplete, "lane")


def job_states(incomplete: str) -> list[str]:
    return _fitting(list(JobState), incomplete)


def _of_a_site(incomplete: str, column: str) -> list[str]:
    site, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in site_names(incomplete)]
    folder = _root() / "sites" / site
    try:
        name = tomllib.loads((folder / "site.toml").read_text("utf-8-sig")).get("topics", "topics.csv")
        delimiter = "\t" if name.endswith((".tsv", ".tab")) else ","
        with (folder / name).open(encoding="utf-8-sig", newline="") as stream:
            found = {f"{site}/{row.get(column) or ''}" for row in csv.DictReader(stream, delimiter=delimiter)}
    except (OSError, ValueError, AttributeError, csv.Error):
        return []
    return _fitting(sorted(found), incomplete)


def _fitting(words: Sequence[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and word.isprintable()]


def _root() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "sites").is_dir() or (folder / "pipeline.toml").is_file():  # as settings.project_root
            return folder
    return here
