"""``pipeline stages``: the order that topics follow, and what is taken out of it; floor 4."""

from typing import Annotated

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import actor, confirm, opened
from pipeline.cli.jobs import Reason, Yes
from pipeline.cli.render import as_json, columns, count, out, safe, say, table
from pipeline.cli.status import COLUMNS, JsonOption, by_stage
from pipeline.states import ASSEMBLE

app = typer.Typer(
    help="List the stages of a site, take one out, bring it back.\n\nExample: pipeline stages list --site acme",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SiteOption = Annotated[str, typer.Option("--site", help="The site.", metavar="NAME", autocompletion=site_names)]
Name = Annotated[str, typer.Argument(help="The stage.", metavar="NAME")]


@app.command("list")
def list_stages(site: SiteOption, json: JsonOption = False) -> None:
    """List the stages of a site in their order, each with its unfinished jobs.

    Example: pipeline stages list --site acme
    """
    with opened("stages list", site) as house:
        site_id = house.site_id(site)
        order = house.services.planning.order(site_id)
        standing = house.services.reading.standing(site_id)
    cells = by_stage(standing, [row.name for row in order])
    if json:
        rows = [{**columns(row), "jobs": cells[row.name]} for row in order]
        out(as_json({"site": site, "stages": rows}))
        return
    if not order:
        say(f"site {site!r} has no stages")
        return
    out(
        table(
            ("stage", "state", "width", "attempts", *COLUMNS),
            [
                (row.name, row.state, "·" if row.width is None else row.width, row.max_attempts,
                 *(cells[row.name][column] or "·" for column in COLUMNS))
                for row in order
            ],
            numbers=("width", "attempts", *COLUMNS),
        )
    )  # fmt: skip
    strange = [name for name in cells if name not in {*(row.name for row in order), ASSEMBLE}]
    if strange:
        say(f"jobs stand at stages that the site does not have: {', '.join(map(safe, strange))}")


@app.command()
def retire(
    name: Name,
    site: SiteOption,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: Yes = False,
    json: JsonOption = False,
) -> None:
    """Take a stage out of a site's order, so that its jobs move on and no topic comes to it any more.

    What is running is finished. What failed, or is to be repaired, stays until it is requeued, and goes on from there.

    Example: pipeline stages retire translate --site acme
    """
    with opened("stages retire", site) as house:
        site_id = house.site_id(site)
        planning = house.services.planning
        looked = planning.retire(site_id, name, actor=actor(), dry_run=True)
        if not dry_run:
            confirm(f"take stage {safe(name)} out of site {site}? {_would(looked.moved, looked.next)}", yes=yes)
            looked = planning.retire(site_id, name, actor=actor(), reason=reason)
    if json:
        out(as_json({"site": site, "dry_run": dry_run, **columns(looked)}))
    elif dry_run:
        out(f"stage {safe(name)} would be retired; {_would(looked.moved, looked.next)}")
    else:
        to = f"; {count(looked.moved, 'job')} moved on to {safe(looked.next)}" if looked.next and looked.moved else ""
        out(f"stage {safe(name)} is retired{to}")


@app.command()
def restore(name: Name, site: SiteOption, reason: Reason = "", json: JsonOption = False) -> None:
    """Bring a retired stage back to its old place, for all topics that have not passed it.

    Example: pipeline stages restore translate --site acme
    """
    with opened("stages restore", site) as house:
        house.services.planning.restore(house.site_id(site), name, actor=actor(), reason=reason)
    out(as_json({"site": site, "name": name, "state": "active"}) if json else f"stage {safe(name)} is active again")


def _would(moved: int, following: str | None) -> str:
    if following is None:
        return "it is the last one"
    return f"{count(moved, 'unfinished job')} would go on to {safe(following)}"
