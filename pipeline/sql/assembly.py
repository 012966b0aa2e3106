"""A site's own job, the assembly: what is live has changed, and up to which change the site was built; floor 1.

A page's end locks the site's row as its last lock, an assembly's end as its first; both before they look whether the
other left something to do.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    Interval,
    Select,
    Text,
    bindparam,
    case,
    false,
    func,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from pipeline.clock import Clock
from pipeline.sql.batch import ONE, SECOND, word
from pipeline.sql.tables import attempts, jobs, sites
from pipeline.states import ASSEMBLE, JobState as S

SITE = bindparam("p_site_id", type_=BigInteger)
LONGEST = literal_column("interval '10 minutes'", Interval)


@cache
def lock_sites() -> Select[int]:
    """Lock the rows of ``site_ids``, in id order."""
    return (
        select(sites.c.id)
        .where(sites.c.id == func.any(bindparam("p_site_ids")))
        .order_by(sites.c.id)
        .with_for_update(key_share=True)
    )


@cache
def raise_changed() -> ReturningUpdate[Any]:
    """Note that what is live on the ``site_ids`` may have changed. The last lock that a transaction takes."""
    ids = func.any(bindparam("p_site_ids"))
    return update(sites).where(sites.c.id == ids).values(changed=sites.c.changed + ONE).returning(sites.c.id)


@cache
def behind() -> Select[int]:
    """Those of the ``site_ids`` that changed after the value to which they were built; locked."""
    return (
        select(sites.c.id)
        .where(sites.c.id == func.any(bindparam("p_site_ids")), sites.c.changed > sites.c.built)
        .order_by(sites.c.id)
        .with_for_update(key_share=True)
    )


@cache
def built() -> Any:
    """Note up to which change the site was assembled, and from what."""
    return (
        update(sites)
        .where(sites.c.id == SITE)
        .values(
            built=func.least(func.greatest(sites.c.built, bindparam("p_built", type_=BigInteger)), sites.c.changed),
            fingerprint=bindparam("p_fingerprint", type_=Text),
        )
    )


@cache
def add_assembly(clock: Clock) -> ReturningInsert[Any]:
    """One assembly for each of the ``site_ids`` that has none unfinished, due after ``delay_seconds``, or after four
    times as long as the last one took: so it takes a fifth of the time at most, however large the site.

    The sites' rows are locked, so that an assembly that ends just now is seen as ended.
    """
    last, took = jobs.alias("last"), attempts.alias("took")
    newest = select(func.max(last.c.id)).where(last.c.site_id == sites.c.id, last.c.topic_id.is_(None)).correlate(sites)
    long = (
        select(func.max(took.c.ended_at - took.c.reserved_at).op("*", return_type=Interval())(literal_column("4")))
        .where(took.c.job_id == newest.scalar_subquery(), took.c.outcome == word("done"))
        .correlate(sites)
    )
    seconds = bindparam("p_delay_seconds", type_=Integer)
    asked = seconds * SECOND
    longer = func.least(func.coalesce(long.scalar_subquery(), asked), LONGEST)
    delay = case((seconds > 0, func.greatest(asked, longer)), else_=asked)
    rows = select(
        sites.c.id,
        literal_column(f"'{ASSEMBLE}'", Text),
        word(S.PENDING),
        bindparam("p_max_attempts", type_=Integer),
        clock.stored() + delay,
        null(),
        false(),
    ).where(sites.c.id == func.any(bindparam("p_site_ids")))
    return (
        upsert(jobs)
        .from_select(["site_id", "stage", "state", "max_attempts", "run_at", "hold", "cancel_requested"], rows)
        .on_conflict_do_nothing()
        .returning(jobs.c.id)
    )
