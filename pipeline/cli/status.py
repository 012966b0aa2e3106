"""``pipeline status``: where each site stands, how fast it moves, and what goes wrong there unseen; floor 4."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.guard import Interrupted
from pipeline.cli.house import House, opened
from pipeline.cli.render import as_json, count, out, safe, say, table
from pipeline.states import ASSEMBLE, HALTING, JobState

if TYPE_CHECKING:
    from pipeline.service.explaining import Patience, Symptom
    from pipeline.service.reading import Delay, Standing

COLUMNS = ("waiting", "later", "ready", "running", "failed", "repair", "cancelled")
SHOWN = ("waiting", "later", "ready", "running", "overdue", "stuck", "halted", "/min", "left")
EVERY = 2.0  # seconds between two looks of --watch
NAMED = 5  # jobs of a symptom

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def status(
    site: Annotated[
        str | None, typer.Option("--site", help="Only this site.", metavar="NAME", autocompletion=site_names)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show where each site stands, how fast it moves, and what goes wrong.

    Its live topics, its unfinished jobs by stage, those done a minute and the time left at that rate. Ready counts what
    is overdue too, running what is stuck. With --watch --json: one document a line.

    Example: pipeline status --site acme --watch
    """
    with opened("status", site) as house:

        def look() -> list[dict[str, Any]]:
            return documents(house, site)

        if watch:
            _watch(look, json)
            return
        found = look()
    if json:
        out(as_json({"sites": found}))
        return
    if not found:
        say(NOTHING)
    else:
        out(text(found))


NOTHING = "no site was run yet; run: pipeline run --site NAME"


def patience() -> "Patience":
    """From when on things count as late, by this project's settings."""
    from pipeline.service.explaining import Patience
    from pipeline.settings import load_settings

    settings = load_settings()
    return Patience(seen=3 * settings.reap, overdue=max(timedelta(minutes=1), 2 * settings.poll))


def documents(house: House, site: str | None) -> list[dict[str, Any]]:
    """What is to be said of each site now."""
    known = house.sites() if site is None else {site: house.site_id(site)}
    reading, explaining, late = house.services.reading, house.services.explaining, patience()
    paces = reading.paces()
    hands = house.services.roster.hands(late.seen)
    found = []
    for slug, site_id in sorted(known.items()):
        standing, stages = reading.status(site_id, slug), reading.stages(site_id)
        at_work = sum(hand.works_on(slug) for hand in hands)
        pace = paces.get(site_id, {})
        rows = _rows(standing.standing, stages, reading.delays(site_id, late.overdue), pace, at_work=at_work > 0)
        last = next((row for row in rows if stages and row["stage"] == stages[-1]), None)
        found.append(
            {
                "site": slug,
                "topics": standing.topics,
                "live": standing.live,
                "workers": at_work,
                **{name: sum(row[name] for row in rows) for name in ("overdue", "stuck", "halted")},
                "per_minute": last["per_minute"] if last else 0.0,
                "left_seconds": last["left_seconds"] if last else None,
                "stages": rows,
                "symptoms": [_symptom(symptom) for symptom in explaining.symptoms(site_id, late)],
            }
        )
    return found


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


def _rows(
    standing: Sequence["Standing"],
    stages: Sequence[str],
    delays: dict[str, "Delay"],
    paces: dict[str, float],
    *,
    at_work: bool,
) -> list[dict[str, Any]]:
    """A row a stage. What is left there: all that stands at it or before it, and moves without a person.

    ``left_seconds`` is None where nothing tells how long that takes: nobody is at work, or nothing got done lately.
    """
    rows = []
    ahead = 0
    for name, cells in by_stage(standing, stages).items():
        halted = sum(cells[state] for state in HALTING)
        moving = sum(cells.values()) - halted
        ahead = ahead + moving if name in stages else moving
        delay, pace = delays.get(name), paces.get(name, 0.0)
        left = (ahead / pace * 60 if pace and at_work else None) if ahead else 0.0
        rows.append(
            {
                "stage": name,
                **cells,
                "overdue": delay.overdue if delay else 0,
                "stuck": delay.stuck if delay else 0,
                "halted": halted,
                "per_minute": round(pace, 2),
                "left_seconds": None if left is None else round(left, 1),
            }
        )
    return rows


def _symptom(symptom: "Symptom") -> dict[str, Any]:
    from pipeline.cli.explain import reasons

    return {"symptom": symptom.name, "count": symptom.count, "jobs": reasons(symptom.reasons)}


def text(found: Sequence[dict[str, Any]]) -> str:
    """The same for people: a block a site."""
    return "\n\n".join("\n".join(_block(site)) for site in found)


def _block(site: dict[str, Any]) -> list[str]:
    at_work = count(site["workers"], "worker") if site["workers"] else "nobody"
    lines = [f"{safe(site['site'])}: {site['live']} of {count(site['topics'], 'topic')} live; {at_work} at work"]
    rows = [row for row in site["stages"] if any(row[column] for column in COLUMNS)]
    if not rows:
        return [*lines, "nothing to do"]
    shown = [
        (row["stage"], *(row[column] or "·" for column in SHOWN[:-2]), _pace(row["per_minute"]), _left(row))
        for row in site["stages"]
    ]
    lines.append(table(("stage", *SHOWN), shown, numbers=SHOWN))
    for symptom in site["symptoms"]:
        if symptom["count"]:
            lines += _told(symptom)
    return lines


def _told(symptom: dict[str, Any]) -> list[str]:
    from pipeline.cli.explain import why

    lines = [f"{symptom['symptom']}: {count(symptom['count'], 'job')}"]
    for job in symptom["jobs"][:NAMED]:
        whose = f"job {job['job']}" + (f" ({safe(job['topic'])})" if job["topic"] else "")
        lines += why([job], prefix="" if job["code"] == "unclaimed" else f"{whose}: ")
    more = len(symptom["jobs"]) - NAMED
    return [*lines, f"  and {more} more: see --json"] if more > 0 else lines


def _pace(pace: float) -> str:
    return "·" if not pace else f"{pace:.0f}" if pace >= 10 else f"{pace:.1f}"


def _left(row: dict[str, Any]) -> str:
    from pipeline.service.reasons import ago

    left = row["left_seconds"]
    return "?" if left is None else "·" if not left else ago(left)


def _watch(look: Callable[[], list[dict[str, Any]]], json: bool) -> None:
    """Show it again and again. Ends when told to, or when nobody reads any more."""
    stdout = sys.stdout
    screen = stdout is not None and stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not json
    with _stoppable() as stopped, _shown(screen) as show:
        before = _identity()
        while not stopped:
            found = look()
            show(as_json({"sites": found}) if json else text(found) or NOTHING)
            if _identity() != before:
                return
            until = time.monotonic() + EVERY
            while not stopped and time.monotonic() < until:
                time.sleep(0.05)
    raise Interrupted


def _identity() -> tuple[int, int]:
    """Which file standard output is: ``render`` points it elsewhere once its reader has left."""
    try:
        found = os.fstat(1)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM is only noted, so that no frame is torn; the next one interrupts whatever it is."""
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(screen: bool) -> Iterator[Callable[[str], None]]:
    """Draws over the last look on a terminal; elsewhere each is a block, or a line, of its own."""
    if not screen:
        yield lambda block: out(block if block.startswith("{") else block + "\n")
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield lambda block: live.update(Text.from_ansi(block), refresh=True)
