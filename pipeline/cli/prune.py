"""``pipeline prune``: let go of what is long over; floor 4."""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import actor, confirm, opened
from pipeline.cli.render import as_json, count, out, safe, say
from pipeline.cli.status import JsonOption
from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pipeline.service.prune import Pruned

QUIET = 5.0  # seconds between two lines of progress
KINDS = ("passes", "assemblies", "attempts", "events", "findings")


def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", help="Only what ended so long ago, in days or weeks.", metavar="90d|12w")
    ] = "90d",
    site: Annotated[
        str | None, typer.Option("--site", help="Only this site.", metavar="NAME", autocompletion=site_names)
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the event.", metavar="TEXT")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete old finished passes that newer ones have followed, with their attempts, events and findings.

    The newest pass of each topic stays, and so do all drafts and pages: nothing is planned or published again. Work may
    go on meanwhile, in batches of at most 1,000 rows; stopped and begun again, it goes on.

    Example: pipeline prune --older-than 90d --dry-run
    """
    older = _age(older_than)
    with opened("prune", site) as house:
        known = house.sites() if site is None else {site: house.site_id(site)}
        if not dry_run:
            what = f"site {safe(site)}" if site else count(len(known), "site")
            confirm(f"delete what ended more than {older.days} days ago of {what}? it cannot be brought back", yes=yes)
        found = {}
        for slug, site_id in sorted(known.items()):
            found[slug] = house.services.prune.prune(
                site_id, older, actor=actor(), reason=reason, dry_run=dry_run, progress=_progress(slug)
            )
    if json:
        sites = [{"site": slug, **{kind: getattr(gone, kind) for kind in KINDS}} for slug, gone in found.items()]
        out(as_json({"older_than_days": older.days, "dry_run": dry_run, "sites": sites}))
        return
    if not found:
        say("no site was run yet; run: pipeline run --site NAME")
    for slug, gone in found.items():
        out(f"{safe(slug)}: {_told(gone)} {'would go' if dry_run else 'pruned'}")


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,5})([dw])", text)
    days = int(match[1]) * (7 if match[2] == "w" else 1) if match else 0
    if not days:
        raise UsageError(f"--older-than {text!r} is no age; write days or weeks, at least a day, such as 90d or 12w")
    return timedelta(days=days)


def _told(gone: "Pruned") -> str:
    passes = count(gone.passes, "pass", "passes")
    more = [(gone.assemblies, "assembly", "assemblies"), (gone.attempts, "attempt", "attempts"),
            (gone.events, "event", "events"), (gone.findings, "finding", "findings")]  # fmt: skip
    belongs = ", ".join(count(number, one, many) for number, one, many in more if number)
    return f"{passes} ({belongs})" if belongs else passes


def _progress(slug: str) -> "Callable[[Pruned], None]":
    """Says now and then how far a long prune has come."""
    next_at = time.monotonic() + QUIET

    def tell(gone: "Pruned") -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + QUIET
            say(f"{slug}: {_told(gone)} so far")

    return tell
