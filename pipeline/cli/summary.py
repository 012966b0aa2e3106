"""What came of a run, for people and as JSON; floor 4."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cli.render import columns, count, safe
from pipeline.cli.status import by_stage
from pipeline.states import JobState

if TYPE_CHECKING:
    from pipeline.run import Report
    from pipeline.service.reading import Standing, Trouble
    from pipeline.views import Planned

NAMED = 5  # topics in a note


def text(report: "Report", here: Path, now: datetime) -> str:
    """The summary that ends a run."""
    planned, status = report.planned, report.status
    lines = [
        f"{safe(report.site)}: {status.live} of {count(status.topics, 'topic')} live",
        f"planned: {planned.new} new, {planned.changed} changed, {planned.unchanged} unchanged",
        f"worked: {count(report.passes, 'pass', 'passes')} ended in {report.seconds:.1f} s",
        f"result: {safe(_from(report.output, here))}",
    ]
    if planned.busy:
        lines.append(f"changed while under way: {count(planned.busy, 'topic')}; planned again when that pass has ended")
    lines += _troubles(report)
    lines += _waits(report, now)
    if planned.absent:
        lines.append(f"note: the file no longer names {some(planned.absent)}; they stay as they are")
    if planned.closed:
        lines.append(f"note: left out, for the lane is closed: {some(planned.closed)}")
    if planned.appended:
        lines.append(
            f"note: {some(planned.appended)} came late, and went to the end of the lane, not to the file's place; to"
            f" move one: pipeline topics move {safe(report.site)}/{safe(planned.appended[0])} --before SLUG"
        )
    lines += [f"note: {safe(note)}" for note in report.notes]
    return "\n".join(lines)


def document(report: "Report") -> dict[str, Any]:
    """The same for programs; keys are stable."""
    planned, status = report.planned, report.status
    return {
        "site": report.site,
        "exit_code": report.exit_code,
        "seconds": round(report.seconds, 3),
        "output": str(report.output),
        "embedded": report.embedded,
        "planned": planned_document(planned),
        "topics": status.topics,
        "live": status.live,
        "passes": report.passes,
        "stages": [{"stage": name, **cells} for name, cells in by_stage(status.standing, report.stages).items()],
        "troubles": [
            {"job": columns(t.job), "waiting_behind": t.waiting, "commands": commands(t, report)}
            for t in report.troubles
        ],
        "later": [
            {"stage": s.stage, "jobs": s.count - s.due, "seconds": round(s.next_seconds, 3)}
            for s in status.standing
            if s.next_seconds is not None
        ],
        "notes": list(report.notes),
    }


def planned_document(planned: "Planned") -> dict[str, Any]:
    return {
        "new": planned.new,
        "changed": planned.changed,
        "unchanged": planned.unchanged,
        "busy": planned.busy,
        "absent": list(planned.absent),
        "appended": list(planned.appended),
        "closed": list(planned.closed),
    }


def commands(trouble: "Trouble", report: "Report") -> list[str]:
    """What helps: try again, from the first stage if its draft was rejected, or go on without it."""
    job = trouble.job
    again = f" --stage {report.stages[0]}" if job.error_class == "rejected" and report.stages else ""
    return [f"pipeline jobs requeue {job.id}{again}", f"pipeline jobs skip {job.id}"]


def _troubles(report: "Report") -> list[str]:
    if not report.troubles:
        return []
    total = sum(sum(cells[name] for name in ("failed", "repair", "cancelled")) for cells in _cells(report))
    lines = [f"needs a person: {count(total, 'job')}"]
    for trouble in report.troubles:
        job = trouble.job
        what = f"{job.lane}/{job.topic}" if job.topic else "the site's own job"
        behind = f"; {count(trouble.waiting, 'waits', 'wait')} behind it" if trouble.waiting else ""
        lines.append(f"  job {job.id}: {safe(what)} is {job.state} at {safe(job.stage)}{behind}")
        error = safe(job.error or job.error_class or "")
        if error:
            lines.append(f"    {'rejected, ' if job.error_class == 'rejected' else ''}{error}")
        lines.append(f"    {'   or   '.join(commands(trouble, report))}")
    if total > len(report.troubles):
        site = safe(report.site)
        lines.append(f"  and {total - len(report.troubles)} more: pipeline jobs list --site {site}")
    return lines


def _waits(report: "Report", now: datetime) -> list[str]:
    lines = []
    for s in report.status.standing:
        if s.next_seconds is not None:
            lines.append(f"waits: {count(s.count - s.due, 'job')} at {safe(s.stage)}, {_until(s, now)}")
    if lines:
        lines.append(f"  run the same command again then, or let it wait longer: --wait {_patience(report)}")
    for s in report.status.standing:
        if s.state is JobState.WAITING:
            lines.append(f"waits: {count(s.count, 'job')} at {safe(s.stage)} for their turn")
    return lines


def _cells(report: "Report") -> list[dict[str, int]]:
    return list(by_stage(report.status.standing, report.stages).values())


def _until(standing: "Standing", now: datetime) -> str:
    assert standing.next_seconds is not None
    at = now + timedelta(seconds=standing.next_seconds)
    form = "%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S"
    return f"until {at:{form}}" if standing.count - standing.due == 1 else f"the first until {at:{form}}"


def _patience(report: "Report") -> int:
    return int(max(s.next_seconds or 0 for s in report.status.standing)) + 60


def some(slugs: tuple[str, ...]) -> str:
    """The first few names."""
    rest = f" and {len(slugs) - NAMED} more" if len(slugs) > NAMED else ""
    return ", ".join(map(safe, slugs[:NAMED])) + rest


def _from(path: Path, here: Path) -> str:
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
