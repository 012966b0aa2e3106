"""What a lane has otherwise than its stages, and how wide a stage is: changed while work goes on; floor 2.

A change takes effect with the next claim. The lane rows come first, then all of their gates; nobody comes to a gate, or
leaves one, while its width is another's to decide.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, update

from pipeline.errors import NotFound, Refused
from pipeline.service.base import Service
from pipeline.service.lanes import note
from pipeline.sql import gates, lanes as lane_rows, plan, sites, widths
from pipeline.sql.batch import bound
from pipeline.sql.tables import lanes
from pipeline.states import StageState

KEYS = ("width", "lease_seconds", "deadline_seconds", "max_attempts")
"""What a lane may have otherwise than a stage. A width of None is no limit."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What was set, and how many idle jobs were judged anew by it."""

    name: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    jobs: int


@dataclass(frozen=True, slots=True)
class _Gate:
    """One lane at the stage whose width changes; ``id`` is None where the stage was never limited."""

    lane_id: int
    lane: str
    state: str
    id: int | None
    width: int | None


class Widths(Service):
    """How lanes and stages are set."""

    def on_failed(
        self, site_id: int, lane: str, policy: str, *, actor: str, reason: str = "", dry_run: bool = False
    ) -> Changed:
        """Let the lane halt at what failed, or skip it and go on. Counts for what fails from now on."""

        def body(connection: Connection) -> Changed:
            row = _locked(connection, site_id, lane)
            # Its gates as well: who fails just now has looked at the lane under them.
            connection.execute(lane_rows.lock_gates(), bound(site_id=site_id, lane_id=row.id)).all()
            connection.execute(update(lanes).where(lanes.c.id == row.id).values(on_failed=policy))
            before, after = {"on_failed": row.on_failed}, {"on_failed": policy}
            details = {"before": before, "after": after}
            note(connection, "set", actor, reason, site_id=site_id, lane_id=row.id, details=details)
            return Changed(lane, before, after, 0)

        return self._write(body, dry_run=dry_run)

    def of_lane(
        self,
        site_id: int,
        lane: str,
        stage: str,
        changes: Mapping[str, Any],
        *,
        default: Sequence[str] = (),
        actor: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> Changed:
        """Let a lane have ``changes`` (of ``KEYS``) at a stage, and no longer what is named in ``default``.

        A lease counts from the next claim on, attempts for what arrives. Raises Refused when a width cannot be changed
        now, with who is in the way.
        """

        def body(connection: Connection) -> Changed:
            row = _locked(connection, site_id, lane)
            known = _stage(connection, site_id, stage)
            locked = connection.execute(lane_rows.lock_gates(), bound(site_id=site_id, lane_id=row.id)).scalars().all()
            before = dict(row.overrides.get(stage, {}))
            after = {key: value for key, value in {**before, **changes}.items() if key not in default}
            overrides = {**row.overrides, stage: after}
            if not after:
                del overrides[stage]
            connection.execute(widths.set_overrides(), bound(lane_id=row.id, overrides=overrides))
            jobs = 0
            if "width" in changes or "width" in default:
                found = connection.execute(widths.of_lane(), bound(lane_id=row.id, stage=stage))
                width = after.get("width", known.width)
                jobs = self._change(connection, site_id, stage, width, [_Gate(*r) for r in found], locked)
            details = {"stage": stage, "before": before, "after": after}
            note(connection, "set", actor, reason, site_id=site_id, lane_id=row.id, details=details)
            return Changed(lane, before, after, jobs)

        return self._write(body, dry_run=dry_run)

    def of_stage(
        self, site_id: int, stage: str, width: int | None, *, actor: str, reason: str = "", dry_run: bool = False
    ) -> Changed:
        """Change the width of a stage in all lanes of a site that have none of their own; None is no limit."""

        def body(connection: Connection) -> Changed:
            known = _stage(connection, site_id, stage)
            connection.execute(widths.set_stage(), bound(site_id=site_id, stage=stage, width=width))
            connection.execute(plan.lock_lanes(), bound(site_id=site_id)).all()
            locked = connection.execute(sites.lock_gates(), bound(site_id=site_id)).scalars().all()
            found = [_Gate(*r) for r in connection.execute(widths.of_stage(), bound(site_id=site_id, stage=stage))]
            jobs = self._change(connection, site_id, stage, width, found, locked)
            before, after = {"width": known.width}, {"width": width}
            details = {"stage": stage, "before": before, "after": after}
            note(connection, "set", actor, reason, site_id=site_id, details=details)
            return Changed(stage, before, after, jobs)

        return self._write(body, dry_run=dry_run)

    def _change(
        self,
        connection: Connection,
        site_id: int,
        stage: str,
        width: int | None,
        found: Sequence[_Gate],
        locked: Sequence[int],
    ) -> int:
        """Set the width of the gates found; their lanes and all gates of those are locked. How many jobs it moved."""
        found = [g for g in found if g.width != width]
        closing = [g for g in found if g.width is None]
        for gate in closing:
            self._empty(connection, site_id, stage, gate)
        ids = [g.id for g in found if g.id is not None]
        if closing:
            made = connection.execute(plan.put_gates(), bound(site_id=site_id)).scalars().all()
            ids, locked = [*ids, *made], [*locked, *made]
        at = {"gates": ids}
        moved = set(connection.execute(widths.demote(), at).scalars())
        self._refuse_overlap(connection, stage, width, found, at)
        connection.execute(widths.set_width(self._clock), {**at, **bound(width=width)})
        connection.execute(widths.let_go(), at)
        connection.execute(gates.move_passed(), at)
        moved |= set(connection.execute(widths.arrive_anew(self._clock), at).scalars())
        for gate in closing:
            if gate.state == "active":
                connection.execute(lane_rows.free(self._clock), bound(site_id=site_id, lane_id=gate.lane_id)).all()
        moved |= {row.id for row in self._give_turns(connection, locked)}
        return len(moved)

    def _empty(self, connection: Connection, site_id: int, stage: str, gate: _Gate) -> None:
        """Nobody may be on the way to a gate that is made: take all turns of the lane, and see that none runs."""
        at = bound(site_id=site_id, lane_id=gate.lane_id)
        rests = gate.state != "active" or connection.execute(sites.state(), at).one().state != "active"
        if not rests:
            raise Refused(
                f"lane {gate.lane!r} has no limit at stage {stage!r} and is at work; a limit is set while it rests:"
                " pause the lane, or the site, first: pipeline lanes pause SITE/LANE"
            )
        connection.execute(lane_rows.demote(), at).all()  # waits for claims that are open
        if running := connection.execute(lane_rows.running(), at).scalar_one():
            raise Refused(
                f"lane {gate.lane!r} has no limit at stage {stage!r}, and {running} of its jobs"
                f" {'is' if running == 1 else 'are'} still running; set it when they have ended: pipeline status"
            )

    def _refuse_overlap(
        self, connection: Connection, stage: str, width: int | None, found: Sequence[_Gate], at: Mapping[str, Any]
    ) -> None:
        """Raise Refused while a lane that would become strict has more than one running there."""
        if width != 1:
            return
        rows = connection.execute(widths.reserved(), at).all()
        running = Counter(row.lane_id for row in rows)
        for gate in found:
            if running[gate.lane_id] > 1:
                which = ", ".join(str(row.id) for row in rows if row.lane_id == gate.lane_id)
                raise Refused(
                    f"lane {gate.lane!r}: jobs {which} run at stage {stage!r} at once; it can become strict when at"
                    " most one does: pause the lane and try again when they have ended: pipeline lanes pause SITE/LANE"
                )


def _locked(connection: Connection, site_id: int, lane: str) -> Any:
    row = connection.execute(lane_rows.lock(), bound(site_id=site_id, name=lane)).one_or_none()
    if row is None:
        raise NotFound(f"no lane {lane!r} in this site; see: pipeline lanes list --site SITE")
    return row


def _stage(connection: Connection, site_id: int, stage: str) -> Any:
    """The stage's row. Raises NotFound, and Refused for one that was retired."""
    rows = connection.execute(plan.known_stages(), bound(site_id=site_id)).all()
    row = next((r for r in rows if r.name == stage), None)
    if row is None:
        names = ", ".join(r.name for r in rows) or "none yet"
        raise NotFound(f"no stage {stage!r} in this site; there is: {names}")
    if row.state == StageState.RETIRED:
        raise Refused(f"stage {stage!r} was retired; bring it back first: pipeline stages restore {stage} --site SITE")
    return row
