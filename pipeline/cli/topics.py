"""``pipeline topics``: what a site consists of, and the file that it comes from; floor 4."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names, site_slashes
from pipeline.cli.house import House, actor, confirm, maybe_opened, opened, parted, project, unknown
from pipeline.cli.render import as_json, columns, out, safe, say, table
from pipeline.cli.status import JsonOption
from pipeline.errors import NotFound, Refused, UsageError

if TYPE_CHECKING:
    from pipeline.service.sites import Underway

app = typer.Typer(
    help="List topics, look at one, change the file that they come from.\n\nExample: pipeline topics list --site acme",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Topic = Annotated[
    str, typer.Argument(help="Which one, as SITE/SLUG.", metavar="SITE/SLUG", autocompletion=site_slashes)
]


@app.command("list")
def list_topics(
    site: Annotated[str, typer.Option("--site", help="The site.", metavar="NAME", autocompletion=site_names)],
    lane: Annotated[str | None, typer.Option("--lane", help="Only this lane.", metavar="NAME")] = None,
    json: JsonOption = False,
) -> None:
    """List the topics of a site by lane and position, each with its newest pass and where it is live.

    Example: pipeline topics list --site acme --lane japan
    """
    with opened("topics list", site) as house:
        found = house.services.reading.topics(house.site_id(site))
    lanes = {topic.lane for topic in found}
    if lane is not None:
        if lane not in lanes:
            raise NotFound(unknown("lane", lane, lanes, f"in site {site!r}"))
        found = [topic for topic in found if topic.lane == lane]
    if json:
        out(as_json({"site": site, "topics": [columns(topic) for topic in found]}))
        return
    if not found:
        say(f"site {site!r} has no topics")
        return
    rows = [
        (t.lane, t.position, t.slug, t.type, f"{t.state} at {t.stage}" if t.state else "", t.live_path, t.title)
        for t in found
    ]
    out(table(("lane", "position", "slug", "type", "pass", "live at", "title"), rows, numbers=("position",)))


@app.command()
def show(
    topic: Topic,
    json: JsonOption = False,
) -> None:
    """Show one topic: its row, its current draft, the attempts of its newest pass, what is live of it.

    Example: pipeline topics show acme/kyoto
    """
    site, slug = parted(topic, "topic", "acme/kyoto")
    with opened("topics show", site) as house:
        site_id = house.site_id(site)
        try:
            found = house.services.reading.topic(site_id, slug)
        except NotFound as error:
            known = [line.slug for line in house.services.reading.topics(site_id)]
            raise NotFound(unknown("topic", slug, known, f"in site {site!r}")) from error
    row = {("pass" if key == "number" else key): value for key, value in found.topic.items()}
    if json:
        out(as_json({"site": site, "topic": row, "attempts": found.attempts, "live": found.publications}))
        return
    body = str(row.pop("body") or "")
    brief = dict(row.pop("brief"))
    out("\n".join(_pairs({"site": site, **row})))
    out("\n".join(["", "row:", *_pairs(brief, "  ")] if brief else ["", "row: no further columns"]))
    live = [(p["target"], p["live_path"], _moment(p["first_at"]), _moment(p["changed_at"])) for p in found.publications]
    _section("live", ("target", "path", "first", "changed"), live)
    tries = [
        (_moment(a["ended_at"]), a["stage"], a["round"], a["outcome"], a["error"] or a["error_class"])
        for a in found.attempts
    ]
    _section("attempts", ("ended", "stage", "round", "outcome", "error"), tries)
    out("\n".join(["", "draft:", *(f"  {safe(line)}" for line in body.splitlines())] if body else ["", "draft: none"]))


@app.command()
def add(
    site: Annotated[str, typer.Argument(help="The site.", metavar="SITE", autocompletion=site_names)],
    lane: Annotated[str, typer.Option("--lane", help="Its lane.", metavar="NAME")],
    slug: Annotated[str, typer.Option("--slug", help="Its name in addresses.", metavar="SLUG")],
    title: Annotated[str, typer.Option("--title", help="Its title.", metavar="TEXT")],
    type: Annotated[
        str | None, typer.Option("--type", help="Default: as the last of its lane, else page.", metavar="TYPE")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="A further column; may be repeated.", metavar="COLUMN=VALUE")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Put a topic at the end of its lane: a row in the site's topics file, which the next run publishes.

    Example: pipeline topics add acme --lane japan --slug nara --title "In Nara"
    """
    from pipeline.project.editing import add_topic
    from pipeline.project.site import load_site

    _, root = project()
    row = {"lane": lane, "slug": slug, "title": title} | ({} if type is None else {"type": type})
    added = add_topic(load_site(root, site), row, _assigned("--data", data))
    topic = added.topic
    if json:
        at = {"lane": topic.lane, "position": topic.order, "type": topic.type, "path": topic.path}
        out(as_json({"site": site, "topic": topic.slug, "file": added.file, "line": topic.line, **at}))
    else:
        where = f"lane {topic.lane}, position {topic.order}, type {topic.type}"
        out(f"topic {site}/{topic.slug} was added to {safe(added.file)}, line {topic.line}: {safe(where)}")
    say(f"it is published by: pipeline run --site {site}")


@app.command()
def edit(
    topic: Topic,
    values: Annotated[
        list[str], typer.Option("--set", help="A column's new value; may be repeated.", metavar="COLUMN=VALUE")
    ],
    json: JsonOption = False,
) -> None:
    """Change columns of a topic's row in the site's topics file; the next run makes its page anew.

    Example: pipeline topics edit acme/kyoto --set "title=Two days in Kyoto"
    """
    from pipeline.project.editing import edit_topic
    from pipeline.project.site import load_site

    site, slug = parted(topic, "topic", "acme/kyoto")
    _, root = project()
    edited = edit_topic(load_site(root, site), slug, _assigned("--set", values))
    if json:
        place = {"file": edited.file, "line": edited.topic.line}
        out(as_json({"site": site, "topic": slug, **place, "columns": list(edited.columns)}))
    elif edited.columns:
        changed = ", ".join(map(safe, edited.columns))
        out(f"topic {site}/{slug} was changed in {safe(edited.file)}, line {edited.topic.line}: {changed}")
    else:
        out(f"topic {site}/{slug} says so already; nothing was changed")
    if "position" in edited.columns:
        say("a topic that was planned keeps its place; a position counts for new ones only")
    if edited.columns:
        say(f"its page is made anew by: pipeline run --site {site}")


@app.command()
def remove(
    topic: Topic,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the event.", metavar="TEXT")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Take a topic out of the site's topics file, and give its unfinished pass up. A live page stays live.

    Example: pipeline topics remove acme/kyoto --reason "not ours" --yes
    """
    from pipeline.project.editing import taking_out
    from pipeline.project.site import load_site, sites
    from pipeline.project.topics import load_topics

    site, slug = parted(topic, "topic", "acme/kyoto")
    _, root = project()
    with maybe_opened("topics remove", site) as house:
        site_id = None if house is None else house.sites().get(site)
        here = load_site(root, site) if site in sites(root) or site_id is None else None
        rows = [] if here is None else load_topics(here)
        in_file = any(row.slug == slug for row in rows)
        job, live = (None, None) if house is None or site_id is None else _standing(house, site_id, slug)
        if not in_file and live is None:
            raise NotFound(unknown("topic", slug, [row.slug for row in rows], f"in site {site!r}"))
        _refuse_to_remove(topic, in_file=in_file, job=job)
        moved = None
        if not dry_run:
            confirm(f"remove topic {safe(topic)}? its unfinished pass is given up for good", yes=yes)
            with nullcontext() if here is None else taking_out(here, slug) as taken:
                in_file = taken is not None
                if house is not None and job is not None:
                    (moved,) = house.services.operate.skip([job.job_id], actor=actor(), reason=reason)
    file = f"sites/{site}/{here.topics}" if here is not None and in_file else None
    before = None if job is None else moved.from_state if moved else job.state
    if json:
        done = None if job is None else {"job": job.job_id, "from": before, "to": "skipped", "stage": job.stage}
        pages = list(live or [])
        out(as_json({"site": site, "topic": slug, "removed": not dry_run, "file": file, "job": done, "live": pages}))
    else:
        would = "would be" if dry_run else "was"
        if file is not None:
            out(f"topic {safe(topic)} {would} taken out of {safe(file)}")
        if job is not None:
            out(f"job {job.job_id} {would} given up: {before} → skipped at {safe(job.stage)}")
    for path in live or []:
        say(f"its page stays live at {path}")


def _standing(house: House, site_id: int, slug: str) -> tuple["Underway | None", list[str] | None]:
    """The unfinished pass of a topic, and where it is live; None when the database does not know it."""
    try:
        found = house.services.reading.topic(site_id, slug)
    except NotFound:
        return None, None
    return house.services.sites.underway(site_id, slug), [str(page["live_path"]) for page in found.publications]


def _refuse_to_remove(topic: str, *, in_file: bool, job: "Underway | None") -> None:
    if job is not None and job.state == "reserved":
        raise Refused(
            f"topic {topic!r} is running: job {job.job_id} at {job.stage}, held by {job.reserved_by};"
            f" stop it first: pipeline jobs cancel {job.job_id}"
        )
    if not in_file and job is None:
        raise Refused(f"topic {topic!r} is out of the file already, and nothing of it is unfinished")


def _assigned(option: str, words: Sequence[str] | None) -> dict[str, str]:
    """COLUMN=VALUE, taken apart."""
    found: dict[str, str] = {}
    for word in words or ():
        name, sign, value = word.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"{option} {word!r}: write COLUMN=VALUE")
        if name.strip() in found:
            raise UsageError(f"{option}: column {name.strip()!r} is named twice")
        found[name.strip()] = value
    return found


def _pairs(values: dict[str, Any], indent: str = "") -> list[str]:
    width = max(map(len, values))
    return [
        f"{indent}{safe(name):<{width}}  {safe(value if isinstance(value, str | int) else as_json(value))}"
        for name, value in values.items()
        if value is not None and value != ""
    ]


def _section(name: str, headers: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    out(f"\n{name}: none" if not rows else f"\n{name}:\n{table(headers, rows)}")


def _moment(value: Any) -> str:
    return "" if value is None else f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
