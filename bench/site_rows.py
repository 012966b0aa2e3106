"""The city pages of the bench: rows as a file gives them, or made here, as a project of ours."""

import csv
import io
import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.project.starting import start_project

SITE = "cities"
PAGES, LANES = 34_032, 244
HEADER = ("lane", "slug", "title", "type", "description", "name", "country", "subcountry", "geonameid")
SETTINGS = """\
name = "Cities"
tagline = "A page for every city"
description = "Short pages on the cities of the world, each with its region and its country."
base_url = "https://cities.example"

[paths]
city = "{lane}/{slug}/"
"""
TEMPLATE = """\
{{ name }} is a place in {{ subcountry }}, {{ country }}. {{ [
  'This page says where it lies and how to plan a first visit.',
  'Here is what to know before a first visit.',
  'Begin here when you plan a first visit.'
]|pick('opening') }}

## {{ name }} at a glance

| Fact | {{ name }} |
| --- | --- |
| Country | {{ country }} |
| Region | {{ subcountry }} |
| Number in GeoNames | {{ geonameid|number }} |

## What to see

{{ ['A first round takes in:', 'If time is short, begin here:', 'Few regret making time for:']|pick('sights') }}

- **The old streets**: walk them early, before the shops open and the traffic wakes.
- **The market of {{ name }}**: fruit, bread and talk, best on a Saturday morning.
- **The view over {{ subcountry }}**: from the hill behind the station, half an hour on foot.

## Getting there and around

Most people reach {{ name }} by road or rail from the larger cities of {{ country }}. *Buses* run from early morning
until late in the evening, and the centre is small enough to walk. Ask for a map at the station: it shows the
footpaths, which no timetable does.

## When to go

{{ ['Spring and autumn are mild', 'May and September are the best months', 'Early summer is kind']|pick('season') }},
and rooms are easy to find. In high summer book ahead; in winter look up what is open.
"""


@dataclass(frozen=True, slots=True)
class City:
    """One row of the file."""

    name: str
    country: str
    subcountry: str
    geonameid: str


def cities(file: Path, pages: int) -> list[City]:
    """So many rows, spread evenly over the file, or over rows of its shape when there is none."""
    if file.is_file():
        with file.open(encoding="utf-8", newline="") as stream:
            rows = [City(r["name"], r["country"], r["subcountry"], r["geonameid"]) for r in csv.DictReader(stream)]
    else:
        rows = list(_made())
    step = max(len(rows) // pages, 1)
    return rows[::step][:pages]


def _made() -> Iterator[City]:
    """Rows of the same shape: few lanes hold most of the pages."""
    chance = random.Random(1)
    weights = [1 / (rank + 3) for rank in range(LANES)]
    lanes = sorted([*range(LANES), *chance.choices(range(LANES), weights, k=PAGES - LANES)])
    for number, lane in enumerate(lanes):
        yield City(f"Town {number}", f"Country {lane}", f"Province {number % 23}", str(3_000_000 + number))


def write_rows(file: Path, rows: Sequence[City]) -> None:
    """The site's topics file: titles and descriptions are unique, as the rules want them."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    taken: set[str] = set()
    for row in rows:
        region = row.subcountry or row.country
        title = f"{row.name}, {region}, {row.country}: a first visit"
        if title.casefold() in taken:
            title = f"{row.name} ({row.geonameid}), {region}, {row.country}: a first visit"
        taken.add(title.casefold())
        description = (
            f"Where {row.name} in {region}, {row.country} lies, what to see there, how to get around and when to go"
            f" (place {row.geonameid})."
        )
        slug = "-".join(filter(None, (_slug(row.name), row.geonameid)))
        writer.writerow(
            [_slug(row.country), slug, title, "city", description, row.name, row.country, region, row.geonameid]
        )
    file.write_text(out.getvalue(), encoding="utf-8")


def our_project(folder: Path, rows: Sequence[City]) -> Path:
    """A project as ``pipeline init`` makes it, with this site; its folder."""
    start_project(folder, SITE)
    site = folder / "sites" / SITE
    (site / "site.toml").write_text(SETTINGS, encoding="utf-8")
    (site / "templates" / "city.md.j2").write_text(TEMPLATE, encoding="utf-8")
    write_rows(site / "topics.csv", rows)
    return folder


def edit_a_row(project: Path, mark: str) -> None:
    """Change one cell of a row in the middle of the file."""
    file = project / "sites" / SITE / "topics.csv"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    cells = next(csv.reader([lines[len(lines) // 2]]))
    cells[HEADER.index("name")] = f"{cells[HEADER.index('name')].split(' / ')[0]} / {mark}"
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerow(cells)
    lines[len(lines) // 2] = out.getvalue()
    file.write_text("".join(lines), encoding="utf-8")


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
