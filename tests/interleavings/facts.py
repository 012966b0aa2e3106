"""What a scene looks like at the end of an order, and how a site is worked off from there."""

from typing import Any

from sqlalchemy import text

from pipeline.service.acknowledging import Ack, Settled, Verb
from pipeline.views import Claim
from tests.concurrency.stage import SCHEMA
from tests.factories import Factory, draft_of


def asked(make: Factory, query: str, **values: Any) -> list[Any]:
    """The rows of a query over the project's tables."""
    with make.engine.begin() as connection:
        return list(connection.execute(text(query.replace("{s}", SCHEMA)), values).all())


def states(make: Factory, lane: str = "lane") -> list[str]:
    """The states of a lane's newest passes, by position."""
    found = asked(
        make,
        "SELECT j.state FROM {s}.topics t JOIN {s}.lanes l ON l.id = t.lane_id"
        " JOIN {s}.jobs j ON j.topic_id = t.id AND j.pass = t.pass"
        " WHERE l.name = :lane AND l.site_id = :site ORDER BY t.position",
        lane=lane, site=make.site_id,
    )  # fmt: skip
    return [row.state for row in found]


def slugs(make: Factory, lane: str = "lane") -> list[str]:
    """The topics of a lane, by position."""
    found = asked(
        make,
        "SELECT t.slug FROM {s}.topics t JOIN {s}.lanes l ON l.id = t.lane_id"
        " WHERE l.name = :lane AND l.site_id = :site ORDER BY t.position",
        lane=lane, site=make.site_id,
    )  # fmt: skip
    return [row.slug for row in found]


def outcomes(make: Factory, job_id: int) -> list[str]:
    """How the reservations of a job ended, in their order."""
    found = asked(make, "SELECT outcome FROM {s}.attempts WHERE job_id = :id ORDER BY fence", id=job_id)
    return [row.outcome for row in found]


def fate(settled: Settled, claim: Claim) -> str:
    return str(settled.fates.get(claim.fence, "none"))


def ids(claims: list[Claim]) -> list[int]:
    return sorted(c.job_id for c in claims)


def gates_missing(make: Factory) -> list[Any]:
    """Lanes that have not the gate, or the width, which their stage has."""
    return asked(
        make,
        "SELECT l.name, s.name, s.width, g.width FROM {s}.lanes l JOIN {s}.stages s ON s.site_id = l.site_id"
        " LEFT JOIN {s}.gates g ON g.lane_id = l.id AND g.stage = s.name"
        " WHERE l.site_id = :site AND NOT coalesce((l.overrides -> s.name) ? 'width', false)"
        " AND s.width IS DISTINCT FROM g.width",
        site=make.site_id,
    )


def work_off(make: Factory, *held: Claim) -> None:
    """End what is held, then do all that can be done, as workers would."""
    for claim in held:
        make.say(claim)
    stages = [row.name for row in asked(make, "SELECT name FROM {s}.stages WHERE site_id = :s ORDER BY ordinal DESC",
                                        s=make.site_id)]  # fmt: skip
    while claims := [c for stage in stages for c in make.claim(stage, 9)]:
        for c in claims:
            draft = draft_of(c) if c.stage == "generate" else None
            make.services.work.acknowledge([Ack(c, Verb.ADVANCE, draft=draft)], wait=True)
