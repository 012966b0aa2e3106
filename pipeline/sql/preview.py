"""What a run would find, asked without a lock; floor 1."""

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Select, bindparam, exists, func, select

from pipeline.sql.batch import ONE, not_over
from pipeline.sql.tables import gates, jobs, lanes, topics

SITE = bindparam("p_site_id", type_=BigInteger)


@cache
def lanes_as_they_are() -> Select[Any]:
    """``(name, state, next_position)`` of a site's lanes, in the order in which they were made."""
    return (
        select(lanes.c.name, lanes.c.state, lanes.c.next_position).where(lanes.c.site_id == SITE).order_by(lanes.c.id)
    )


@cache
def texts() -> Select[Any]:
    """``(slug, title, type, brief)`` of the topics in ``ids``."""
    return select(topics.c.slug, topics.c.title, topics.c.type, topics.c.brief).where(
        topics.c.id == func.any(bindparam("p_ids"))
    )


@cache
def under_way() -> Select[Any]:
    """The unfinished passes of a site by lane and position; ``owes``: it has yet to take its turn at a strict gate."""
    owes = exists().where(
        gates.c.lane_id == jobs.c.lane_id,
        gates.c.width == ONE,
        gates.c.passed < jobs.c.position,
        gates.c.ordinal > jobs.c.cleared,
    )
    return (
        select(
            jobs.c.id,
            lanes.c.name.label("lane"),
            topics.c.slug,
            jobs.c.position,
            jobs.c.stage,
            jobs.c.state,
            jobs.c.hold,
            owes.label("owes"),
        )
        .select_from(jobs.join(topics, topics.c.id == jobs.c.topic_id).join(lanes, lanes.c.id == jobs.c.lane_id))
        .where(jobs.c.site_id == SITE, not_over(jobs))
        .order_by(lanes.c.id, jobs.c.position)
    )
