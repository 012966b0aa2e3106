"""``pipeline lanes``: what of a site may go on, and how; floor 4."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_lanes, site_names
from pipeline.cli.house import House, actor, opened, parted, unknown
from pipeline.cli.picking import DryRun, Reason, known_lane
from pipeline.cli.render import as_json, count, out, safe, say, table
from pipeline.cli.settling import lane_changes, shown
from pipeline.cli.status import JsonOption
from pipeline.errors import NotFound, UsageError

if TYPE_CHECKING:
    from pipeline.service.lanes import LaneLine, Pause, Turned

app = typer.Typer(
    help="List lanes, let them rest and go on, set how they differ.\n\nExample: pipeline lanes list --site acme",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Lane = Annotated[str, typer.Argument(help="Which one, as SITE/LANE.", metavar="SITE/LANE", autocompletion=site_lanes)]


@app.command("list")
def list_lanes(
    site: Annotated[str, typer.Option("--site", help="The site.", metavar="NAME", autocompletion=site_names)],
    state: Annotated[
        str | None, typer.Option("--state", help="Only active, paused or closed ones.", metavar="STATE")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the lanes of a site: which topic each waits for, how many are live, who paused it, what it has otherwise.

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
    rows = [
        (line.lane, line.state, line.topics, line.live, line.waiting, _head(line), because(line.paused), _own(line))
        for line in found
    ]
    headers = ("lane", "state", "topics", "live", "waiting", "waits for", "paused", "otherwise")
    out(table(headers, rows, numbers=("topics", "live", "waiting")))


@app.command()
def pause(lane: Lane, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False) -> None:
    """Let a lane rest: nothing of it begins any more, and what is running finishes. All places are kept.

    Example: pipeline lanes pause acme/japan --reason "prices are wrong"
    """
    _turn("pause", lane, reason, dry_run, json)


@app.command()
def resume(lane: Lane, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False) -> None:
    """Let a paused lane go on where it stood.

    Example: pipeline lanes resume acme/japan
    """
    _turn("resume", lane, reason, dry_run, json)


@app.command()
def close(lane: Lane, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False) -> None:
    """Let a lane rest as one that is over: nothing of it begins, and nothing is added to it, until it is opened.

    Example: pipeline lanes close acme/japan --reason "the season is over"
    """
    _turn("close", lane, reason, dry_run, json)


@app.command("open")
def open_lane(lane: Lane, reason: Reason = "", dry_run: DryRun = False, json: JsonOption = False) -> None:
    """Open a closed lane, so that it goes on where it stood.

    Example: pipeline lanes open acme/japan
    """
    _turn("open", lane, reason, dry_run, json)


def _turn(verb: str, lane: str, reason: str, dry_run: bool, json: bool) -> None:
    site, name = parted(lane, "lane", "acme/japan")
    with opened(f"lanes {verb}", site) as house:
        site_id = _site_of(house, site, name)
        service = house.services.lanes
        turn = {"pause": service.pause, "resume": service.resume, "close": service.close, "open": service.open}[verb]
        turned = turn(site_id, name, actor=actor(), reason=reason, dry_run=dry_run)
        row = house.services.reading.site(site)
    tell(turned, site, json, lane=name, dry_run=dry_run)
    if row is not None and row.state == "paused" and turned.to_state == "active":
        say(f"the site is paused all the same; let it go on as well: pipeline sites resume {site}")


@app.command("set")
def set_lane(
    lane: Lane,
    on_failed: Annotated[
        str | None, typer.Option("--on-failed", help="What a failed topic does to its lane.", metavar="halt|skip")
    ] = None,
    stage: Annotated[
        str | None, typer.Option("--stage", help="The stage that the following are of.", metavar="NAME")
    ] = None,
    width: Annotated[
        str | None, typer.Option("--width", help="How many at once; 1 keeps the order.", metavar="N|none|default")
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option("--lease", help="How long a silent worker keeps a topic: 90, 2m.", metavar="TIME|default"),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", help="How long the stage may run: 90, 2m.", metavar="TIME|default")
    ] = None,
    attempts: Annotated[
        str | None, typer.Option("--attempts", help="How often what arrives is tried.", metavar="N|default")
    ] = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    json: JsonOption = False,
) -> None:
    """Let a lane differ: from its stages, in width, lease, deadline and attempts; or go on over what failed.

    Takes effect at the next claim. A time is a number of seconds, or has a unit: 90s, 2m, 1h. What says default is as
    the stage says again.

    Example: pipeline lanes set acme/japan --stage publish --lease 2m
    """
    if on_failed not in (None, "halt", "skip"):
        raise UsageError(f"--on-failed {on_failed!r}: write halt or skip")
    changes, default = lane_changes(width=width, lease=lease, deadline=deadline, attempts=attempts)
    if (changes or default) and stage is None:
        raise UsageError("--width, --lease, --deadline and --attempts are of a stage: name it with --stage")
    if stage is not None and not changes and not default:
        raise UsageError("--stage: say what is set there: --width, --lease, --deadline or --attempts")
    if on_failed is None and stage is None:
        raise UsageError("nothing to set: name --on-failed, or --stage with what differs there; see: --help")
    site, name = parted(lane, "lane", "acme/japan")
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    jobs, failed = 0, False
    with opened("lanes set", site) as house:
        site_id = _site_of(house, site, name)
        widths = house.services.widths
        said: dict[str, Any] = {"actor": actor(), "reason": reason, "dry_run": dry_run}
        if stage is not None:  # first, for this alone may be refused
            done = widths.of_lane(site_id, name, stage, changes, default=default, **said)
            before, after, jobs = {**done.before}, {**done.after}, done.jobs
        if on_failed is not None:
            done = widths.on_failed(site_id, name, on_failed, **said)
            before, after = {**done.before, **before}, {**done.after, **after}
        if on_failed == "skip":
            from pipeline.states import JobState

            failed = bool(house.services.reading.jobs(site_id, [JobState.FAILED], 1, lane=name))
    if json:
        known = {"before": before, "after": after, "jobs": jobs, "dry_run": dry_run}
        out(as_json({"site": site, "lane": name, "stage": stage, **known}))
    else:
        where = f"lane {safe(lane)}" + (f" at {safe(stage)}" if stage is not None else "")
        moved = f"; {count(jobs, 'job')} {'would move' if dry_run else 'moved'} by that" if jobs else ""
        out(f"{where}{' would have' if dry_run else ''}: {_differences(before, after)}{moved}")
    if failed:
        say(
            "what failed there already still halts the lane; skip it:"
            f" pipeline jobs skip --site {site} --lane {name} --state failed"
        )


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    parts = [
        f"{shown(key, before)} → {shown(key, after, name=False)}"
        for key in dict.fromkeys((*before, *after))
        if before.get(key, "default") != after.get(key, "default")
    ]
    return ", ".join(parts) or "all that already; nothing changes"


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
        "on_failed": line.on_failed,
        "overrides": line.overrides,
    }


def paused(found: "Pause | None") -> dict[str, Any] | None:
    """Who paused it, when and why, as JSON shows it."""
    return None if found is None else {"at": found.at, "by": found.by, "reason": found.reason}


def because(found: "Pause | None") -> str:
    """The same on one line."""
    if found is None:
        return ""
    return f"{found.at.astimezone():%Y-%m-%d %H:%M} by {found.by}" + (f": {found.reason}" if found.reason else "")


def tell(turned: "Turned", site: str, json: bool, *, lane: str | None = None, dry_run: bool = False) -> None:
    """What a pause or the like came to, or would."""
    if json:
        what = {"site": site} | ({} if lane is None else {"lane": lane})
        known = {"from": turned.from_state, "to": turned.to_state, "jobs": turned.jobs, "running": turned.running}
        out(as_json(what | known | {"dry_run": dry_run}))
        return
    name = f"site {safe(site)}" if lane is None else f"lane {safe(site)}/{safe(lane)}"
    resting = turned.to_state != "active"
    would = "would go " if dry_run else ""
    moved = "" if lane is None else f"; {count(turned.jobs, 'job')} {_verb(turned.jobs, resting, dry_run)}"
    running = f"; {count(turned.running, 'running job')} may finish" if resting and turned.running else ""
    out(f"{name} {would}{turned.from_state} → {turned.to_state}{moved}{running}")
    if not resting and not dry_run:
        say(f"the next run takes it up: pipeline run --site {site}")


def _verb(number: int, resting: bool, dry_run: bool) -> str:
    if dry_run:
        return "would wait" if resting else "would be ready"
    return ("waits" if number == 1 else "wait") if resting else ("is ready" if number == 1 else "are ready")


def _site_of(house: House, site: str, lane: str) -> int:
    """The id of the site; NotFound with the nearest lanes when it has none of that name."""
    site_id = house.site_id(site)
    known_lane(house, site, site_id, lane)
    return site_id


def _head(line: "LaneLine") -> str:
    head = line.head
    return "" if head is None else f"{head.position} {head.slug}, {head.state} at {head.stage}"


def _own(line: "LaneLine") -> str:
    """What it has otherwise, shortly."""
    parts = ["skips what failed"] if line.on_failed == "skip" else []
    parts += [f"{stage}: {', '.join(shown(key, own) for key in own)}" for stage, own in line.overrides.items()]
    return "; ".join(parts)
