"""What a run would do, for people and as JSON; floor 4."""

from typing import TYPE_CHECKING, Any

from pipeline.cli.render import count, safe, table
from pipeline.cli.status import COLUMNS, by_stage
from pipeline.cli.summary import planned_document, some

if TYPE_CHECKING:
    from pipeline.run import Outlook
    from pipeline.service.preview import Change, LanePlan, Step

FIRST = 10  # of a lane, and of the changes


def text(outlook: "Outlook") -> str:
    """The preview, in the order in which a run would go about it."""
    preview, planned = outlook.preview, outlook.preview.planned
    busy = f", {planned.busy} changed while under way" if planned.busy else ""
    lines = [
        f"{safe(outlook.site)}: {count(preview.topics, 'topic')} in the file, {preview.live} live",
        f"would plan: {planned.new} new, {planned.changed} changed{busy}, {planned.unchanged} unchanged",
    ]
    lines += [f"  {_change(change)}" for change in preview.changes[:FIRST]]
    lines += _more(len(preview.changes))
    rows = by_stage(preview.standing, outlook.stages)
    if any(sum(cells.values()) for cells in rows.values()):
        lines.append("under way now:")
        shown = [(name, *(cells[column] or "·" for column in COLUMNS)) for name, cells in rows.items()]
        lines += [f"  {line}" for line in table(("stage", *COLUMNS), shown, numbers=COLUMNS).splitlines()]
    for lane in preview.lanes:
        lines += _lane(lane, outlook.site)
    if not any(lane.order or lane.again for lane in preview.lanes):
        lines.append("would publish: nothing")
    lines.append(f"would assemble the site: {'yes' if outlook.assembly else 'no'}")
    if planned.absent:
        lines.append(f"note: the file no longer names {some(planned.absent)}; they would stay as they are")
    if planned.closed:
        lines.append(f"note: would be left out, for the lane is closed: {some(planned.closed)}")
    if planned.appended:
        lines.append(f"note: {some(planned.appended)} would go to the end of the lane, not to the file's place")
    lines += [f"note: {safe(note)}" for note in outlook.notes]
    lines.append("nothing was written")
    return "\n".join(lines)


def document(outlook: "Outlook") -> dict[str, Any]:
    """The same for programs, whole; keys are stable."""
    preview = outlook.preview
    return {
        "site": outlook.site,
        "state": preview.state,
        "topics": preview.topics,
        "live": preview.live,
        "planned": planned_document(preview.planned),
        "changes": [{"topic": c.topic, "columns": list(c.columns), "busy": c.busy} for c in preview.changes],
        "stages": [{"stage": name, **cells} for name, cells in by_stage(preview.standing, outlook.stages).items()],
        "lanes": [
            {
                "lane": lane.lane,
                "state": lane.state,
                "strict": lane.strict,
                "order": [_step(step) for step in lane.order],
                "again": list(lane.again),
                "halted": _step(lane.halted) if lane.halted else None,
            }
            for lane in preview.lanes
        ],
        "assembly": outlook.assembly,
        "notes": list(outlook.notes),
    }


def _step(step: "Step") -> dict[str, Any]:
    return {
        "topic": step.topic,
        "position": step.position,
        "what": "new" if step.job is None else "under way",
        "stage": step.stage,
        "state": step.state,
        "job": step.job,
    }


def _change(change: "Change") -> str:
    what = ", ".join(map(safe, change.columns)) or "what its stages add to its row"
    return f"{safe(change.topic)} changed: {what}{' (once the pass under way has ended)' if change.busy else ''}"


def _lane(lane: "LanePlan", site: str) -> list[str]:
    if not lane.order and not lane.again:
        return []
    name = safe(lane.lane)
    if lane.state != "active":
        go_on = f"; go on with: pipeline lanes resume {safe(site)}/{name}" if lane.state == "paused" else ""
        return [f"lane {name} is {lane.state}: nothing of {count(len(lane.order) + len(lane.again), 'page')}{go_on}"]
    lines = []
    if lane.order:
        how = "in this order" if lane.strict else "in any order"
        lines.append(f"lane {name}: would publish {count(len(lane.order), 'page')}, {how}:")
        halted = lane.halted
        if halted is not None:
            at = f"{safe(halted.topic)} {_standing(halted)} (job {halted.job})"
            lines[-1] = f"lane {name}: stands at {at}; nothing behind it is published, in this order:"
        width = len(str(lane.order[-1].position))
        for step in lane.order[:FIRST]:
            lines.append(f"  {step.position:>{width}}  {safe(step.topic)}  {_standing(step) if step.job else 'new'}")
        lines += _more(len(lane.order))
    if lane.again:
        lines.append(f"lane {name}: would publish again, as each is ready: {some(lane.again)}")
    return lines


def _standing(step: "Step") -> str:
    held = f" (held: {safe(step.hold)})" if step.hold is not None else ""
    return f"is {step.state} at {safe(step.stage)}{held}"


def _more(total: int) -> list[str]:
    return [f"  and {total - FIRST} more"] if total > FIRST else []
