"""``pipeline topics add``, ``move`` and ``remove``: the file and the database change together; floor 4.

What could be refused is refused before the first write; the database's verb comes first, then the file takes its new
form. A move that was interrupted in between can be repeated: what stands there already is left alone.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names, site_topics
from pipeline.cli.house import House, actor, confirm, maybe_opened, parted, project, unknown
from pipeline.cli.picking import DryRun, Reason, Yes
from pipeline.cli.render import as_json, out, safe, say
from pipeline.cli.status import JsonOption
from pipeline.errors import NotFound, Refused, UsageError

if TYPE_CHECKING:
    from pipeline.project.editing import Edited
    from pipeline.project.site import Site
    from pipeline.service.places import Moved, Place
    from pipeline.service.sites import Underway
    from pipeline.views import TopicRow

Topic = Annotated[str, typer.Argument(help="Which one, as SITE/SLUG.", metavar="SITE/SLUG", autocompletion=site_topics)]


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
    before: Annotated[
        str | None,
        typer.Option("--before", help="Right before this one, which its lane has not reached.", metavar="SLUG"),
    ] = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    json: JsonOption = False,
) -> None:
    """Put a topic into its lane: at the end, or before another: a row in the site's topics file, which a run publishes.

    Example: pipeline topics add acme --lane japan --slug nara --title "In Nara"
    """
    from pipeline.project.editing import adding
    from pipeline.project.site import load_site

    _, root = project()
    row = {"lane": lane, "slug": slug, "title": title} | ({} if type is None else {"type": type})
    here = load_site(root, site)
    placed: Moved | None = None
    with ExitStack() as stack:
        house = None if before is None else stack.enter_context(maybe_opened("topics add", site))
        with adding(here, row, assigned("--data", data), before=before, dry_run=dry_run) as added:
            site_id = None if house is None else house.sites().get(site)
            if house is not None and site_id is not None and before is not None and _place(house, site_id, before):
                topic = as_planned(here, root, added.topic)
                placed = house.services.places.insert(
                    site_id, topic, before, actor=actor(), reason=reason, dry_run=dry_run
                )
    topic = added.topic
    if json:
        at = {"lane": topic.lane, "position": topic.order, "type": topic.type, "path": topic.path}
        known = {"file": added.file, "line": topic.line, **at, "planned": _document(placed.after if placed else None)}
        out(as_json({"site": site, "topic": topic.slug, **known, "dry_run": dry_run}))
    else:
        would = "would be" if dry_run else "was"
        where = f"lane {topic.lane}, position {topic.order}, type {topic.type}"
        out(f"topic {site}/{topic.slug} {would} added to {safe(added.file)}, line {topic.line}: {safe(where)}")
        if placed is not None:
            out(f"it {would} planned at position {placed.after.position} of its lane, right before {safe(before)}")
    if not dry_run:
        say(f"it is published by: pipeline run --site {site}")


def move(
    topic: Topic,
    before: Annotated[str | None, typer.Option("--before", help="Right before this one.", metavar="SLUG")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Right after this one.", metavar="SLUG")] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="To the end of this lane.", metavar="LANE")] = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    json: JsonOption = False,
) -> None:
    """Move a topic in its lane, or to the end of another, in the topics file and in the database.

    Only what is still to be released moves, and only to where the lane has not come yet.

    Example: pipeline topics move acme/kyoto --before tokyo
    """
    from pipeline.project.site import load_site, sites
    from pipeline.project.topics import load_topics

    if sum(where is not None for where in (before, after, lane)) != 1:
        raise UsageError("say where to: one of --before SLUG, --after SLUG and --lane LANE")
    site, slug = parted(topic, "topic", "acme/kyoto")
    _, root = project()
    with maybe_opened("topics move", site) as house:
        site_id = None if house is None else house.sites().get(site)
        here = load_site(root, site) if site in sites(root) or site_id is None else None
        rows = {} if here is None else {row.slug: row for row in load_topics(here)}
        at = None if house is None or site_id is None else _place(house, site_id, slug)
        if slug not in rows and at is None:
            raise NotFound(unknown("topic", slug, list(rows), f"in site {site!r}"))
        mate = before if after is None else after
        if lane is not None:
            _refuse_lane(lane, rows, slug, at, here)
        elif (
            at is not None and house is not None and site_id is not None and _place(house, site_id, mate or "") is None
        ):
            if mate not in rows:
                raise NotFound(unknown("topic", mate or "", list(rows), f"in site {site!r}"))
            raise Refused(
                f"topic {mate!r} was never planned, so nothing can be placed beside it; plan it first:"
                f" pipeline run --site {site}"
            )
        moved: Moved | None = None
        with _in_file(here, rows.get(slug), before, after, lane, dry_run) as edited:
            if house is not None and site_id is not None and at is not None:
                places, said = house.services.places, {"actor": actor(), "reason": reason}
                if lane is None:
                    moved = places.move(site_id, slug, before=before, after=after, dry_run=dry_run, **said)
                elif at["lane"] != lane:
                    moved = places.move_to_lane(site_id, slug, lane, dry_run=dry_run, **said)
    _tell_move(site, slug, moved, edited, dry_run, json)
    if at is None and house is not None and site_id is not None and mate is not None and not dry_run:
        say("it was never planned, so a run puts it at the end of its lane, behind what is planned; then move it again")


def remove(
    topic: Topic,
    force: Annotated[bool, typer.Option("--force", help="A running one too: take it from its holder.")] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
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
        _refuse_to_remove(topic, in_file=in_file, job=job, force=force)
        moved = None
        if not dry_run:
            confirm(f"remove topic {safe(topic)}? its unfinished pass is given up for good", yes=yes)
            with nullcontext() if here is None else taking_out(here, slug) as taken:
                in_file = taken is not None
                if house is not None and job is not None:
                    (moved,) = house.services.operate.skip([job.job_id], actor=actor(), reason=reason, force=force)
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


def as_planned(here: "Site", root: Path, topic: "TopicRow") -> "TopicRow":
    """The row with the hash that a run would give it. What the project's code prints is talk."""
    from pipeline.project.loading import load_stages
    from pipeline.wanted import hashed

    with redirect_stdout(sys.stderr):
        return hashed(here, load_stages(root), [topic])[0]


def assigned(option: str, words: Sequence[str] | None) -> dict[str, str]:
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


def _place(house: House, site_id: int, slug: str) -> dict[str, Any] | None:
    """What the database has of a topic; None when it was never planned."""
    try:
        return dict(house.services.reading.topic(site_id, slug).topic)
    except NotFound:
        return None


def _refuse_lane(
    lane: str, rows: dict[str, "TopicRow"], slug: str, at: dict[str, Any] | None, here: "Site | None"
) -> None:
    row = rows.get(slug)
    if all(is_there in (None, lane) for is_there in (row and row.lane, at and at["lane"])):
        raise Refused(f"topic {slug!r} is in lane {lane!r} already; to move it there: --before SLUG, or --after SLUG")
    if at is None and lane not in (lanes := {r.lane for r in rows.values()}):
        raise NotFound(unknown("lane", lane, lanes, "in the topics file"))
    if at is not None and here is not None:
        path = here.path(type=row.type if row else at["type"], lane=lane, slug=slug)
        if path != at["path"]:
            raise Refused(
                f"the page of {slug!r} would move from {at['path']!r} to {path!r}, for its address names its lane, and"
                " a page cannot move; remove the topic, and add it with a new slug"
            )


def _in_file(
    here: "Site | None", row: "TopicRow | None", before: str | None, after: str | None, lane: str | None, dry_run: bool
) -> "AbstractContextManager[Edited | None]":
    from pipeline.project.editing import moving, moving_to_lane

    if here is None or row is None:
        return nullcontext()
    if lane is not None:
        return moving_to_lane(here, row.slug, lane, dry_run=dry_run)
    return moving(here, row.slug, before=before, after=after, dry_run=dry_run)


def _tell_move(site: str, slug: str, moved: "Moved | None", edited: "Edited | None", dry_run: bool, json: bool) -> None:
    changed = edited if edited is not None and edited.columns else None
    if json:
        file = {"file": changed.file if changed else None, "line": changed.topic.line if changed else None}
        places = {"from": _document(moved.before if moved else None), "to": _document(moved.after if moved else None)}
        out(as_json({"site": site, "topic": slug, **file, **places, "dry_run": dry_run}))
        return
    would = "would be" if dry_run else "was"
    if moved is not None and moved.before is not None and moved.before != moved.after:
        before, after = moved.before, moved.after
        lanes = f"{safe(before.lane)} → {safe(after.lane)}" if before.lane != after.lane else safe(before.lane)
        out(f"topic {site}/{safe(slug)} {would} moved: lane {lanes}, position {before.position} → {after.position}")
    if changed is not None:
        at = f"line {changed.topic.line}: lane {changed.topic.lane}, position {changed.topic.order}"
        out(f"its row {would} moved in {safe(changed.file)}, {at}")
    if changed is None and (moved is None or moved.before == moved.after):
        out(f"topic {site}/{safe(slug)} stands there already; nothing {'would be' if dry_run else 'was'} changed")


def _document(place: "Place | None") -> dict[str, Any] | None:
    return None if place is None else {"lane": place.lane, "position": place.position}


def _standing(house: House, site_id: int, slug: str) -> tuple["Underway | None", list[str] | None]:
    """The unfinished pass of a topic, and where it is live; None when the database does not know it."""
    try:
        found = house.services.reading.topic(site_id, slug)
    except NotFound:
        return None, None
    return house.services.sites.underway(site_id, slug), [str(page["live_path"]) for page in found.publications]


def _refuse_to_remove(topic: str, *, in_file: bool, job: "Underway | None", force: bool) -> None:
    if job is not None and job.state == "reserved" and not force:
        raise Refused(
            f"topic {topic!r} is running: job {job.job_id} at {job.stage}, held by {job.reserved_by};"
            f" stop it first: pipeline jobs cancel {job.job_id}, or take it from its holder: --force"
        )
    if not in_file and job is None:
        raise Refused(f"topic {topic!r} is out of the file already, and nothing of it is unfinished")
