"""How each site stands, as a doctor sees it: idle, working, blocked and by what, overdue; floor 2."""

from typing import Any

from pipeline.service.base import Service
from pipeline.service.health import Check, age
from pipeline.service.order import UPKEEP
from pipeline.sql import health, sites
from pipeline.sql.batch import bound

OVERDUE = 60.0  # seconds
SHOWN = 5


class Condition(Service):
    """Looks at sites; writes nothing."""

    def site(self, site_id: int, slug: str) -> list[Check]:
        """How a site stands: idle, working, blocked and by what, overdue."""
        at = bound(site_id=site_id, limit=SHOWN, actor=UPKEEP)
        with self._reading() as connection:
            row_of_site = connection.execute(sites.state(), at).one_or_none()
            row = connection.execute(health.standing(self._clock), at).one()
            halts = connection.execute(health.halts(), at).all()
            resting = connection.execute(health.resting(), at).all()
            healed = connection.execute(health.healed(self._clock), at).one()
        section, paused = f"site {slug}", row_of_site is not None and row_of_site.state == "paused"
        found = [_work(section, slug, row, paused=paused)]
        if row.over:
            found.append(
                Check.warning(
                    section,
                    "overdue",
                    f"{row.over} reserved with leases over for up to {age(row.over_seconds)}: nobody took them back",
                    f"any worker does: pipeline run --site {slug}",
                )
            )
        if paused and row.unfinished:
            found.append(Check.warning(section, "blocked", "the site is paused", f"pipeline sites resume {slug}"))
        for one in resting:
            verb = "open" if one.state == "closed" else "resume"
            place = f"{one.name} --site {slug}" if one.kind == "stage" else f"{slug}/{one.name}"
            found.append(
                Check.warning(
                    section, "blocked", f"{one.kind} {one.name} is {one.state}", f"pipeline {one.kind}s {verb} {place}"
                )
            )
        for halt in halts:
            where = "the assembly" if halt.lane is None else f"position {halt.position} of lane {halt.lane}"
            behind = f"; {halt.waiting} wait behind it" if halt.waiting else ""
            found.append(
                Check.warning(
                    section,
                    "blocked",
                    f"job {halt.id}, {where}, is {halt.state} at {halt.stage}{behind}",
                    f"pipeline jobs requeue {halt.id}, or give it up: pipeline jobs skip {halt.id}",
                    (dict(halt._mapping),),
                )
            )
        if row.halted > len(halts):
            more = f"{row.halted - len(halts)} more need a person"
            found.append(Check.warning(section, "blocked", more, f"pipeline explain {slug}"))
        if row.held:
            found.append(
                Check.warning(
                    section,
                    "blocked",
                    f"{row.held} on hold, for a person to approve",
                    f"pipeline jobs list --site {slug} --state waiting",
                )
            )
        if healed.healed:
            found.append(
                Check.warning(
                    section,
                    "healed",
                    f"upkeep promoted {healed.healed} in a week, last at {healed.last:%Y-%m-%d %H:%M}",
                    "right after plans in callers' own transactions; else report it",
                )
            )
        return found


def _work(section: str, slug: str, row: Any, *, paused: bool) -> Check:
    """Whether anything moves."""
    later = f"{row.later} later, the next in {age(row.next_seconds)}" if row.later else ""
    if row.running:
        more = "".join(f", {part}" for part in (f"{row.due} ready" if row.due else "", later) if part)
        return Check.ok(section, "working", f"{row.running} running{more}")
    if row.due and not paused and row.due_seconds > OVERDUE:
        return Check.warning(
            section,
            "overdue",
            f"{row.due} due for up to {age(row.due_seconds)}, and nobody works",
            f"pipeline run --site {slug}, or keep one at it: pipeline worker",
        )
    if row.due and not paused:
        return Check.ok(section, "idle", f"{row.due} ready")
    if row.later:
        return Check.ok(section, "idle", later)
    return Check.ok(section, "idle", "nothing is due" if row.unfinished else "nothing to do")
