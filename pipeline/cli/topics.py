"""``pipeline topics``: what a site consists of, and the file that it comes from; floor 4."""

from typing import Annotated, Any

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import opened, parted, unknown
from pipeline.cli.render import as_json, columns, out, safe, say, table
from pipeline.cli.status import JsonOption
from pipeline.cli.topics_edit import edit
from pipeline.cli.topics_file import Topic, add, move, remove
from pipeline.cli.topics_import import import_topics
from pipeline.errors import NotFound

app = typer.Typer(
    help="List topics, look at one, change them and their file.\n\nExample: pipeline topics list --site acme",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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


app.command("add")(add)
app.command("edit")(edit)
app.command("import")(import_topics)
app.command("move")(move)
app.command("remove")(remove)


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
