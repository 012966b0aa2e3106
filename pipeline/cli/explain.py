"""``pipeline explain``: why a topic, a lane or a site does not move, and the command that helps; floor 4."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.house import House, maybe_opened, opened, parted, project, unknown
from pipeline.cli.render import as_json, count, out, safe
from pipeline.cli.status import JsonOption, patience
from pipeline.errors import NotFound

if TYPE_CHECKING:
    from pipeline.service.explaining import LaneAnswer, SiteAnswer, TopicAnswer
    from pipeline.service.reasons import Reason
    from pipeline.service.roster import Hand

KINDS = {"held": "held for a person", "later": "due later", "lost": "lease over", "shut": "stage paused"}


def explain(
    what: Annotated[
        str,
        typer.Argument(
            help="A site, a topic as SITE/SLUG, or with --lane a lane as SITE/LANE.",
            metavar="SITE[/NAME]",
            autocompletion=site_names,
        ),
    ],
    lane: Annotated[bool, typer.Option("--lane", help="NAME is a lane, not a topic.")] = False,
    json: JsonOption = False,
) -> None:
    """Tell why something does not move: what it waits for, since when, and the command that helps.

    Of a topic: its stage and state, the head of its lane, who paused or holds it. Of a lane: its gates and their heads.
    Of a site: the lanes that stand, and who works on it.

    Example: pipeline explain acme/kyoto
    """
    if "/" not in what and not lane:
        answer = document_of_site(_site(what))
    elif lane:
        answer = document_of_lane(_lane(*parted(what, "lane", "acme/japan")))
    else:
        answer = document_of_topic(_topic(*parted(what, "topic", "acme/kyoto")))
    if json:
        out(as_json(answer))
        return
    for line in {"site": site_text, "lane": lane_text, "topic": topic_text}[answer["kind"]](answer):
        out(line)


def _site(site: str) -> "SiteAnswer":
    with opened("explain", site) as house:
        return house.services.explaining.site(house.site_id(site), patience())


def _lane(site: str, lane: str) -> "LaneAnswer":
    with opened("explain", site) as house:
        site_id = house.site_id(site)
        try:
            return house.services.explaining.lane(site_id, lane, patience())
        except NotFound as error:
            known = [line.lane for line in house.services.lanes.list(site_id)]
            raise NotFound(unknown("lane", lane, known, f"in site {site!r}")) from error


def _topic(site: str, slug: str) -> "TopicAnswer":
    _, root = project()
    with maybe_opened("explain", site) as house:
        site_id = None if house is None else house.sites().get(site)
        if house is not None and site_id is not None:
            try:
                return house.services.explaining.topic(site_id, slug, patience())
            except NotFound:
                known = [line.slug for line in house.services.reading.topics(site_id)]
        else:
            known = []
        return _only_in_file(root, site, slug, known, house)


def _only_in_file(root: Path, site: str, slug: str, known: Sequence[str], house: House | None) -> "TopicAnswer":
    """What is to be said of a topic that the database does not know. Raises NotFound when the file does not either."""
    from pipeline.project.site import load_site, sites
    from pipeline.project.topics import load_topics
    from pipeline.service.explaining import TopicAnswer
    from pipeline.service.reasons import Reason

    here = sites(root)
    if site not in here and not known:
        raise NotFound(unknown("site", site, {*here, *(house.sites() if house else ())}, "here"))
    found = load_site(root, site) if site in here else None
    rows = {row.slug: row for row in (load_topics(found) if found else ())}
    row = rows.get(slug)
    if row is None:
        raise NotFound(unknown("topic", slug, {*known, *rows}, f"in site {site!r}"))
    assert found is not None
    text = f"it stands in {found.topics} (line {row.line}) only: it was never planned"
    why = Reason("not-planned", text, topic=slug, commands=(f"pipeline run --site {site}",))
    return TopicAnswer(site, slug, row.lane, row.order, 0, None, None, None, None, (), (why,))


def document_of_topic(answer: "TopicAnswer") -> dict[str, Any]:
    """The answer for programs; keys are stable."""
    return {
        "kind": "topic",
        "site": answer.site,
        "topic": answer.topic,
        "lane": answer.lane,
        "position": answer.position,
        "pass": answer.number,
        "job": answer.job,
        "stage": answer.stage,
        "state": answer.state,
        "since": answer.since,
        "live": [{"target": page.target, "path": page.path, "since": page.since} for page in answer.live],
        "reasons": reasons(answer.reasons),
    }


def document_of_lane(answer: "LaneAnswer") -> dict[str, Any]:
    return {
        "kind": "lane",
        "site": answer.site,
        "lane": answer.lane,
        "state": answer.state,
        "on_failed": answer.on_failed,
        "gates": [
            {
                "stage": gate.stage,
                "width": gate.width,
                "passed": gate.passed,
                "used": gate.used,
                "waiting": gate.waiting,
                "head": None if gate.head is None else reason_document(gate.head),
            }
            for gate in answer.gates
        ],
        "unfinished": [{"stage": stage, "state": state, "jobs": jobs} for stage, state, jobs in answer.standing],
        "reasons": reasons(answer.reasons),
    }


def document_of_site(answer: "SiteAnswer") -> dict[str, Any]:
    return {
        "kind": "site",
        "site": answer.site,
        "state": answer.state,
        "workers": workers(answer.hands),
        "unfinished": answer.counts,
        "still": answer.still,
        "lanes": [{"lane": s.lane, "kind": s.kind, "reasons": reasons(s.reasons)} for s in answer.lanes],
        "reasons": reasons(answer.reasons),
    }


def workers(hands: "Iterable[Hand]") -> list[dict[str, Any]]:
    return [
        {"worker": hand.name, "pid": hand.pid, "started_at": hand.started_at, "seen_at": hand.seen_at,
         "site": hand.site, "stages": list(hand.leases)}
        for hand in hands
    ]  # fmt: skip


def reasons(found: "Iterable[Reason]") -> list[dict[str, Any]]:
    return [reason_document(reason) for reason in found]


def reason_document(reason: "Reason") -> dict[str, Any]:
    """A reason for programs: its code and keys are stable, its text is not."""
    return {
        "code": reason.code,
        "text": reason.text,
        "since": reason.since,
        "job": reason.job,
        "topic": reason.topic,
        "details": dict(reason.details),
        "commands": list(reason.commands),
        "because": reasons(reason.because),
    }


def topic_text(answer: dict[str, Any]) -> list[str]:
    place = f"lane {safe(answer['lane'])}, position {answer['position']}"
    if answer["job"] is not None:
        place += f", pass {answer['pass']}, job {answer['job']}"
    name = f"{safe(answer['site'])}/{safe(answer['topic'])}"
    stands = "not planned" if answer["state"] is None else f"{answer['state']} at {safe(answer['stage'])}"
    if answer["state"] is None and answer["pass"]:
        stands = "nothing under way"
    since = f" since {_moment(answer['since'])}" if answer["since"] else ""
    lines = [f"{name}: {stands}{since}", f"  {place}"]
    codes = {reason["code"] for reason in answer["reasons"]}
    if "live" not in codes:
        lines += [f"  live at {safe(page['path'])} all the while" for page in answer["live"]]
    return [*lines, *why(answer["reasons"])]


def lane_text(answer: dict[str, Any]) -> list[str]:
    name = f"{safe(answer['site'])}/{safe(answer['lane'])}"
    skips = ", goes on over what failed" if answer["on_failed"] == "skip" else ""
    lines = [f"lane {name}: {answer['state']}{skips}"]
    for gate in answer["gates"]:
        if gate["width"] is None:
            how = "wide open"
        elif gate["width"] == 1:
            how = f"strict, passed up to {gate['passed']}"
        else:
            how = f"{gate['used']} of {gate['width']} places taken"
        lines.append(f"  gate {safe(gate['stage'])}: {how}, {count(gate['waiting'], 'waits', 'wait')} there")
    for row in answer["unfinished"]:
        lines.append(f"  {row['jobs']} {row['state']} at {safe(row['stage'])}")
    return [*lines, *why(answer["reasons"])]


def site_text(answer: dict[str, Any]) -> list[str]:
    jobs = ", ".join(f"{number} {state}" for state, number in sorted(answer["unfinished"].items())) or "none"
    lines = [f"site {safe(answer['site'])}: {answer['state']}; unfinished jobs: {jobs}"]
    at_work = answer["workers"]
    names = ", ".join(dict.fromkeys(safe(_who(hand["worker"])) for hand in at_work[:5]))
    more = f" and {len(at_work) - 5} more" if len(at_work) > 5 else ""
    lines.append(f"  at work: {names or 'nobody'}{more}")
    lines += why(answer["reasons"])
    for kind, number in answer["still"].items():
        lines.append(f"{count(number, 'lane stands', 'lanes stand')}: {KINDS.get(kind, kind)}")
        shown = [lane for lane in answer["lanes"] if lane["kind"] == kind]
        for lane in shown:
            lines += why(lane["reasons"], prefix=f"{safe(lane['lane'])}: ")
        if number > len(shown):
            lines.append(f"  and {number - len(shown)} more: pipeline lanes list --site {safe(answer['site'])}")
    return lines


def why(found: Sequence[dict[str, Any]], *, prefix: str = "", indent: str = "  ") -> list[str]:
    """Reasons as lines: each with those behind it, then the commands that help, one a line."""
    lines: list[str] = []
    for reason in found:
        lines += folded(f"{prefix}{safe(reason['text'])}", f"{indent}- ")
        for behind in reason["because"]:
            lines += folded(safe(behind["text"]), f"{indent}    ")
        lines += commands(reason["commands"], indent + "    ")
    return lines


def commands(found: Sequence[str], indent: str) -> list[str]:
    return [f"{indent}{'or:' if number else '→'} {safe(command)}" for number, command in enumerate(found)]


def folded(text: str, start: str) -> list[str]:
    """The text after ``start``, folded to fit a terminal; in a pipe it stays one line."""
    if sys.stdout is None or not sys.stdout.isatty():
        return [start + text]
    width = max(shutil.get_terminal_size().columns, 40)
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)


def _who(worker: str) -> str:
    from pipeline.service.reasons import who

    return who(worker)


def _moment(value: Any) -> str:
    return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
