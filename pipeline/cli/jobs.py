"""``pipeline jobs``: see passes, and decide what nobody else can, one by one or many at once; floor 4."""

from typing import Annotated

import typer

from pipeline.cli.completion import job_states, site_names
from pipeline.cli.house import actor, opened
from pipeline.cli.picking import (
    At,
    DryRun,
    ErrorClass,
    Ids,
    LaneOf,
    Reason,
    SiteOf,
    States,
    Verb,
    Yes,
    carry_out,
    known_lane,
    picked,
    state as named,
)
from pipeline.cli.render import as_json, columns, out, say, table
from pipeline.cli.status import JsonOption
from pipeline.errors import UsageError

app = typer.Typer(
    help="List jobs, and decide what only people can.\n\nExample: pipeline jobs list --state failed",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Attempts = Annotated[int, typer.Option("--attempts", help="How many attempts more.", min=1, max=1000, metavar="N")]


@app.command("list")
def list_jobs(
    site: Annotated[
        str | None, typer.Option("--site", help="Only this site's.", metavar="NAME", autocompletion=site_names)
    ] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="Only this lane of the site.", metavar="NAME")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="Only those that stand at this stage.", metavar="STAGE")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="Only this state; may be repeated. Without it: all unfinished.",
            metavar="STATE",
            autocompletion=job_states,
        ),
    ] = None,
    error: Annotated[
        str | None, typer.Option("--error", help="Only those that failed with this class of error.", metavar="CLASS")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=1_000_000)] = 100,
    json: JsonOption = False,
) -> None:
    """List jobs by number: where each stands, and what went wrong last.

    Example: pipeline jobs list --site acme --state failed
    """
    if lane is not None and site is None:
        raise UsageError("--lane: lanes are named within their site; name it as well: --site NAME")
    states = [named(name) for name in state or ()]
    with opened("jobs list", site) as house:
        site_id = None if site is None else house.site_id(site)
        jobs = house.services.reading.jobs
        found = jobs(site_id, states, limit + 1, lane=lane, stage=at, error_class=error)
        if not found and site is not None and site_id is not None and lane is not None:
            known_lane(house, site, site_id, lane)
    more, found = len(found) > limit, found[:limit]
    if json:
        out(as_json({"jobs": [columns(job) for job in found], "more": more}))
        return
    if found:
        rows = [
            (j.id, j.site, f"{j.lane}/{j.topic}" if j.topic else "", j.stage, j.state, f"{j.attempts}/{j.max_attempts}",
             j.error or j.error_class)
            for j in found
        ]  # fmt: skip
        out(table(("job", "site", "topic", "stage", "state", "attempts", "error"), rows, numbers=("job", "attempts")))
    else:
        say("no such jobs" if states or lane or at or error else "no unfinished jobs")
    if more:
        say(f"there are more; the first {limit} are shown: see --limit")


@app.command()
def requeue(
    ids: Ids = None,
    site: SiteOf = None,
    lane: LaneOf = None,
    at: At = None,
    state: States = None,
    error: ErrorClass = None,
    stage: Annotated[
        str | None, typer.Option("--stage", help="Begin at this stage, not where it stood.", metavar="NAME")
    ] = None,
    attempts: Attempts = 5,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: JsonOption = False,
) -> None:
    """Put failed, cancelled and to-be-repaired jobs back to work: numbers, all or none; or all that a filter picks.

    Example: pipeline jobs requeue --site acme --lane japan --state failed
    """
    verb = Verb("requeue", "requeued")
    wanted = picked(verb, ids, site, lane, at, state, error)
    moved = carry_out(
        verb,
        wanted,
        lambda operate, jobs, dry: operate.requeue(
            jobs, actor=actor(), reason=reason, stage=stage, grant=attempts, dry_run=dry
        ),
        yes=yes,
        dry_run=dry_run,
        json=json,
    )
    if moved and not dry_run:
        say("the next pipeline run takes it up" if len(moved) == 1 else "the next pipeline run takes them up")


@app.command()
def skip(
    ids: Ids = None,
    site: SiteOf = None,
    lane: LaneOf = None,
    at: At = None,
    state: States = None,
    error: ErrorClass = None,
    force: Annotated[bool, typer.Option("--force", help="Running ones too: take them from their holders.")] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: JsonOption = False,
) -> None:
    """Give jobs up for good, so that their lanes go on without them: numbers, all or none; or all that a filter picks.

    Example: pipeline jobs skip 42 --reason "no such city" --yes
    """
    verb = Verb("skip", "skipped", "give {} up for good? nothing brings a skipped one back", force=force)
    wanted = picked(verb, ids, site, lane, at, state, error)
    carry_out(
        verb,
        wanted,
        lambda operate, jobs, dry: operate.skip(jobs, actor=actor(), reason=reason, force=force, dry_run=dry),
        yes=yes,
        dry_run=dry_run,
        json=json,
    )


@app.command()
def cancel(
    ids: Ids = None,
    site: SiteOf = None,
    lane: LaneOf = None,
    at: At = None,
    state: States = None,
    error: ErrorClass = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take running ones from their holders, who then write nothing.")
    ] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: JsonOption = False,
) -> None:
    """Stop jobs: numbers, all or none; or all that a filter picks. Running ones are asked to, at their next heartbeat.

    A cancelled one halts its lane until it is requeued or skipped.

    Example: pipeline jobs cancel 41
    """
    verb = Verb("cancel", "cancelled", "cancel {}? a strict lane halts there until requeue or skip", force=force)
    wanted = picked(verb, ids, site, lane, at, state, error)
    carry_out(
        verb,
        wanted,
        lambda operate, jobs, dry: operate.cancel(jobs, actor=actor(), reason=reason, force=force, dry_run=dry),
        yes=yes,
        dry_run=dry_run,
        json=json,
    )


@app.command()
def approve(
    ids: Ids = None,
    site: SiteOf = None,
    lane: LaneOf = None,
    at: At = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: JsonOption = False,
) -> None:
    """Let jobs go that a stage holds for a person: numbers, all or none; or all that a filter picks.

    The stage runs again, and is told that its draft was approved.

    Example: pipeline jobs approve 41 --reason "read it twice"
    """
    verb = Verb("approve", "approved", "approve {}?")
    wanted = picked(verb, ids, site, lane, at, None, None)
    carry_out(
        verb,
        wanted,
        lambda operate, jobs, dry: operate.approve(jobs, actor=actor(), reason=reason, dry_run=dry),
        yes=yes,
        dry_run=dry_run,
        json=json,
    )


@app.command()
def grant(
    ids: Ids = None,
    site: SiteOf = None,
    lane: LaneOf = None,
    at: At = None,
    state: States = None,
    error: ErrorClass = None,
    attempts: Attempts = 5,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: JsonOption = False,
) -> None:
    """Give jobs more attempts at the stage where they stand, before they are used up.

    What failed already is requeued instead, which grants attempts as well.

    Example: pipeline jobs grant 41 --attempts 3
    """
    verb = Verb("grant", "granted attempts", "grant more attempts to {}?", attempts=attempts)
    wanted = picked(verb, ids, site, lane, at, state, error)
    carry_out(
        verb,
        wanted,
        lambda operate, jobs, dry: operate.grant(jobs, attempts=attempts, actor=actor(), reason=reason, dry_run=dry),
        yes=yes,
        dry_run=dry_run,
        json=json,
    )
