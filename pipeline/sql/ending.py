"""How a reservation ends: the shape that all of a worker's verbs share; floor 1.

One statement locks the rows that the caller still holds, decides their next state, writes it under the full guard, and
writes the attempt row: whoever takes a token away records it, in the same breath. Rows whose gates the transaction has
not locked are left alone (``sql/gates.py`` says why gates come first); the caller tells those from lost ones after.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Float,
    FromClause,
    Integer,
    Select,
    Text,
    Uuid,
    and_,
    case,
    cast,
    false,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.selectable import CTE, TableValuedAlias

from pipeline.clock import Clock
from pipeline.sql.batch import GATES, ONE, table, word
from pipeline.sql.tables import attempts, gates, jobs, lanes, stages, topics
from pipeline.states import JobState as S

NOBODY: dict[str, Any] = {
    "token": null(),
    "fence": null(),
    "reserved_by": null(),
    "reserved_at": null(),
    "lease_expires_at": null(),
}
"""What a job that is not reserved has of a reservation."""

NO_GATE: dict[str, Any] = {"gate_id": null(), "slot": null()}


def said() -> TableValuedAlias:
    """The batch parameter ``acks``: what a worker says of the jobs that it holds."""
    return table(
        "acks",
        job_id=BigInteger,
        token=Uuid(),
        delay_seconds=Float,
        to_stage=Text,
        hold=Text,
        error_class=Text,
        error=Text,
        metrics=JSONB,
        made_from=Text,
    )


def held(
    acks: TableValuedAlias, *, expired_by: ColumnElement[datetime] | None = None, skip_locked: bool = False
) -> CTE:
    """The rows that the caller still holds, locked in id order, as they were, with what the caller says of them.

    Found by their keys: only what is reserved has a token. By their state, the index of all that is reserved would be
    walked, and the dead entries in it that a pinned snapshot keeps.
    With ``expired_by`` only those whose lease is over then; a volatile time is judged again once the row is locked.
    """
    j = jobs.alias("j")
    words = [c.label(f"said_{c.key}") for c in acks.c if c.key not in ("job_id", "token")]
    gate_is_ours = or_(j.c.gate_id.is_(None), j.c.gate_id == func.any(GATES))
    return (
        select(*j.c, *words)
        .select_from(j.join(acks, (acks.c.job_id == j.c.id) & (acks.c.token == j.c.token)))
        .where(
            gate_is_ours,
            true() if expired_by is None else j.c.lease_expires_at <= expired_by,
        )
        .order_by(j.c.id)
        .with_for_update(key_share=True, of=j, skip_locked=skip_locked)
        .cte("held")
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """What the rule of arrival says of a job on its way to a stage with this gate (or none)."""

    state: ColumnElement[str]
    gate_id: ColumnElement[int]
    allowed: ColumnElement[bool]  # the gate, if there is one, is among those that the transaction locked


def gate_at(job: FromClause, stage: FromClause) -> FromClause:
    """The gate of the job's lane at this stage, if there is one."""
    gate = gates.alias("gate")
    # LIMIT keeps it to this one: while there are few lanes, the planner would read the gates of all for each job.
    return (
        select(gate)
        .where(gate.c.lane_id == job.c.lane_id, gate.c.stage == stage.c.name)
        .limit(ONE)
        .correlate(job, stage)
        .lateral("gate")
    )


def arrive(gate: FromClause, position: ColumnElement[int], cleared: ColumnElement[int]) -> Arrival:
    """The rule of arrival, under the gate's lock.

    At a strict gate a job takes a turn if and only if its position lies beyond ``passed`` and it was not released from
    there before; else it arrives pending without a gate. At a gate of width k every pass takes a slot, at one that is
    wide open none.
    """
    ahead = and_(position > gate.c.passed, cleared < gate.c.ordinal)
    turn = and_(gate.c.width.is_not(None), or_(gate.c.width > ONE, ahead))  # no gate, or one that is wide open: none
    return Arrival(
        state=case((turn, word(S.WAITING)), else_=word(S.PENDING)),
        gate_id=case((turn, gate.c.id)),
        allowed=or_(gate.c.id.is_(None), gate.c.id == func.any(GATES)),
    )


def override(lane: FromClause, stage: ColumnElement[str], key: str) -> ColumnElement[Any]:
    """What a lane says of a stage under ``key``, as text; NULL where it says nothing."""
    return lane.c.overrides.op("->")(stage).op("->>")(literal_column(f"'{key}'", Text))


def permitted(job: FromClause, stage: FromClause) -> ColumnElement[int]:
    """How many attempts a job arriving at this stage is given: what its lane says, else the stage."""
    lane = lanes.alias("lane")
    own = select(cast(override(lane, stage.c.name, "max_attempts"), Integer)).where(lane.c.id == job.c.lane_id)
    return func.coalesce(own.correlate(job, stage).scalar_subquery(), stage.c.max_attempts)


def here_and_next(job: FromClause) -> tuple[FromClause, FromClause, ColumnElement[bool], ColumnElement[bool]]:
    """The rows of ``stages`` for the stage of a job and the one after it, with the conditions that join them."""
    here, following, later = stages.alias("here"), stages.alias("following"), stages.alias("later")
    nearest = (
        select(func.min(later.c.ordinal))
        .where(
            later.c.site_id == job.c.site_id,
            later.c.ordinal > here.c.ordinal,
            later.c.state != word("retired"),
        )
        .correlate(job, here)
        .scalar_subquery()
    )
    return (
        here,
        following,
        and_(here.c.site_id == job.c.site_id, here.c.name == job.c.stage),
        and_(following.c.site_id == job.c.site_id, following.c.ordinal == nearest),
    )


def reservation(decided: CTE, ended_at: ColumnElement[datetime]) -> dict[str, Any]:
    """What an attempt's row tells of the reservation that ends: whose it was, where, from when to when."""
    return {
        "fence": decided.c.fence,
        "job_id": decided.c.id,
        "stage": decided.c.stage,
        "round": decided.c.round,
        "token": decided.c.token,
        "worker": decided.c.reserved_by,
        "reserved_at": decided.c.reserved_at,
        "ended_at": func.greatest(ended_at, decided.c.reserved_at),  # the server's clock may have been set back
    }


def end(
    job: CTE,
    clock: Clock,
    *,
    outcome: str | ColumnElement[str],
    origin: FromClause | None = None,
    where: ColumnElement[bool] | None = None,
    charged: ColumnElement[bool] | None = None,
    settles: bool = False,
    **new: Any,
) -> Select[Any]:
    """End the reservation of every row of ``job`` (made by ``held``), setting the columns ``new``.

    ``origin`` is ``job`` with what was joined to it. ``settles``: topics learn what their pass was made from, and that
    they were released. A cancel that was asked for wins, except over done. Returns
    ``(id, state, stage, site_id, priority, fence, topic_id, left_stage)`` of the rows written.
    """
    new.setdefault("alone", false())  # it ended, and its worker lives
    label = outcome if isinstance(outcome, ColumnElement) else word(outcome)
    decided = (
        select(
            *job.c,
            label.label("outcome"),
            (true() if charged is None else charged).label("charged"),
            *(cast(value, jobs.c[key].type).label(f"new_{key}") for key, value in new.items()),
        )
        .select_from(job if origin is None else origin)
        .where(true() if where is None else where)
        .cte("decided")
    )
    cancelled = and_(decided.c.cancel_requested, decided.c.new_state != word(S.DONE))
    stop = {"state": word(S.CANCELLED), "gate_id": null(), "slot": null(), "cancel_requested": false()}
    values = {
        key: case((cancelled, stop.get(key, jobs.c[key])), else_=decided.c[f"new_{key}"] if key in new else jobs.c[key])
        for key in {**new, **stop}
    }
    ended_as = case((cancelled, word("cancelled")), else_=decided.c.outcome)
    record = {
        **reservation(decided, clock.stored()),
        "outcome": ended_as,
        "charged": or_(cancelled, decided.c.charged),
        "error_class": decided.c.said_error_class,
        "error": decided.c.said_error,
        "metrics": decided.c.said_metrics,
    }
    # One row carries all that follows from it: a join with what was decided would compare each row of a batch with
    # each other one (measured: four fifths of an acknowledgement of 200).
    written = (
        update(jobs)
        .where(jobs.c.id == decided.c.id, jobs.c.token == decided.c.token)
        .values({jobs.c[key]: value for key, value in {**values, **NOBODY}.items()})
        .returning(
            jobs.c.state.label("new_state"),
            jobs.c.stage.label("new_stage"),
            decided.c.site_id,
            decided.c.priority,
            decided.c.topic_id,
            decided.c.said_made_from.label("made_from"),
            *(value.label(key) for key, value in record.items()),
        )
        .cte("written")
    )
    logged = insert(attempts).from_select(list(record), select(*(written.c[key] for key in record))).cte("logged")
    return (
        select(
            written.c.job_id.label("id"),
            written.c.new_state.label("state"),
            written.c.new_stage.label("stage"),
            written.c.site_id,
            written.c.priority,
            written.c.fence,
            written.c.topic_id,
            written.c.stage.label("left_stage"),
            written.c.outcome,
        )
        .add_cte(logged, *([_settled(written)] if settles else []))
        .order_by(written.c.job_id)
    )


def _settled(written: CTE) -> CTE:
    done = written.c.new_state == word(S.DONE)
    return (
        update(topics)
        .where(
            topics.c.id == written.c.topic_id,
            written.c.outcome == word("done"),
            or_(written.c.made_from.is_not(None), done),
        )
        .values(made_from=func.coalesce(written.c.made_from, topics.c.made_from), released=or_(topics.c.released, done))
        .cte("settled")
    )
