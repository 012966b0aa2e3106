"""What actors do, each verb with the places where it stands: before a lock, a write, a promotion, a commit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

import pipeline
from pipeline import Topic
from pipeline.db import sqlstate
from pipeline.project.site import Site
from pipeline.service.acknowledging import Ack, Settled, Verb
from pipeline.service.append import PlannedTopic
from pipeline.service.work import Prefix
from pipeline.sql import (
    append,
    gates,
    lanes,
    operate,
    places,
    plan,
    transitions,
    widths,
)
from pipeline.views import Claim, TopicRow
from tests.concurrency.stage import CLOCK
from tests.factories import ACTOR, LEASE, Factory, draft_of
from tests.interleavings.orders import COMMIT, Hand, Part, Place

Stops = Sequence[Place]

LOCK, LOOK = gates.lock(wait=True), gates.lock(wait=False)
MOVE = gates.move_passed()
PROMOTE = gates.promote(CLOCK)
REGRET = text("SELECT 'changed my mind'")


def claims(make: Factory, stage: str = "publish", *, name: str = "claim", count: int = 1, door: bool = False) -> Part:
    """Claim at a stage; answers the claims."""
    prefix = Prefix(make.site_id, stage, 2, count, LEASE)
    return Part(name, lambda hand: hand.services.work.claim([prefix], name), door=door)


def says(*held: Claim, verb: Verb = Verb.ADVANCE, name: str = "", stops: Stops | None = None, **what: Any) -> Part:
    """Acknowledge; answers a ``Settled``. What a retirement made busy is said again, as a worker does."""
    acks = [Ack(c, verb, draft=draft_of(c) if verb is Verb.ADVANCE and c.stage == "generate" else None, **what)
            for c in held]  # fmt: skip
    write = getattr(transitions, verb.value)(CLOCK)

    def body(hand: Hand) -> Settled:
        for _ in range(3):
            settled = hand.services.work.acknowledge(acks, wait=True)
            if "busy" not in settled.fates.values():
                return settled
        return settled

    return Part(name or verb.value, body, (LOCK, write, COMMIT) if stops is None else stops)


def reaps(make: Factory, *, name: str = "reap", stops: Stops | None = None, door: bool = False) -> Part:
    """Reap what is over, by a list that is read first; answers a ``Settled``."""

    def body(hand: Hand) -> Settled:
        over = [e for e in hand.services.work.expired(make.site_id) if e.over]
        return hand.services.work.reap(over)

    chosen = transitions.gates_touched(transitions.Reach.SKIP)
    write = transitions.reap(CLOCK, holder_is_gone=False)
    return Part(name, body, (chosen, write, (COMMIT, 2)) if stops is None else stops, door=door)


def renews(claim: Claim, *, name: str = "renew") -> Part:
    return Part(name, lambda hand: hand.services.work.renew([claim]))


def heals(make: Factory, *, name: str = "heal", stops: Stops = (LOOK, COMMIT)) -> Part:
    """Promote what could be and was not, as upkeep does; answers how many."""
    return Part(name, lambda hand: hand.services.work.heal(make.site_id), stops)


def operates(verb: str, *ids: int, name: str = "", stops: Stops | None = None, **what: Any) -> Part:
    """Cancel, requeue, skip or grant; answers the ``Moved``."""
    force = what.get("force", False)
    writes = [operate.cancel_now(CLOCK)] if force else []
    if not (force and verb == "cancel"):
        writes.append(getattr(operate, verb)(CLOCK))
    return Part(
        name or verb,
        lambda hand: getattr(hand.services.operate, verb)(list(ids), actor=ACTOR, **what),
        (LOCK, *writes, COMMIT) if stops is None else stops,
    )


def turns(make: Factory, verb: str, *, lane: str = "lane", name: str = "") -> Part:
    """Pause, resume, close or open a lane."""
    flip = lanes.free(CLOCK) if verb in ("resume", "open") else lanes.demote()
    return Part(
        name or verb,
        lambda hand: getattr(hand.services.lanes, verb)(make.site_id, lane, actor=ACTOR),
        (lanes.lock_gates(), flip, COMMIT),
    )


def settles(make: Factory, *, name: str = "settle") -> Part:
    return Part(name, lambda hand: hand.services.lanes.settle(make.site_id), (lanes.lock(), lanes.demote(), COMMIT))


def width(make: Factory, to: int | None, *, lane: str = "lane", stage: str = "publish", name: str = "width") -> Part:
    """Set a lane's width at a stage."""
    return Part(
        name,
        lambda hand: hand.services.widths.of_lane(make.site_id, lane, stage, {"width": to}, actor=ACTOR),
        (lanes.lock_gates(), widths.demote(), widths.set_width(CLOCK), COMMIT),
    )


def stage_width(make: Factory, to: int | None, *, stage: str = "publish", name: str = "width") -> Part:
    """Set a stage's width in all lanes."""
    return Part(
        name,
        lambda hand: hand.services.widths.of_stage(make.site_id, stage, to, actor=ACTOR),
        (widths.set_stage(), widths.demote(), widths.set_width(CLOCK), COMMIT),
    )


def policy(make: Factory, to: str, *, name: str = "policy") -> Part:
    return Part(
        name,
        lambda hand: hand.services.widths.on_failed(make.site_id, "lane", to, actor=ACTOR),
        (lanes.lock_gates(), COMMIT),
    )


def inserts(make: Factory, before: str, number: int = 77, *, name: str = "insert") -> Part:
    """Put a new topic into the middle of the lane."""
    return Part(
        name,
        lambda hand: hand.services.places.insert(make.site_id, make.row("lane", number), before, actor=ACTOR),
        (places.lock_gates(), places.lock_stretch(), places.running(), COMMIT),
    )


def moves(make: Factory, slug: str, *, before: str | None = None, after: str | None = None, name: str = "move") -> Part:
    """Move a topic in its lane."""
    return Part(
        name,
        lambda hand: hand.services.places.move(make.site_id, slug, before=before, after=after, actor=ACTOR),
        (places.lock_gates(), places.lock_stretch(), places.running(), COMMIT),
    )


def changes_lane(make: Factory, slug: str, to: str, *, name: str = "move") -> Part:
    return Part(
        name,
        lambda hand: hand.services.places.move_to_lane(make.site_id, slug, to, actor=ACTOR),
        (places.lock_lanes(), places.lock_gates(), places.lock_passes(), COMMIT),
    )


def registers(make: Factory, specs: Sequence[Any], *, name: str = "register") -> Part:
    """Add stages, as a newer release of a project does."""
    site = Site(slug="acme", folder=Path("."), output=Path("."), name="acme", base_url="https://example.com")
    return Part(
        name,
        lambda hand: hand.services.planning.register(site, specs),
        (plan.known_stages(), plan.put_gates(), COMMIT),
    )


def retires(make: Factory, stage: str, *, name: str = "retire") -> Part:
    return Part(
        name,
        lambda hand: hand.services.planning.retire(make.site_id, stage, actor=ACTOR),
        (COMMIT, LOCK, (COMMIT, 3)),
    )


def plans_file(make: Factory, rows: Sequence[TopicRow], *, name: str = "plan", stops: Stops | None = None) -> Part:
    """Plan a file's topics, as a run does."""
    return Part(
        name,
        lambda hand: hand.services.planning.plan(make.site_id, rows),
        (places.lock_lanes(), plan.lock_first_gates(), COMMIT) if stops is None else stops,
    )


def topic(number: int, lane: str = "lane", **changes: Any) -> Topic:
    given: dict[str, Any] = {
        "lane": lane, "slug": f"{lane}-{number}", "title": f"Number {number}", "type": "page", "brief": {"n": number},
    }  # fmt: skip
    return Topic(**(given | changes))


def plans(
    *given: Topic, name: str = "plan", level: str | None = None, regrets: bool = False, stops: Stops | None = None
) -> Part:
    """Plan inside a caller's own transaction, at the role's level; a caller repeats it after 40001, as he must."""

    def once(hand: Hand) -> list[PlannedTopic]:
        isolation = (level or hand.level).upper()
        with hand.actor.engine.connect().execution_options(isolation_level=isolation) as connection:
            connection.exec_driver_sql("SELECT 1")  # his snapshot, if he has but one
            planned = pipeline.plan(connection, "acme", given)
            if regrets:
                connection.execute(REGRET)
                connection.rollback()
                return []
            connection.commit()
            return planned

    def body(hand: Hand) -> list[PlannedTopic]:
        for _ in range(3):
            try:
                return once(hand)
            except DBAPIError as error:
                if sqlstate(error) != "40001":
                    raise
        return once(hand)

    usual = (append.hold(), append.add(CLOCK), REGRET if regrets else COMMIT)
    return Part(name, body, usual if stops is None else stops)
