"""Gates: lock, move ``passed``, promote; floor 1.

Each is a statement of its own, in one READ COMMITTED transaction, in this order with the write in between. Folded into
one, both sides of a race would promote nothing with their old snapshots, and the lane would stand for ever.
"""

from functools import cache

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Text,
    TextClause,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    null,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate, Update

from pipeline.clock import Clock
from pipeline.sql.batch import GATES, ONE, word
from pipeline.sql.tables import gates, jobs, lanes
from pipeline.states import JobState as S

HIGHEST = literal_column("9223372036854775807", BigInteger)
NOWHERE = literal_column("0", BigInteger)  # before all positions


def blocker(gate: FromClause) -> ColumnElement[int]:
    """The lowest position that still owes this strict gate its turn, in whatever stage or state.

    O(1), since ``passed`` has absorbed all that is behind.
    """
    b = jobs.alias("b")
    # By its states: said by its end, this was a way to the index of all that is unfinished, and for each lane the
    # planner walked that whole, with the dead entries that a pinned snapshot keeps there.
    over = b.c.state.in_([word(S.DONE), word(S.SKIPPED)])
    return (
        select(b.c.position)
        .where(
            b.c.lane_id == gate.c.lane_id,
            b.c.position > gate.c.passed,
            b.c.cleared < gate.c.ordinal,
            ~over,
        )
        .order_by(b.c.position)
        .limit(ONE)
        .correlate(gate)
        .scalar_subquery()
    )


def used(gate: FromClause) -> ColumnElement[int]:
    """How many jobs hold a slot of this gate."""
    u = jobs.alias("u")
    return (
        select(func.count())
        .select_from(u)
        .where(u.c.gate_id == gate.c.id, u.c.slot.is_not(None))
        .correlate(gate)
        .scalar_subquery()
    )


@cache
def lock(*, wait: bool) -> Select[int]:
    """Lock the gates named, in id order; without ``wait`` only those that are free. Returns the ids locked."""
    return (
        select(gates.c.id)
        .where(gates.c.id == func.any(GATES))
        .order_by(gates.c.id)
        .with_for_update(key_share=True, skip_locked=not wait)
    )


def demoted(job: FromClause, *where: ColumnElement[bool]) -> ReturningUpdate[int]:
    """Let those of ``job`` (an alias of jobs) that are pending wait, and give their slots back; places stay.

    Returns their ids. Waits for claims that are open: what those took is reserved, and finishes.
    """
    chosen = (
        select(job.c.id)
        .where(*where, job.c.state == word(S.PENDING))
        .order_by(job.c.id)
        .with_for_update(key_share=True, of=job)
        .cte("chosen")
    )
    return (
        update(jobs)
        .where(jobs.c.id == chosen.c.id, jobs.c.state == word(S.PENDING))
        .values(state=word(S.WAITING), slot=null())
        .returning(jobs.c.id)
    )


@cache
def hurry() -> TextClause:
    """Wait for no lock longer than a moment, in this transaction: whoever has it may have stopped for good."""
    return text("SET LOCAL lock_timeout = '500ms'")


@cache
def move_passed() -> Update:
    """Raise ``passed`` of the locked strict gates to the greatest existing position below the blocker.

    Runs after the write and before promote.
    """
    x, j = gates.alias("x"), jobs.alias("j")
    reached = (
        select(j.c.position)
        .where(
            j.c.lane_id == x.c.lane_id,
            j.c.position > x.c.passed,
            j.c.position < func.coalesce(blocker(x), HIGHEST),
        )
        .order_by(j.c.position.desc())
        .limit(ONE)
        .correlate(x)
        .scalar_subquery()
    )
    moved = (
        select(x.c.id, reached.label("position"))
        .where(x.c.id == func.any(GATES), x.c.width == ONE)
        .cte("moved")
        .prefix_with("MATERIALIZED")  # or it is looked for twice: to compare it, and to set it
    )
    return (
        update(gates).where(gates.c.id == moved.c.id, moved.c.position > gates.c.passed).values(passed=moved.c.position)
    )


@cache
def promote(clock: Clock) -> ReturningUpdate[int]:
    """Give free slots of the locked gates to those whose turn it is; returns ``(id, site_id, stage, priority)``.

    Strict: only the head, only if it stands here and is not held. Width k: the lowest positions.
    """
    x, w, o = gates.alias("x"), jobs.alias("w"), jobs.alias("o")
    head = case((x.c.width == ONE, func.coalesce(blocker(x), NOWHERE)), else_=NOWHERE)
    room = (
        select(x.c.id, x.c.lane_id, x.c.width, head.label("head"))
        .where(x.c.id == func.any(GATES), x.c.width.is_not(None))
        .cte("room")
        .prefix_with("MATERIALIZED")  # else the head is looked for twice
    )
    ready = (
        select(w.c.id, w.c.position)
        .where(
            w.c.gate_id == room.c.id,
            w.c.state == word(S.WAITING),
            w.c.hold.is_(None),
            # So said, it leads to one place in the index, and not to all that ever waited here.
            w.c.position.between(room.c.head, case((room.c.width == ONE, room.c.head), else_=HIGHEST)),
        )
        .order_by(w.c.position)
        .limit(room.c.width)
        .correlate(room)
        .lateral("ready")
    )
    turns = (
        select(
            room.c.id.label("gate_id"),
            room.c.lane_id,
            room.c.width,
            ready.c.id,
            func.row_number().over(partition_by=room.c.id, order_by=ready.c.position).label("n"),
        )
        .select_from(room.join(ready, true()))
        .cte("turns")
    )
    # Asked only where somebody waits, and once: a pinned snapshot keeps an entry of each that ever had a slot, and all
    # versions of the lane. Of each gate by itself: as an anti-join, the slots of all are walked.
    held = select(o.c.slot).where(o.c.gate_id == turns.c.gate_id, o.c.slot.is_not(None)).correlate(turns)
    state = select(lanes.c.state).where(lanes.c.id == turns.c.lane_id).correlate(turns)
    slots = (
        select(turns.c.gate_id, turns.c.width, func.array(held.scalar_subquery(), type_=ARRAY(Integer)).label("taken"))
        .where(turns.c.n == ONE, state.scalar_subquery() == word("active"))
        .cte("slots")
        .prefix_with("MATERIALIZED")
    )
    numbers = func.generate_series(ONE, slots.c.width).table_valued("slot").render_derived(name="numbers")
    free = (
        select(
            slots.c.gate_id,
            numbers.c.slot,
            # More may be taken than the width after a narrowing.
            (slots.c.width - func.cardinality(slots.c.taken)).label("room"),
            func.row_number().over(partition_by=slots.c.gate_id, order_by=numbers.c.slot).label("n"),
        )
        .select_from(slots.join(numbers, true()))
        .where(numbers.c.slot != func.all(slots.c.taken))
        .cte("free")
    )
    return (
        update(jobs)
        .where(
            jobs.c.id == turns.c.id,
            free.c.gate_id == turns.c.gate_id,
            free.c.n == turns.c.n,
            turns.c.n <= free.c.room,
            # The guard stands in the write; said like this it leads to no index, of which all would be walked.
            jobs.c.state.is_not_distinct_from(word(S.WAITING)),
            jobs.c.hold.is_(None),
        )
        .values(
            state=word(S.PENDING),
            slot=free.c.slot,
            run_at=func.greatest(jobs.c.release_at, jobs.c.retry_at, clock.stored()),  # greatest() ignores NULL
        )
        .returning(jobs.c.id, jobs.c.site_id, jobs.c.stage, jobs.c.priority)
    )


def within(lane: FromClause) -> ColumnElement[bool]:
    """The lane is one of the site's, and its name lies in the stretch behind ``after``, up to ``end`` (NULL: all)."""
    end = bindparam("p_end", type_=Text)
    return and_(
        lane.c.site_id == bindparam("p_site_id", type_=BigInteger),
        lane.c.name > bindparam("p_after", type_=Text),
        or_(end.is_(None), lane.c.name <= end),
    )


@cache
def ready() -> Select[int]:
    """Gates with room and a job that could be promoted, of a stretch of a site's lanes: what upkeep mends.

    Walks the stretch's gates, each by what waits there; never what is halted or done.
    """
    x, w = gates.alias("x"), jobs.alias("w")
    waits = (
        exists()
        .where(
            w.c.gate_id == x.c.id,
            w.c.state == word(S.WAITING),
            w.c.hold.is_(None),
            (x.c.width > ONE) | (w.c.position == blocker(x)),
        )
        .correlate(x)
    )
    return (
        select(x.c.id)
        .select_from(x.join(lanes, (lanes.c.id == x.c.lane_id) & (lanes.c.state == word("active"))))
        .where(within(lanes), used(x) < x.c.width, waits)
        .order_by(x.c.id)
    )
