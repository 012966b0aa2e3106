"""``pipeline doctor``: whether all is well, and if not, what to do; floor 4."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import House, project, refuse_nothing
from pipeline.cli.render import as_json, count, out, safe
from pipeline.cli.status import JsonOption
from pipeline.errors import DatabaseError, SchemaError

if TYPE_CHECKING:
    from pipeline.build import Services
    from pipeline.service.audit import Answer
    from pipeline.service.health import Check
    from pipeline.settings import Settings

REPORT = "stop the workers, keep a copy of the database, and report it with: pipeline doctor --json"
NEXT = {
    "L1": "any worker takes it back: pipeline run --site NAME",
    "L2": "start one: pipeline run --site NAME, or pipeline worker",
    "L3": "see: pipeline jobs list --state failed; then requeue or skip it",
    "L4": "end it: SELECT pg_terminate_backend(pid)",
    "L5": "let its job run again: it looks at the target first, and does nothing twice",
}


DAY = 86400.0  # seconds that a question may take, if need be; most have a minute


def doctor(
    site: Annotated[
        str | None, typer.Option("--site", help="Of the sites, only this.", metavar="NAME", autocompletion=site_names)
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Judge every row by every constraint as well, however long it all takes."),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Examine the database, the promises kept in it, and how each site stands; writes nothing.

    One line a check: ok, warning or broken, and what to do. Exit code 1 if anything is broken, 0 with warnings.

    Work may go on meanwhile. What takes longer than a minute is left out, unless --strict is given.

    Example: pipeline doctor --site acme
    """
    from pipeline.build import connect, open_database
    from pipeline.service.health import State

    settings, root = project()
    refuse_nothing(settings, root, site)
    found: list[Check] = []
    with (
        open_database(settings, root) as url,
        connect(url, settings, name="pipeline doctor", connections=1, fit=False, patience=DAY) as services,
    ):
        for check in _examined(services, settings, root, url, site, strict=strict):
            if not json:
                _show(check, first=not found or found[-1].section != check.section)
            found.append(check)
    numbers = {state: sum(check.state is state for check in found) for state in State}
    if json:
        worst = next((s for s in (State.BROKEN, State.WARNING) if numbers[s]), State.OK)
        out(as_json({"state": worst, "strict": strict, "counts": numbers, "checks": [asdict(c) for c in found]}))
    else:
        parts = [f"{numbers[State.BROKEN]} broken"] if numbers[State.BROKEN] else []
        parts += [count(numbers[State.WARNING], "warning")] if numbers[State.WARNING] else []
        out(f"\n{count(len(found), 'check')}: {', '.join(parts) or 'all is well'}")
    return 1 if numbers[State.BROKEN] else 0


def _examined(
    services: "Services", settings: "Settings", root: Path, url: str, site: str | None, *, strict: bool
) -> "Iterator[Check]":
    from pipeline.service.audit import Audit
    from pipeline.service.condition import Condition
    from pipeline.service.health import Check, Health, State

    health = Health(services.engine, settings.db_schema)
    yield from health.server()
    schema = list(_schema(services, settings, url))
    yield from schema
    if any(check.state is State.BROKEN and check.name == "revision" for check in schema):
        yield Check("audit", "all", State.WARNING, "not asked: the schema is another than this release knows")
        return
    house = House(root, services)
    known = house.sites() if site is None else {site: house.site_id(site)}
    yield from health.tables()
    audit = Audit(services.engine, settings.db_schema)
    for answer in audit.invariants(patient=strict):
        yield _judged("audit", answer, State.BROKEN, REPORT)
    if strict:
        yield from _laws(audit)
    for answer in audit.liveness():
        yield _judged("liveness", answer, State.WARNING, NEXT[answer.name])
    condition = Condition(services.engine)
    for slug, site_id in sorted(known.items()):
        yield from condition.site(site_id, slug)


def _schema(services: "Services", settings: "Settings", url: str) -> "Iterator[Check]":
    from pipeline import migrate
    from pipeline.service.health import Check, State

    try:
        migrate.check_schema(services.engine, settings.db_schema)
    except SchemaError as error:
        yield Check("schema", "revision", State.BROKEN, str(error))
        return
    yield Check("schema", "revision", State.OK, f"'{settings.db_schema}' is at {migrate.head()}")
    try:
        drift = migrate.drift(url, settings.db_schema)
    except DatabaseError as error:
        yield Check("schema", "drift", State.WARNING, f"not compared: {error}")
        return
    if drift:
        rows = tuple({"difference": line} for line in drift)
        yield Check("schema", "drift", State.BROKEN, f"{count(len(drift), 'difference')}, such as {drift[0]}",
                    "see: pipeline db check; change it back, or restore a backup", rows)  # fmt: skip
    else:
        yield Check("schema", "drift", State.OK, "as this release needs")


def _judged(section: str, answer: "Answer", state: Any, advice: str) -> "Check":
    """What an invariant's answer means: no row, all is well."""
    from pipeline.service.audit import MAX_ROWS
    from pipeline.service.health import Check, State

    if answer.unseen:
        return Check(section, answer.name, State.WARNING, f"{answer.meaning}: not asked, {answer.unseen}")
    if not answer.rows:
        return Check(section, answer.name, State.OK, answer.meaning)
    number = "many rows" if len(answer.rows) == MAX_ROWS else count(len(answer.rows), "row")
    first = ", ".join(f"{key} {value}" for key, value in answer.rows[0].items() if value is not None)
    return Check(section, answer.name, state, f"{answer.meaning}: not so in {number}, such as {first}", advice,
                 answer.rows)  # fmt: skip


def _laws(audit: Any) -> "Iterator[Check]":
    """Every constraint in one line, and one more for each that is broken."""
    from pipeline.service.health import Check, State

    kept = 0
    for answer in audit.laws():
        if answer.rows or answer.unseen:
            yield _judged("audit", answer, State.BROKEN, REPORT)
        else:
            kept += 1
    yield Check("audit", "constraints", State.OK, f"{kept} hold for every row")


def _show(check: "Check", *, first: bool) -> None:
    if first:
        out(safe(check.section))
    advice = f" → {check.advice}" if check.advice else ""
    out(safe(f"  {check.state:<8} {check.name:<12} {check.found}{advice}"))
