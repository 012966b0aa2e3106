"""``pipeline topics edit``: a topic's row or its draft, and back to work where it stood; floor 4."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.house import House, actor, opened, parted, project
from pipeline.cli.picking import DryRun, Reason
from pipeline.cli.render import as_json, out, safe, say
from pipeline.cli.status import JsonOption
from pipeline.cli.topics_file import Topic, as_planned, assigned
from pipeline.errors import Refused, UsageError

if TYPE_CHECKING:
    from pipeline.service.drafts import Opened
    from pipeline.service.operate import Moved


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of one topic."""

    site: str
    slug: str
    resume: bool
    reason: str
    dry_run: bool
    json: bool


def edit(
    topic: Topic,
    values: Annotated[
        list[str] | None, typer.Option("--set", help="A column's new value; may be repeated.", metavar="COLUMN=VALUE")
    ] = None,
    draft: Annotated[bool, typer.Option("--draft", help="Edit its draft, in $VISUAL or $EDITOR.")] = False,
    source: Annotated[
        str | None, typer.Option("--from", help="The new draft, from a file, or - for standard input.", metavar="FILE")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Put it back to work where it stood: failed, cancelled or to be repaired.")
    ] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    json: JsonOption = False,
) -> None:
    """Change columns of a topic's row in the site's topics file, and a run makes its page anew; or edit its draft.

    With --resume it goes on at the stage where it stood, and at its place in the lane.

    Example: pipeline topics edit acme/kyoto --set "title=Two days in Kyoto"
    """
    if bool(values) == draft:
        raise UsageError("say what to change: either --set COLUMN=VALUE, or --draft")
    if source is not None and not draft:
        raise UsageError("--from is where a draft comes from: add --draft")
    if dry_run and draft and source is None:
        raise UsageError("--dry-run would throw away what you type: give the draft with --from FILE")
    asked = _Asked(*parted(topic, "topic", "acme/kyoto"), resume, reason, dry_run, json)
    if draft:
        _edit_draft(asked, source)
    else:
        _edit_row(asked, assigned("--set", values))


# The row.


def _edit_row(asked: _Asked, values: dict[str, str]) -> None:
    from pipeline.project.editing import changing
    from pipeline.project.site import load_site

    _, root = project()
    here = load_site(root, asked.site)
    resumed: Moved | None = None
    if asked.resume:
        with opened("topics edit", asked.site) as house:
            site_id = house.site_id(asked.site)
            with changing(here, asked.slug, values, dry_run=asked.dry_run) as edited:
                seen = house.services.drafts.open(site_id, asked.slug)
                _resume(house, asked, seen, dry_run=True)
                topic = as_planned(here, root, edited.topic)
                # This one alone, by the rule that a run follows for all: its pass goes on with the new brief.
                if house.services.planning.plan(site_id, [topic], dry_run=asked.dry_run).closed:
                    raise Refused(
                        f"lane {topic.lane!r} is closed; open it first: pipeline lanes open {asked.site}/{topic.lane}"
                    )
            resumed = _resume(house, asked, seen, dry_run=asked.dry_run)
    else:
        with changing(here, asked.slug, values, dry_run=asked.dry_run) as edited:
            pass
    name = f"topic {asked.site}/{safe(asked.slug)}"
    would = "would be" if asked.dry_run else "was"
    if asked.json:
        _document(asked, resumed, file=edited.file, line=edited.topic.line, columns=list(edited.columns))
    elif edited.columns:
        changed = ", ".join(map(safe, edited.columns))
        out(f"{name} {would} changed in {safe(edited.file)}, line {edited.topic.line}: {changed}")
    else:
        out(f"{name} says so already; nothing {would} changed")
    if "position" in edited.columns:
        say("a topic that was planned keeps its place; to move it: pipeline topics move")
    _tell_resumed(asked, resumed)
    if resumed is None and edited.columns and not asked.dry_run:
        say(f"its page is made anew by: pipeline run --site {asked.site}")


# The draft.


def _edit_draft(asked: _Asked, source: str | None) -> None:
    from pipeline.project import drafts

    with opened("topics edit", asked.site) as house:
        seen = house.services.drafts.open(house.site_id(asked.site), asked.slug)
        if asked.resume:
            _resume(house, asked, seen, dry_run=True)
            _refuse_at_first(house, asked, seen)
    number: int | None = None
    resumed: Moved | None = None
    # No connection is held while somebody writes, which may take hours.
    with _text(asked, source, drafts.written(seen.draft)) as (data, name):
        new = drafts.read(data, name, seen.draft)
        if new is not seen.draft:
            with opened("topics edit", asked.site) as house:
                said: dict[str, Any] = {"actor": actor(), "reason": asked.reason, "dry_run": asked.dry_run}
                number = house.services.drafts.save(house.site_id(asked.site), seen, new, **said)
                if asked.resume:
                    resumed = _resume(house, asked, seen, dry_run=asked.dry_run)
    topic, would = f"topic {asked.site}/{asked.slug}", "would be" if asked.dry_run else "was"
    if asked.json:
        _document(asked, resumed, revision=number)
    elif number is None:
        out(f"the draft of {topic} says so already; nothing {would} changed")
    else:
        out(f"the draft of {topic} {would} changed: revision {number}")
    _tell_resumed(asked, resumed)
    if number is None and asked.resume:
        say(f"so it is not resumed either; to try it again as it is: pipeline jobs requeue {seen.job_id}")
    elif number is not None and seen.stage == seen.first:
        say(f"its pass stands at {seen.stage}, which may write the draft anew")


def _refuse_at_first(house: House, asked: _Asked, seen: "Opened") -> None:
    """The stage where passes begin makes drafts: it would write over this one at once."""
    if seen.stage != seen.first:
        return
    later = [row.name for row in house.services.planning.order(house.site_id(asked.site)) if row.state != "retired"]
    behind = f" --stage {later[1]}" if len(later) > 1 else ""
    raise Refused(
        f"topic {asked.slug!r} stands at {seen.stage}, where drafts are made: it would write over yours; edit it"
        f" without --resume, then let it go on behind that: pipeline jobs requeue {seen.job_id}{behind}"
    )


@contextmanager
def _text(asked: _Asked, source: str | None, before: str) -> Iterator[tuple[bytes, str]]:
    """What somebody wrote, and what to call it. When the block fails, it is kept in a file, which is named."""
    from pipeline.project.drafts import MAX_BYTES

    if source is not None and source != "-":
        try:
            with Path(source).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{source}: {error.strerror}") from error
        yield data, source
        return
    folder = Path(tempfile.mkdtemp(prefix="pipeline-"))
    file = folder / f"{asked.slug}.md"
    kept = False
    try:
        if source == "-":
            file.write_bytes(sys.stdin.buffer.read() if sys.stdin is not None else b"")
        else:
            file.write_text(before, encoding="utf-8")
            _let_edit(file)
        yield file.read_bytes(), "the draft" if source is None else "standard input"
    except BaseException:
        kept = file.exists() and file.read_bytes() not in (b"", before.encode())
        if kept:
            again = f"pipeline topics edit {asked.site}/{asked.slug} --draft --from {shlex.quote(str(file))}"
            say(f"what you wrote is kept in {file}; to write it again: {again}{' --resume' if asked.resume else ''}")
        raise
    finally:
        if not kept:
            for left in folder.iterdir():  # an editor's own copies as well
                with suppress(OSError):
                    left.unlink()
            with suppress(OSError):
                folder.rmdir()


def _let_edit(file: Path) -> None:
    """Open the user's editor on the file, and wait for its end."""
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not words:
        raise Refused("no editor is named; set EDITOR, or give the draft with --from FILE")
    # Ctrl-C is the editor's; a handler of ours, other than an ignored signal, does not pass on to it.
    before: Callable[..., Any] | int | None = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run([*words, str(file)], check=False).returncode
    except OSError as error:
        raise Refused(f"the editor {words[0]!r} cannot be started: {error.strerror}; set EDITOR") from error
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        raise Refused(f"the editor {words[0]!r} ended with {code}; nothing was changed")


# Both.


def _resume(house: House, asked: _Asked, seen: "Opened", *, dry_run: bool) -> "Moved":
    """Put the pass back where it stood. With ``dry_run`` it is judged whether it can be."""
    seen.refuse_resume()
    (moved,) = house.services.operate.requeue(
        [seen.job_id], actor=actor(), reason=asked.reason, stage=seen.resume_at, dry_run=dry_run
    )
    return moved


def _tell_resumed(asked: _Asked, moved: "Moved | None") -> None:
    if moved is None:
        return
    would = "would go " if asked.dry_run else ""
    if not asked.json:
        out(f"job {moved.job_id} {would}{moved.from_state} → {moved.to_state} at {safe(moved.stage)}")
    if not asked.dry_run:
        say(f"it goes on with: pipeline run --site {asked.site}")


def _document(asked: _Asked, resumed: "Moved | None", **what: Any) -> None:
    job = None
    if resumed is not None:
        keys = ("job", "from", "to", "stage")
        job = dict(zip(keys, (resumed.job_id, resumed.from_state, resumed.to_state, resumed.stage), strict=True))
    out(as_json({"site": asked.site, "topic": asked.slug, **what, "resumed": job, "dry_run": asked.dry_run}))
