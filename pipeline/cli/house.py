"""What commands open: the project around the current folder, its database, a site in it; floor 4."""

import difflib
import getpass
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline.errors import NotFound, Refused, UsageError

if TYPE_CHECKING:
    from pipeline.build import Services
    from pipeline.settings import Settings


class NothingHere(Refused):
    """nothing here yet; run: pipeline run --site NAME"""


@dataclass(frozen=True, slots=True)
class House:
    """A project's database, open, with a schema that fits."""

    root: Path
    services: "Services"

    def sites(self) -> dict[str, int]:
        return {slug: site_id for site_id, slug in self.services.reading.sites()}

    def site_id(self, slug: str) -> int:
        """The id of the site; NotFound with the nearest names for one that the database does not know."""
        known = self.sites()
        if slug in known:
            return known[slug]
        from pipeline.project.site import sites

        if slug in sites(self.root):
            raise NotFound(f"site {slug!r} was never run; run: pipeline run --site {slug}")
        raise NotFound(unknown("site", slug, known, "in the database"))


def actor() -> str:
    """Who is noted with what he does: the user of this machine."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        return "unknown"


def confirm(question: str, *, yes: bool) -> None:
    """On a terminal, have a person say yes; anything else aborts."""
    if yes or sys.stdin is None or not sys.stdin.isatty():
        return
    typer.confirm(question, abort=True, err=True)


def parted(name: str, kind: str, example: str) -> tuple[str, str]:
    """The two parts of a name such as SITE/SLUG."""
    site, _, rest = name.partition("/")
    if not site or not rest or "/" in rest:
        raise UsageError(
            f"{name!r} names no {kind}; write SITE/{'SLUG' if kind == 'topic' else 'LANE'}, such as {example}"
        )
    return site, rest


def unknown(kind: str, name: str, known: Collection[str], where: str) -> str:
    """A message for a name that is not there, with the nearest ones that are."""
    near = difflib.get_close_matches(name, known, n=2)
    if near:
        return f"no {kind} {name!r} {where}; did you mean {' or '.join(map(repr, near))}?"
    shown = sorted(known)[:20]
    rest = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"no {kind} {name!r} {where}; there is: {', '.join(shown) or 'none yet'}{rest}"


def project() -> tuple["Settings", Path]:
    """The settings, and the root of the project around the current folder."""
    from pipeline.db import parse_url
    from pipeline.settings import load_settings, project_root

    settings = load_settings()
    if settings.database_url is not None:
        parse_url(settings.database_url.get_secret_value())
    return settings, project_root()


def refuse_nothing(settings: "Settings", root: Path, site: str | None = None) -> None:
    """Raise NothingHere when the embedded server was never started: nobody starts one to find nothing."""
    from pipeline.build import is_embedded

    if not is_embedded(settings):
        return
    from pipeline.embedded import EmbeddedServer, embedded_home

    if (EmbeddedServer(embedded_home(root)).home / "data").exists():
        return
    from pipeline.project.site import sites

    here = sites(root)
    if site is not None and here and site not in here:
        raise NotFound(unknown("site", site, here, "here"))
    raise NothingHere(f"nothing here yet; run: pipeline run --site {site or (here[0] if len(here) == 1 else 'NAME')}")


@contextmanager
def opened(command: str, site: str | None = None) -> Iterator[House]:
    """The database of this project, for a command that asks or moves jobs. The schema is checked, never changed."""
    settings, root = project()
    refuse_nothing(settings, root, site)
    from pipeline import migrate
    from pipeline.build import connect, open_database

    with (
        open_database(settings, root) as url,
        connect(url, settings, name=f"pipeline {command}", connections=2) as services,
    ):
        migrate.check_schema(services.engine, settings.db_schema)
        yield House(root, services)


@contextmanager
def maybe_opened(command: str, site: str | None = None) -> Iterator[House | None]:
    """The database of this project, or None where there is none yet: nobody starts a server to find nothing."""
    with ExitStack() as stack:
        try:
            house: House | None = stack.enter_context(opened(command, site))
        except NothingHere:
            house = None
        yield house
