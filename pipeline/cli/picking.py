"""Which jobs a verb is meant for: numbers, or a filter; and what became of them; floor 4."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.completion import job_states, site_names
from pipeline.cli.house import House, confirm, opened, unknown
from pipeline.cli.render import as_json, count, out, safe, say, table
from pipeline.errors import NotFound, UsageError
from pipeline.states import ASSEMBLE, TRANSITIONS, JobState

if TYPE_CHECKING:
    from pipeline.service.operate import Filter, Jobs, Moved, Operate

Ids = Annotated[list[int] | None, typer.Argument(help="Numbers of jobs.", metavar="ID", min=1, max=2**63 - 1)]
SiteOf = Annotated[
    str | None, typer.Option("--site", help="Those of this site.", metavar="NAME", autocompletion=site_names)
]
LaneOf = Annotated[str | None, typer.Option("--lane", help="Those in this lane of the site.", metavar="NAME")]
At = Annotated[str | None, typer.Option("--at", help="Those that stand at this stage.", metavar="STAGE")]
States = Annotated[
    list[str] | None,
    typer.Option("--state", help="Those in this state; may be repeated.", metavar="STATE", autocompletion=job_states),
]
ErrorClass = Annotated[
    str | None, typer.Option("--error", help="Those that failed with this class of error.", metavar="CLASS")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the event.", metavar="TEXT")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@dataclass(frozen=True, slots=True)
class Verb:
    """What a command says of its verb."""

    name: str  # in states.TRANSITIONS
    past: str
    warning: str = ""  # asked before numbers are moved, and added where a filter is; {} is which
    force: bool = False
    attempts: int = 0  # that it grants, for the verb that does nothing else


@dataclass(frozen=True, slots=True)
class Picked:
    """What a command line picks: numbers, or else a filter of a site."""

    ids: Sequence[int]
    site: str | None
    lane: str | None
    at: str | None
    states: frozenset[JobState]
    error: str | None

    @property
    def words(self) -> str:
        """The filter in words."""
        parts = [
            f"site {safe(self.site)}",
            *([f"lane {safe(self.lane)}"] if self.lane is not None else []),
            *([f"at {safe(self.at)}"] if self.at is not None else []),
            *([" or ".join(sorted(self.states))] if self.states else []),
            *([f"error {safe(self.error)}"] if self.error is not None else []),
        ]
        return ", ".join(parts)


def picked(
    verb: Verb,
    ids: Sequence[int] | None,
    site: str | None,
    lane: str | None,
    at: str | None,
    states: Sequence[str] | None,
    error: str | None,
) -> Picked:
    """What was picked. Raises UsageError for neither numbers nor a filter, for both, and for half a filter."""
    filters = {"--site": site, "--lane": lane, "--at": at, "--state": states, "--error": error}
    given = [name for name, value in filters.items() if value]
    if ids and given:
        raise UsageError(f"name jobs by number, or pick them by {', '.join(given)}; not both")
    if not ids and not given:
        raise UsageError(
            f"name jobs by number, or pick them: --site NAME, and --lane, --at, --state or --error;"
            f" see: pipeline jobs {verb.name} --help"
        )
    if not ids and site is None:
        raise UsageError(f"{', '.join(given)}: name the site as well: --site NAME")
    wanted = frozenset(state(name) for name in states or ())
    sources = TRANSITIONS[verb.name].sources | ({JobState.RESERVED} if verb.force else frozenset())
    if never := sorted(wanted - sources):
        raise UsageError(f"--state {never[0]}: only {', '.join(sorted(sources))} can be {verb.past}")
    return Picked(ids or (), site, lane, at, wanted, error)


def state(name: str) -> JobState:
    """The state of that name; UsageError with all of them for none."""
    try:
        return JobState(name.lower())
    except ValueError as error:
        raise UsageError(f"no state {name!r}; states: {', '.join(JobState)}") from error


def carry_out(
    verb: Verb,
    wanted: Picked,
    act: Callable[["Operate", "Jobs", bool], list["Moved"]],
    *,
    yes: bool,
    dry_run: bool,
    json: bool,
) -> list["Moved"]:
    """Let ``act`` move what was picked, or with True only judge it, and tell what came of it."""
    with opened(f"jobs {verb.name}", wanted.site) as house:
        operate = house.services.operate
        moved = _move(house, verb, wanted, lambda jobs, dry: act(operate, jobs, dry), yes=yes, dry_run=dry_run)
    _tell(verb, wanted, moved, dry_run=dry_run, json=json)
    return moved


def _move(
    house: House, verb: Verb, wanted: Picked, act: Callable[["Jobs", bool], list["Moved"]], *, yes: bool, dry_run: bool
) -> list["Moved"]:
    """Let ``act`` move what was picked, or with True only judge it; on a terminal a person is asked first."""
    if wanted.site is None:
        if verb.warning and not dry_run:
            confirm(verb.warning.format(_numbers(wanted.ids)), yes=yes)
        return act(wanted.ids, dry_run)
    jobs = _filter(house, wanted.site, wanted)
    try:
        looked = act(jobs, True)
    except NotFound:
        if wanted.lane is not None:
            known_lane(house, wanted.site, jobs.site_id, wanted.lane)
        raise
    if dry_run or not looked:
        return looked
    which = f"{count(len(looked), 'job')} of {wanted.words}"
    confirm((verb.warning or f"{verb.name} {{}}?").format(which), yes=yes)
    return act(jobs, False)


def _filter(house: House, site: str, wanted: Picked) -> "Filter":
    """The filter for the service. Raises NotFound for a stage that the site does not have."""
    from pipeline.service.operate import Filter

    site_id = house.site_id(site)
    if wanted.at is not None:
        stages = [row.name for row in house.services.planning.order(site_id)]
        if wanted.at not in {*stages, ASSEMBLE}:
            raise NotFound(unknown("stage", wanted.at, stages, f"in site {site!r}"))
    return Filter(site_id, wanted.lane, wanted.at, wanted.states, wanted.error)


def known_lane(house: House, site: str, site_id: int, lane: str) -> None:
    """Raise NotFound with the nearest lanes when the site has none of that name."""
    known = [line.lane for line in house.services.lanes.list(site_id)]
    if lane not in known:
        raise NotFound(unknown("lane", lane, known, f"in site {site!r}"))


def _tell(verb: Verb, wanted: Picked, moved: Sequence["Moved"], *, dry_run: bool, json: bool) -> None:
    """What was moved, or would be."""
    if json:
        keys = ("job", "from", "to", "stage")
        rows = [(m.job_id, m.from_state, m.to_state, m.stage) for m in moved]
        found = [dict(zip(keys, row, strict=True)) for row in rows]
        out(as_json({"moved": found, "count": len(found), "dry_run": dry_run}))
    elif wanted.site is None:
        for m in moved:
            out(f"job {m.job_id} {_change(verb, m, dry_run)} at {safe(m.stage)}")
    elif moved:
        headers = ("job", "is" if dry_run else "was", "would be" if dry_run else "is", "stage")
        asked = [m.job_id for m in moved if _asked(verb, m)]
        after = {m.job_id: "asked to stop" if m.job_id in asked else m.to_state for m in moved}
        out(table(headers, [(m.job_id, m.from_state, after[m.job_id], m.stage) for m in moved], numbers=("job",)))
        done = "would be" if dry_run else "was" if len(moved) == 1 else "were"
        out(f"{count(len(moved), 'job')} {done} {verb.past}" + (f"; {len(asked)} asked to stop" if asked else ""))
    if not moved:
        say(f"no job of {wanted.words} can be {verb.past}; see: pipeline jobs list --site {wanted.site}")


def _change(verb: Verb, moved: "Moved", dry_run: bool) -> str:
    if verb.attempts:
        may = "might" if dry_run else "may"
        return f"({moved.from_state}) {may} be tried {count(verb.attempts, 'time')} more"
    if _asked(verb, moved):
        return f"{'would be' if dry_run else 'is'} asked to stop"
    return f"{'would go ' if dry_run else ''}{moved.from_state} → {moved.to_state}"


def _asked(verb: Verb, moved: "Moved") -> bool:
    return verb.name == "cancel" and moved.to_state is JobState.RESERVED


def _numbers(ids: Sequence[int]) -> str:
    return f"job {ids[0]}" if len(ids) == 1 else f"{count(len(ids), 'job')} ({', '.join(map(str, ids))})"
