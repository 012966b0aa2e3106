"""``pipeline stages``: the order that topics follow, how wide each is, what rests or is taken out; floor 4."""

from typing import Annotated

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import actor, confirm, opened
from pipeline.cli.picking import DryRun, Reason, Yes
from pipeline.cli.render import as_json, columns, count, out, safe, say, table
from pipeline.cli.settling import a_width, shown
from pipeline.cli.status import COLUMNS, JsonOption, by_stage
from pipeline.states import ASSEMBLE, JobState

app = typer.Typer(
    help="List stages, let one rest, set its width, take it out.\n\nExample: pipeline stages list --site acme",
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


@app.command("set")
def set_stage(
    name: Name,
    site: SiteOption,
    width: Annotated[
        str, typer.Option("--width", help="How many at once in each lane; 1 keeps the order.", metavar="N|none")
    ],
    reason: Reason = "",
    dry_run: DryRun = False,
    json: JsonOption = False,
) -> None:
    """Set how many topics may be at a stage at once, in every lane of a site that has no width of its own.

    Takes effect at the next claim. A limit where there was none is set while the site rests: pipeline sites pause.

    Example: pipeline stages set publish --site acme --width 3
    """
    wanted = a_width(width)
    with opened("stages set", site) as house:
        site_id = house.site_id(site)
        done = house.services.widths.of_stage(site_id, name, wanted, actor=actor(), reason=reason, dry_run=dry_run)
    if json:
        known = {"before": done.before, "after": done.after, "jobs": done.jobs, "dry_run": dry_run}
        out(as_json({"site": site, "stage": name, **known}))
    elif done.before == done.after:
        out(f"stage {safe(name)} has {shown('width', done.after)} already")
    else:
        change = f"{shown('width', done.before)} → {shown('width', done.after, name=False)}"
        judged = "would be" if dry_run else "was" if done.jobs == 1 else "were"
        moved = f"; {count(done.jobs, 'idle job')} {judged} judged anew" if done.jobs else ""
        out(f"stage {safe(name)}{' would have' if dry_run else ''}: {change}{moved}")


@app.command()
def pause(name: Name, site: SiteOption, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False) -> None:
    """Let a stage rest: nothing begins there any more, in any lane, and what is running finishes. All places are kept.

    Example: pipeline stages pause publish --site acme --reason "host is down"
    """
    _turn("pause", name, site, reason, dry_run, json)


@app.command()
def resume(
    name: Name, site: SiteOption, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False
) -> None:
    """Let a paused stage go on.

    Example: pipeline stages resume publish --site acme
    """
    _turn("resume", name, site, reason, dry_run, json)


def _turn(verb: str, name: str, site: str, reason: str, dry_run: bool, json: bool) -> None:
    with opened(f"stages {verb}", site) as house:
        site_id = house.site_id(site)
        planning = house.services.planning
        turn = planning.pause if verb == "pause" else planning.resume
        turn(site_id, name, actor=actor(), reason=reason, dry_run=dry_run)
        standing = [s for s in house.services.reading.standing(site_id) if s.stage == name]
    waiting = sum(s.count for s in standing if s.state in (JobState.WAITING, JobState.PENDING))
    running = sum(s.count for s in standing if s.state is JobState.RESERVED)
    before, after = ("active", "paused") if verb == "pause" else ("paused", "active")
    if json:
        known = {"from": before, "to": after, "standing": waiting, "running": running, "dry_run": dry_run}
        out(as_json({"site": site, "stage": name, **known}))
        return
    stands = f"; {count(waiting, 'job stands', 'jobs stand')} there" if waiting else ""
    finishes = f"; {count(running, 'running job')} may finish" if running and verb == "pause" else ""
    out(f"stage {safe(name)} {'would go ' if dry_run else ''}{before} → {after}{stands}{finishes}")
    if verb == "resume" and not dry_run:
        say(f"the next run takes it up: pipeline run --site {site}")


@app.command()
def retire(
    name: Name,
    site: SiteOption,
    reason: Reason = "",
    dry_run: DryRun = False,
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
