"""``pipeline status``: where each site stands; floor 4."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import opened
from pipeline.cli.render import as_json, count, out, safe, say, table
from pipeline.states import ASSEMBLE, JobState

if TYPE_CHECKING:
    from pipeline.service.reading import SiteStatus, Standing

COLUMNS = ("waiting", "later", "ready", "running", "failed", "repair", "cancelled")

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def status(
    site: Annotated[
        str | None, typer.Option("--site", help="Only this site.", metavar="NAME", autocompletion=site_names)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show where each site stands.

    How many of its topics are live, and its unfinished jobs by stage and state.

    Example: pipeline status --site acme
    """
    with opened("status", site) as house:
        known = house.sites() if site is None else {site: house.site_id(site)}
        reading = house.services.reading
        found = [(reading.status(site_id, slug), reading.stages(site_id)) for slug, site_id in sorted(known.items())]
    if json:
        out(as_json({"sites": [document(standing, stages) for standing, stages in found]}))
        return
    if not found:
        say("no site was run yet; run: pipeline run --site NAME")
    for number, (standing, stages) in enumerate(found):
        out(
            ("\n" if number else "")
            + f"{safe(standing.site)}: {standing.live} of {count(standing.topics, 'topic')} live"
        )
        rows = by_stage(standing.standing, stages)
        if any(sum(cells.values()) for cells in rows.values()):
            lines = [(name, *(cells[column] or "·" for column in COLUMNS)) for name, cells in rows.items()]
            out(table(("stage", *COLUMNS), lines, numbers=COLUMNS))
        else:
            out("nothing to do")


def by_stage(standing: Sequence["Standing"], stages: Sequence[str]) -> dict[str, dict[str, int]]:
    """Counts by stage, in the order of the pipeline; the site's own job last, where it has one."""
    extra = sorted({s.stage for s in standing} - set(stages), key=lambda name: (name == ASSEMBLE, name))
    rows = {name: dict.fromkeys(COLUMNS, 0) for name in (*stages, *extra)}
    names = {JobState.RESERVED: "running"}
    for s in standing:
        cells = rows[s.stage]
        if s.state is JobState.PENDING:
            cells["ready"] += s.due
            cells["later"] += s.count - s.due
        elif (name := names.get(s.state, str(s.state))) in cells:
            cells[name] += s.count
    return rows


def document(standing: "SiteStatus", stages: Sequence[str]) -> dict[str, Any]:
    return {
        "site": standing.site,
        "topics": standing.topics,
        "live": standing.live,
        "stages": [{"stage": name, **cells} for name, cells in by_stage(standing.standing, stages).items()],
    }
