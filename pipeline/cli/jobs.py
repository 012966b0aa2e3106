"""``pipeline jobs``: see passes, and decide what nobody else can; floor 4."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import actor, confirm, opened
from pipeline.cli.render import as_json, columns, count, out, safe, say, table
from pipeline.cli.status import JsonOption
from pipeline.errors import UsageError
from pipeline.states import JobState

if TYPE_CHECKING:
    from pipeline.service.operate import Moved

app = typer.Typer(
    help="List jobs, and decide what only people can.\n\nExample: pipeline jobs list --state failed",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Ids = Annotated[list[int], typer.Argument(help="Numbers of jobs.", metavar="ID...", min=1, max=2**63 - 1)]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the event.", metavar="TEXT")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def list_jobs(
    site: Annotated[
        str | None, typer.Option("--site", help="Only this site's.", metavar="NAME", autocompletion=site_names)
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only this state; may be repeated. Without it: all unfinished.", metavar="STATE"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=1_000_000)] = 100,
    json: JsonOption = False,
) -> None:
    """List jobs by number: where each stands, and what went wrong last.

    Example: pipeline jobs list --site acme --state failed
    """
    states = [_state(name) for name in state or ()]
    with opened("jobs list", site) as house:
        found = house.services.reading.jobs(None if site is None else house.site_id(site), states, limit + 1)
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
        say("no such jobs" if states else "no unfinished jobs")
    if more:
        say(f"there are more; the first {limit} are shown: see --limit")


@app.command()
def requeue(
    ids: Ids,
    stage: Annotated[
        str | None, typer.Option("--stage", help="Begin at this stage, not where it stood.", metavar="NAME")
    ] = None,
    attempts: Annotated[int, typer.Option("--attempts", help="How many attempts more.", min=1, max=1000)] = 5,
    reason: Reason = "",
    json: JsonOption = False,
) -> None:
    """Put failed, cancelled and to-be-repaired jobs back to work, all or none.

    Example: pipeline jobs requeue 41 --stage generate
    """
    with opened("jobs requeue") as house:
        moved = house.services.operate.requeue(ids, actor=actor(), reason=reason, stage=stage, grant=attempts)
    _tell(moved, json)
    say("the next pipeline run takes it up" if len(moved) == 1 else "the next pipeline run takes them up")


@app.command()
def skip(ids: Ids, reason: Reason = "", yes: Yes = False, json: JsonOption = False) -> None:
    """Give jobs up for good, all or none, so that their lanes go on without them.

    Example: pipeline jobs skip 42 --reason "no such city" --yes
    """
    _ask(ids, yes, "give {} up for good? nothing brings a skipped one back")
    with opened("jobs skip") as house:
        moved = house.services.operate.skip(ids, actor=actor(), reason=reason)
    _tell(moved, json)


@app.command()
def cancel(ids: Ids, reason: Reason = "", yes: Yes = False, json: JsonOption = False) -> None:
    """Stop jobs, all or none. A running one is asked to; a cancelled one halts its lane until requeued or skipped.

    Example: pipeline jobs cancel 41
    """
    _ask(ids, yes, "cancel {}? a strict lane halts there until requeue or skip")
    with opened("jobs cancel") as house:
        moved = house.services.operate.cancel(ids, actor=actor(), reason=reason)
    _tell(moved, json)


def _state(name: str) -> JobState:
    try:
        return JobState(name.lower())
    except ValueError as error:
        raise UsageError(f"no state {name!r}; states: {', '.join(JobState)}") from error


def _ask(ids: Sequence[int], yes: bool, question: str) -> None:
    which = f"job {ids[0]}" if len(ids) == 1 else f"{count(len(ids), 'job')} ({', '.join(map(str, ids))})"
    confirm(question.format(which), yes=yes)


def _tell(moved: Sequence["Moved"], json: bool) -> None:
    if json:
        keys = ("job", "from", "to", "stage")
        rows = [(m.job_id, m.from_state, m.to_state, m.stage) for m in moved]
        out(as_json({"moved": [dict(zip(keys, row, strict=True)) for row in rows]}))
        return
    for m in moved:
        asked = m.from_state is m.to_state is JobState.RESERVED
        change = "is asked to stop" if asked else f"{m.from_state} → {m.to_state}"
        out(f"job {m.job_id} {change} at {safe(m.stage)}")
