"""What a person's verb does to jobs: written under the state that was seen, and noted as an event; floor 1."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, FromClause, Text, bindparam, insert, select, update
from sqlalchemy.sql.selectable import CTE

from pipeline.sql.batch import word
from pipeline.sql.tables import events, jobs


def written(decided: CTE, columns: Collection[str]) -> CTE:
    """Write ``new_<column>`` of what was decided into the jobs that are still in the state that it saw."""
    return (
        update(jobs)
        .where(jobs.c.id == decided.c.id, jobs.c.state == decided.c.state)
        .values({jobs.c[key]: decided.c[f"new_{key}"] for key in columns})
        .returning(jobs.c.id, jobs.c.state, jobs.c.stage)
        .cte("written")
    )


def noted(verb: str, decided: CTE, ours: FromClause, after: CTE, reason: ColumnElement[str] | None = None) -> CTE:
    """Note an event for each of ``ours``, with the states before and after, by ``actor``; the ids of the jobs."""
    why = bindparam("p_reason", type_=Text) if reason is None else reason
    row = {
        "site_id": decided.c.site_id,
        "lane_id": decided.c.lane_id,
        "job_id": decided.c.id,
        "verb": word(verb),
        "from_state": decided.c.state,
        "to_state": after.c.state,
        "actor": bindparam("p_actor", type_=Text),
        "reason": why,
    }
    rows = insert(events).from_select(list(row), select(*row.values()).select_from(ours))
    return rows.returning(events.c.job_id).cte("noted")
