"""``pipeline topics import``: what other tools exported becomes topics of a site's file; floor 4."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import project
from pipeline.cli.picking import DryRun
from pipeline.cli.render import as_json, count, out, safe, say
from pipeline.cli.status import JsonOption

if TYPE_CHECKING:
    from pipeline.project.importing import Report


def import_topics(
    path: Annotated[str, typer.Argument(help="A file, or a folder of files.", metavar="PATH")],
    site: Annotated[str, typer.Option("--site", help="The site.", metavar="NAME", autocompletion=site_names)],
    lane: Annotated[
        str,
        typer.Option(
            "--lane",
            help="A column that names lanes; COLUMN:year or COLUMN:month of a date, in its order; or =NAME for all.",
            metavar="RULE",
        ),
    ] = "",
    slug: Annotated[
        str,
        typer.Option(
            "--slug", help="What slugs are made of: a column, then those that tell apart.", metavar="COLUMN,…"
        ),
    ] = "",
    title: Annotated[str, typer.Option("--title", help="The column with the titles.", metavar="COLUMN")] = "",
    type: Annotated[str, typer.Option("--type", help="The type of all.", metavar="TYPE")] = "",
    order: Annotated[str, typer.Option("--order", help="A column to sort lanes by.", metavar="COLUMN")] = "",
    columns: Annotated[
        str, typer.Option("--columns", help="Those that the topics file gets: all, none, or some.", metavar="COLUMN,…")
    ] = "all",
    status: Annotated[
        str, typer.Option("--status", help="Which texts of a blog are taken.", metavar="STATUS,…")
    ] = "publish",
    dry_run: DryRun = False,
    json: JsonOption = False,
) -> int:
    """Take topics from keyword exports (CSV, TSV, XLSX), folders of Markdown, WordPress exports and sitemaps.

    Rows go to the site's topics file, texts beside it, and a run goes on from there. What is there already stays as it
    is. Ends with 1 when something was refused; each such row or file is named.

    Example: pipeline topics import cities.csv --site acme --lane country
    """
    from pipeline.intake.rules import rules
    from pipeline.project.importing import import_into
    from pipeline.project.site import load_site

    _, root = project()
    here = load_site(root, site)
    said = rules(
        lane=lane, slug=slug, title=title, type=type, order=order, columns=columns, status=status,
        zone=ZoneInfo(here.time_zone),
    )  # fmt: skip
    report = import_into(here, Path(path), said, dry_run=dry_run)
    if json:
        out(as_json(_document(site, report, dry_run)))
    else:
        _tell(site, report, dry_run)
    return 1 if report.refused else 0


def _tell(site: str, report: "Report", dry_run: bool) -> None:
    for word, found in _sections(report):
        for one in found:
            out(f"{word}  {_place(one)}: {safe(one['why'])}")
    lanes = Counter(topic.lane for topic in report.new)
    would = "would be" if dry_run else "were"
    parts = [f"{count(len(report.new), 'topic')} {would} added to {safe(report.file)} in {count(len(lanes), 'lane')}"]
    if report.texts:
        parts.append(f"{report.texts} with a text")
    parts.append(f"{len(report.refused)} refused")
    if report.unchanged:
        parts.append(f"{report.unchanged} there already, just the same")
    if report.addresses or report.known_addresses:
        parts.append(
            f"{count(report.addresses, 'live address', 'live addresses')} noted, {report.known_addresses} known before"
        )
    if not report.new and not report.addresses:
        parts[0] = f"nothing {'would change' if dry_run else 'changed'} in {safe(report.file)}"
    out("; ".join(parts))
    if report.columns and report.others:
        say(
            f"the file {'would get' if dry_run else 'got'} new columns: {', '.join(report.columns)}; its"
            f" {count(report.others, 'topic')} from before begin a new pass with the next run (--columns none keeps it)"
        )
    if report.new and not dry_run:
        say(f"they are published by: pipeline run --site {site}")


def _sections(report: "Report") -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        ("refused", _documents(report.refused)),
        ("left out", _documents(report.left)),
        ("told apart", _documents(report.apart)),
        ("note", _documents(report.notes)),
    ]


def _documents(found: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"file": one.file, "line": one.line or None, "why": getattr(one, "why", None) or one.what} for one in found]


def _place(one: dict[str, Any]) -> str:
    return safe(one["file"]) + (f":{one['line']}" if one["line"] else "")


def _document(site: str, report: "Report", dry_run: bool) -> dict[str, Any]:
    topics = [
        {
            "file": t.item.file,
            "line": t.item.line or None,
            "lane": t.lane,
            "slug": t.slug,
            "title": t.title,
            "type": t.type,
        }
        for t in report.new
    ]
    found = {word.replace(" ", "_"): ones for word, ones in _sections(report)}
    addresses = {"noted": report.addresses, "known": report.known_addresses}
    return {
        "site": site, "file": report.file, "added": topics, "texts": report.texts, "unchanged": report.unchanged,
        "columns": report.columns, "addresses": addresses, **found, "dry_run": dry_run,
    }  # fmt: skip
