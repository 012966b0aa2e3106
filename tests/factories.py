"""Rows that are valid by construction: every state is reached by the verbs that lead to it."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select, update

from pipeline.build import Services
from pipeline.project.site import Site
from pipeline.service.acknowledging import Ack, Settled, Verb
from pipeline.service.planning import StageSpec
from pipeline.service.work import Prefix
from pipeline.sql.tables import jobs, lanes, topics
from pipeline.states import JobState
from pipeline.views import Claim, Draft, Finding, TopicRow

LEASE = timedelta(seconds=30)
ACTOR = "test"

STAGES = (StageSpec("generate", None, 5), StageSpec("validate", None, 5), StageSpec("publish", 1, 5))


class Factory:
    """Makes what a test needs; ``site_id`` is that of the last site made."""

    def __init__(self, engine: Engine, services: Services) -> None:
        self.engine = engine
        self.services = services
        self.site_id = 0
        self.specs: Sequence[StageSpec] = STAGES

    def site(self, slug: str = "acme", stages: Sequence[StageSpec] = STAGES) -> int:
        site = Site(slug=slug, folder=Path("."), output=Path("."), name=slug, base_url="https://example.com")
        self.specs = stages
        self.site_id = self.services.planning.register(site, stages)
        return self.site_id

    def row(self, lane: str, number: int, **changes: Any) -> TopicRow:
        slug = f"{lane}-{number}"
        values: dict[str, Any] = {
            "lane": lane, "slug": slug, "title": f"Title of {slug}", "type": "page", "path": f"{lane}/{slug}/",
            "order": number, "brief": {"n": number}, "line": number + 1, "input_hash": f"hash of {slug}",
        }  # fmt: skip
        return TopicRow(**(values | changes))

    def plan(self, *, lane: str = "lane", count: int = 1) -> list[int]:
        """Plan ``count`` topics in a lane (a site is made if there is none); returns their job ids by position."""
        if not self.site_id:
            self.site()
        self.services.planning.plan(self.site_id, [self.row(lane, n) for n in range(1, count + 1)])
        return self.job_ids(lane)

    def job_ids(self, lane: str = "lane") -> list[int]:
        """The newest pass of each topic of a lane, by position."""
        with self.engine.begin() as connection:
            found = connection.execute(
                select(jobs.c.id)
                .select_from(
                    jobs.join(lanes, lanes.c.id == jobs.c.lane_id).join(topics, topics.c.id == jobs.c.topic_id)
                )
                .where(lanes.c.name == lane, lanes.c.site_id == self.site_id, jobs.c["pass"] == topics.c["pass"])
                .order_by(jobs.c.position)
            )
            return list(found.scalars())

    def job(self, job_id: int) -> Any:
        """The row of a job, as it is now."""
        with self.engine.begin() as connection:
            return connection.execute(select(jobs).where(jobs.c.id == job_id)).one()

    def state(self, job_id: int) -> JobState:
        return JobState(self.job(job_id).state)

    def claim(
        self, stage: str, count: int = 1, *, worker: str = "test-worker", lease: timedelta = LEASE
    ) -> list[Claim]:
        """Claim up to ``count`` due jobs at a stage of the current site."""
        return self.services.work.claim([Prefix(self.site_id, stage, 2, count, lease)], worker)

    def say(self, claim: Claim, verb: Verb = Verb.ADVANCE, *, wait: bool = True, **what: Any) -> Settled:
        """Acknowledge one claim."""
        return self.services.work.acknowledge([Ack(claim, verb, **what)], wait=wait)

    def publish(self, claim: Claim) -> None:
        """Make the page of a claim live, where nothing needs to be done for it."""
        assert claim.topic is not None
        self.services.ledger.publish(
            claim, target="files", key=claim.topic.path, hash=f"hash of {claim.topic.slug}", look=lambda: None,
            act=lambda: "", still_ours=lambda: True, topic_id=claim.topic.id, revision=claim.revision_id, inputs="",
        )  # fmt: skip

    def advance_to(self, stage: str, *, lane: str = "lane", count: int = 1) -> list[int]:
        """Plan topics of a lane and bring each up to a stage: pending there, or waiting at its gate."""
        ids = self.plan(lane=lane, count=count)
        for spec in self.specs:
            if spec.name == stage:
                return ids
            claims = self.claim(spec.name, count)
            while claims:
                acks = [Ack(c, Verb.ADVANCE, draft=draft_of(c) if spec.name == "generate" else None) for c in claims]
                self.services.work.acknowledge(acks, wait=True)
                claims = self.claim(spec.name, count)
        return ids

    def in_state(self, state: JobState, *, stage: str = "publish") -> int:
        """One job in the given state, at a strict stage unless told otherwise; returns its id."""
        match state:
            case JobState.WAITING:
                return self.advance_to(stage, count=2)[1]
            case JobState.PENDING:
                return self.advance_to(stage)[0]
            case JobState.RESERVED:
                job_id = self.advance_to(stage)[0]
                self.claim(stage)
                return job_id
            case JobState.SKIPPED:
                job_id = self.advance_to(stage)[0]
                self.services.operate.skip([job_id], actor=ACTOR)
                return job_id
            case JobState.CANCELLED:
                job_id = self.advance_to(stage)[0]
                self.services.operate.cancel([job_id], actor=ACTOR)
                return job_id
            case JobState.DONE | JobState.FAILED | JobState.REPAIR:
                job_id = self.advance_to(stage)[0]
                verb = {JobState.DONE: Verb.ADVANCE, JobState.FAILED: Verb.FAIL, JobState.REPAIR: Verb.REPAIR}[state]
                self.say(self.claim(stage)[0], verb)
                return job_id

    def expire(self, *job_ids: int) -> None:
        """Let leases be over, without waiting: they end when they began."""
        with self.engine.begin() as connection:
            connection.execute(
                update(jobs)
                .where(jobs.c.id.in_(job_ids), jobs.c.state == JobState.RESERVED)
                .values(lease_expires_at=jobs.c.reserved_at)
            )


def draft_of(claim: Claim) -> Draft:
    assert claim.topic is not None
    slug = claim.topic.slug
    return Draft(f"Title of {slug}", f"Description of {slug}", f"Body of {slug}, round {claim.topic.round}.")


def finding(rule: str = "some-rule") -> Finding:
    return Finding(rule, "something is wrong")
