"""``pipeline lanes``: what of a site may go on; floor 4."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names, site_slashes
from pipeline.cli.house import House, actor, opened, parted, unknown
from pipeline.cli.render import as_json, count, out, safe, say, table
from pipeline.cli.status import JsonOption
from pipeline.errors import NotFound

if TYPE_CHECKING:
    from pipeline.service.lanes import LaneLine, Pause, Turned

app = typer.Typer(
    help="List lanes, let them rest and go on.\n\nExample: pipeline lanes list --site acme",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Lane = Annotated[str, typer.Argument(help="Which one, as SITE/LANE.", metavar="SITE/LANE", autocompletion=site_slashes)]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the event.", metavar="TEXT")]


@app.command("list")
def list_lanes(
    site: Annotated[str, typer.Option("--site", help="The site.", metavar="NAME", autocompletion=site_names)],
    state: Annotated[str | None, typer.Option("--state", help="Only active, or only paused.", metavar="STATE")] = None,
    json: JsonOption = False,
) -> None:
    """List the lanes of a site: which topic each waits for, how many are live, who paused it and why.

    Example: pipeline lanes list --site acme
    """
    from pipeline.states import LaneState

    if state is not None and state not in list(LaneState):
        raise NotFound(unknown("state", state, list(LaneState), "of a lane"))
    with opened("lanes list", site) as house:
        found = house.services.lanes.list(house.site_id(site))
    found = [line for line in found if state in (None, line.state)]
    if json:
        out(as_json({"site": site, "lanes": [document(line) for line in found]}))
        return
    if not found:
        say(f"site {site!r} has no lanes" if state is None else f"no lane of site {site!r} is {state}")
        return
    rows = [(line.lane, line.state, line.topics, line.live, line.waiting, _head(line), because(line.paused))
            for line in found]  # fmt: skip
    headers = ("lane", "state", "topics", "live", "waiting", "waits for", "paused")
    out(table(headers, rows, numbers=("topics", "live", "waiting")))


@app.command()
def pause(lane: Lane, reason: Reason = "", json: JsonOption = False) -> None:
    """Let a lane rest: nothing of it begins any more, and what is running finishes. All places are kept.

    Example: pipeline lanes pause acme/japan --reason "prices are wrong"
    """
    site, name = parted(lane, "lane", "acme/japan")
    with opened("lanes pause", site) as house:
        turned = house.services.lanes.pause(_site_of(house, site, name), name, actor=actor(), reason=reason)
    tell(turned, site, json, lane=name)


@app.command()
def resume(lane: Lane, reason: Reason = "", json: JsonOption = False) -> None:
    """Let a paused lane go on where it stood.

    Example: pipeline lanes resume acme/japan
    """
    site, name = parted(lane, "lane", "acme/japan")
    with opened("lanes resume", site) as house:
        site_id = _site_of(house, site, name)
        turned = house.services.lanes.resume(site_id, name, actor=actor(), reason=reason)
        row = house.services.reading.site(site)
    tell(turned, site, json, lane=name)
    if row is not None and row.state == "paused":
        say(f"the site is paused all the same; let it go on as well: pipeline sites resume {site}")


def document(line: "LaneLine") -> dict[str, Any]:
    """A lane as JSON shows it."""
    head = line.head
    keys = ("position", "topic", "stage", "state", "job")
    values = None if head is None else (head.position, head.slug, head.stage, head.state, head.job)
    return {
        "lane": line.lane,
        "state": line.state,
        "topics": line.topics,
        "live": line.live,
        "waiting": line.waiting,
        "head": None if values is None else dict(zip(keys, values, strict=True)),
        "paused": paused(line.paused),
    }


def paused(found: "Pause | None") -> dict[str, Any] | None:
    """Who paused it, when and why, as JSON shows it."""
    return None if found is None else {"at": found.at, "by": found.by, "reason": found.reason}


def because(found: "Pause | None") -> str:
    """The same on one line."""
    if found is None:
        return ""
    return f"{found.at.astimezone():%Y-%m-%d %H:%M} by {found.by}" + (f": {found.reason}" if found.reason else "")


def tell(turned: "Turned", site: str, json: bool, *, lane: str | None = None) -> None:
    """What a pause or a resume came to."""
    if json:
        what = {"site": site} | ({} if lane is None else {"lane": lane})
        known = {"from": turned.from_state, "to": turned.to_state, "jobs": turned.jobs, "running": turned.running}
        out(as_json(what | known))
        return
    name = f"site {safe(site)}" if lane is None else f"lane {safe(site)}/{safe(lane)}"
    pausing = turned.to_state == "paused"
    moved = "" if lane is None else f"; {count(turned.jobs, 'job')} {_verb(turned.jobs, pausing)}"
    running = f"; {count(turned.running, 'running job')} may finish" if pausing and turned.running else ""
    out(f"{name} {turned.from_state} → {turned.to_state}{moved}{running}")
    if not pausing:
        say(f"the next run takes it up: pipeline run --site {site}")


def _verb(number: int, pausing: bool) -> str:
    return ("waits" if number == 1 else "wait") if pausing else ("is ready" if number == 1 else "are ready")


def _site_of(house: House, site: str, lane: str) -> int:
    """The id of the site; NotFound with the nearest lanes when it has none of that name."""
    site_id = house.site_id(site)
    known = [line.lane for line in house.services.lanes.list(site_id)]
    if lane not in known:
        raise NotFound(unknown("lane", lane, known, f"in site {site!r}"))
    return site_id


def _head(line: "LaneLine") -> str:
    head = line.head
    return "" if head is None else f"{head.position} {head.slug}, {head.state} at {head.stage}"
