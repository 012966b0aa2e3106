"""``pipeline sites``: the sites of a project, in its folder and in its database; floor 4."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import actor, confirm, maybe_opened, opened, project, unknown
from pipeline.cli.lanes import because, document as lane_document, paused, tell
from pipeline.cli.picking import DryRun, Reason
from pipeline.cli.render import as_json, count, out, safe, say, table
from pipeline.cli.status import COLUMNS, JsonOption, by_stage
from pipeline.errors import NotFound, PipelineError

if TYPE_CHECKING:
    from pipeline.project.site import Site
    from pipeline.service.sites import Contents, SiteLine

app = typer.Typer(
    help="List sites, add one, let them rest, remove one.\n\nExample: pipeline sites list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="The site.", metavar="SITE", autocompletion=site_names)]
WHERE = {(True, True): "", (True, False): "never run", (False, True): "no folder"}


@app.command("list")
def list_sites(
    state: Annotated[str | None, typer.Option("--state", help="Only active, or only paused.", metavar="STATE")] = None,
    json: JsonOption = False,
) -> None:
    """List the sites of this project: those in its folder, those in its database, and what is live of them.

    Example: pipeline sites list
    """
    if state not in (None, "active", "paused"):
        raise NotFound(unknown("state", state, ["active", "paused"], "of a site"))
    _, root = project()
    with maybe_opened("sites list") as house:
        known = {} if house is None else {line.slug: line for line in house.services.sites.list()}
    here = _folder(root)
    found = [_document(slug, here.get(slug), known.get(slug)) for slug in sorted({*here, *known})]
    found = [site for site in found if state in (None, site["state"])]
    if json:
        out(as_json({"sites": found}))
        return
    if not found:
        say("no site here yet; add one: pipeline sites add" if state is None else f"no site is {state}")
        return
    rows = [
        (
            site["site"],
            site["state"] or "",
            site["topics"],
            site["live"],
            site["problem"] or WHERE[site["in_folder"], site["in_database"]] or _because(known[site["site"]]),
            site["name"],
        )
        for site in found
    ]
    out(table(("site", "state", "topics", "live", "note", "name"), rows, numbers=("topics", "live")))


@app.command()
def show(site: Name, json: JsonOption = False) -> None:
    """Show one site: what its site.toml says, where its jobs stand, its lanes.

    Example: pipeline sites show acme
    """
    _, root = project()
    here = _folder(root)
    with maybe_opened("sites show") as house:
        known = {} if house is None else {line.slug: line for line in house.services.sites.list()}
        if site not in here and site not in known:
            raise NotFound(unknown("site", site, {*here, *known}, "here"))
        facts = _document(site, here.get(site), known.get(site))
        stages: dict[str, dict[str, int]] = {}
        lanes: list[dict[str, Any]] = []
        if house is not None and site in known:
            reading, site_id = house.services.reading, known[site].id
            stages = by_stage(reading.standing(site_id), reading.stages(site_id))
            lanes = [lane_document(line) for line in house.services.lanes.list(site_id)]
    facts |= _of_the_file(here.get(site), root)
    if json:
        rows = [{"stage": name, **cells} for name, cells in stages.items()]
        out(as_json({**facts, "stages": rows, "lanes": lanes}))
        return
    width = max(map(len, facts))
    facts["paused"] = _because(known[site]) if site in known else None
    for name, value in facts.items():
        if value not in (None, "", True, False):
            out(f"{name:<{width}}  {safe(value)}")
    if note := WHERE[facts["in_folder"], facts["in_database"]]:
        out(f"{'note':<{width}}  {note}")
    if any(sum(cells.values()) for cells in stages.values()):
        lines = [(name, *(cells[column] or "·" for column in COLUMNS)) for name, cells in stages.items()]
        out("\n" + table(("stage", *COLUMNS), lines, numbers=COLUMNS))
    if lanes:
        lines = [(lane["lane"], lane["state"], lane["topics"], lane["live"], lane["waiting"]) for lane in lanes]
        headers = ("lane", "state", "topics", "live", "waiting")
        out("\n" + table(headers, lines, numbers=headers[2:]))


@app.command()
def add(
    site: Annotated[str, typer.Argument(help="Its name: the folder in sites/.", metavar="SITE")],
    name: Annotated[str, typer.Option("--name", help="What readers call it.", metavar="TEXT")],
    base_url: Annotated[str, typer.Option("--base-url", help="Where it lives.", metavar="URL")],
    locale: Annotated[str, typer.Option("--locale", help="Its language.", metavar="TAG")] = "en",
    time_zone: Annotated[str, typer.Option("--time-zone", help="Its time zone.", metavar="ZONE")] = "UTC",
    json: JsonOption = False,
) -> None:
    """Add a site to this project: a folder with its site.toml and an empty topics file. No database is asked.

    Example: pipeline sites add shop --name Shop --base-url https://shop.example
    """
    from pipeline.project.adding import add_site

    _, root = project()
    facts = {"name": name, "base_url": base_url, "locale": locale, "time_zone": time_zone}
    made = [str(path.relative_to(root)) for path in add_site(root, site, facts)]
    if json:
        out(as_json({"site": site, "files": made}))
        return
    out("\n".join(safe(path) for path in made))
    say(f"next: pipeline topics add {site} --lane LANE --slug SLUG --title TITLE, then pipeline run --site {site}")


@app.command()
def pause(site: Name, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False) -> None:
    """Let a whole site rest: nothing of it begins any more, and what is running finishes.

    Example: pipeline sites pause acme --reason "moving to another host"
    """
    with opened("sites pause", site) as house:
        turned = house.services.sites.pause(house.site_id(site), actor=actor(), reason=reason, dry_run=dry_run)
    tell(turned, site, json, dry_run=dry_run)


@app.command()
def resume(site: Name, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False) -> None:
    """Let a paused site go on.

    Example: pipeline sites resume acme
    """
    with opened("sites resume", site) as house:
        turned = house.services.sites.resume(house.site_id(site), actor=actor(), reason=reason, dry_run=dry_run)
    tell(turned, site, json, dry_run=dry_run)


@app.command()
def remove(
    site: Name,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove a site from the database, its history included; only one of which nothing is unfinished or live.

    Files are left alone, those in sites/ as well.

    Example: pipeline sites remove shop --dry-run
    """
    with opened("sites remove", site) as house:
        site_id = house.site_id(site)
        found = house.services.sites.contents(site_id)
        from pipeline.service.sites import refuse_unless_over

        refuse_unless_over(found, site)
        if not dry_run:
            confirm(f"remove site {safe(site)} from the database ({_counted(found)})? its history goes too", yes=yes)
            found = house.services.sites.remove(site_id, site, actor=actor(), reason=reason)
        root = house.root
    if json:
        counts = {key: getattr(found, key) for key in ("lanes", "topics", "jobs", "attempts", "revisions")}
        out(as_json({"site": site, "removed": not dry_run, **counts}))
        return
    out(f"site {safe(site)} {'would go' if dry_run else 'is gone'} from the database: {_counted(found)}")
    if not dry_run and (root / "sites" / site).is_dir():
        say(f"the folder sites/{site} is still there; as long as it is, pipeline run --site {site} makes the site anew")


def _folder(root: Path) -> dict[str, "Site | PipelineError"]:
    """The sites of the folder by slug; the error instead of a site whose file is broken."""
    from pipeline.project.site import load_site, sites

    found: dict[str, Site | PipelineError] = {}
    for slug in sites(root):
        try:
            found[slug] = load_site(root, slug)
        except PipelineError as error:
            found[slug] = error
    return found


def _document(slug: str, here: "Site | PipelineError | None", known: "SiteLine | None") -> dict[str, Any]:
    """A site as JSON shows it; a fact that nobody knows is null."""
    broken = isinstance(here, PipelineError)
    name = known.name if known else None
    if here is not None and not isinstance(here, PipelineError):
        name = here.name
    return {
        "site": slug,
        "name": name,
        "state": known.state if known else None,
        "topics": known.topics if known else None,
        "live": known.live if known else None,
        "in_folder": here is not None,
        "in_database": known is not None,
        "problem": str(here) if broken else None,
        "paused": paused(known.paused) if known else None,
    }


def _of_the_file(here: "Site | PipelineError | None", root: Path) -> dict[str, Any]:
    keys = ("base_url", "locale", "time_zone", "topics_file", "output")
    if here is None or isinstance(here, PipelineError):
        return dict.fromkeys(keys)
    file = f"sites/{here.slug}/{here.topics}"
    output = str(here.output.relative_to(root)) if here.output.is_relative_to(root) else str(here.output)
    return dict(zip(keys, (here.base_url, here.locale, here.time_zone, file, output), strict=True))


def _because(line: "SiteLine") -> str:
    return f"paused {because(line.paused)}" if line.paused else ""


def _counted(found: "Contents") -> str:
    parts = ((found.lanes, "lane"), (found.topics, "topic"), (found.jobs, "job"), (found.revisions, "draft"))
    return ", ".join(count(number, thing) for number, thing in parts)
