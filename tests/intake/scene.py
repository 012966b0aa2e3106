"""Sources made for the readers, and what they find in them."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from pipeline.intake.deciding import Decision, Site, decide
from pipeline.intake.found import Address, Found, Item, Left, Named, Note, Refused, Unreadable
from pipeline.intake.rules import Rules, rules
from pipeline.intake.sources import Source, read, sources
from pipeline.project.site import page_path
from pipeline.views import TopicRow


def real(name: str) -> Path | None:
    """A real input beside the checkout, where there is one."""
    found = (parent / "shared" / "data" / name for parent in Path(__file__).resolve().parents)
    return next((path for path in found if path.exists()), None)


def found_in(path: Path, named: Named | None = None) -> list[Found]:
    """All that is found below a path; what cannot be read is a Refused."""
    found: list[Found] = []
    for source in sources(path):
        if isinstance(source, Source):
            try:
                found += read(source, named or Named())
            except Unreadable as error:
                found.append(Refused(source.name, error.line, error.why))
        else:
            found.append(source)
    return found


def in_file(folder: Path, name: str, data: bytes | str, named: Named | None = None) -> list[Found]:
    """What is found in a file of these bytes."""
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return found_in(path, named)


def items(found: list[Found]) -> list[Item]:
    return [one for one in found if isinstance(one, Item)]


def titles(found: list[Found]) -> list[str]:
    return [item.title for item in items(found)]


def refused(found: list[Found]) -> list[tuple[int, str]]:
    return [(one.line, one.why) for one in found if isinstance(one, Refused)]


def said(found: list[Found]) -> list[str]:
    return [one.why if isinstance(one, Left) else one.what for one in found if isinstance(one, Left | Note)]


def addresses(found: list[Found]) -> list[str]:
    return [one.url for one in found if isinstance(one, Address)]


def zipped(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def row(slug: str, title: str = "", lane: str = "page", **brief: str) -> TopicRow:
    return TopicRow(lane, slug, title or slug.title(), "page", f"{slug}/", 1, brief, 2)


def item(title: str, line: int = 2, **cells: str) -> Item:
    return Item("a.csv", line, title, title, False, "", {"name": title, **cells})


def decided(
    given: list[Item], *there: TopicRow, by: Rules | None = None, live: Mapping[str, str] | None = None
) -> Decision:
    def path(**of: str) -> str:
        return page_path({}, **of)

    return decide(given, Site("topics.csv", there, path, live or {}), by or rules())
