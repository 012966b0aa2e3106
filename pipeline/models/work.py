"""The tables that work stands on: sites, lanes, stages, gates, topics, jobs, attempts.

``jobs`` is narrow and hot. Its lease column is in no index and its pages keep room, so that renewals are heap-only
updates; every index on it is partial, one for each live question, except the keys.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    Sequence,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID as PgUuid
from sqlalchemy.orm import Mapped, mapped_column

from pipeline.models.base import Base, born, finite, identity, moment, one_of
from pipeline.states import JobState, LaneState, StageState

FENCES = Sequence("fences", metadata=Base.metadata)
"""A number for each reservation, growing: the key of attempts, and what outside targets compare."""

OUTCOMES = ("done", "rejected", "retry", "snoozed", "held", "failed", "repair", "released", "expired", "cancelled")

SLUG = "'^[a-z0-9]+(-[a-z0-9]+)*$'"


class Site(Base):
    """One publication. ``changed`` is raised by whatever alters what is live; ``built`` is the value last assembled."""

    __tablename__ = "sites"
    __table_args__ = (
        UniqueConstraint("slug"),
        CheckConstraint(f"slug ~ {SLUG} AND octet_length(slug) <= 200", name="slug"),
        CheckConstraint(one_of("state", ("active", "paused")), name="state"),
        CheckConstraint("built <= changed", name="built"),
    )

    id: Mapped[identity]
    slug: Mapped[str]
    name: Mapped[str]
    base_url: Mapped[str]
    time_zone: Mapped[str] = mapped_column(Text, server_default="UTC")
    locale: Mapped[str] = mapped_column(Text, server_default="en")
    state: Mapped[str] = mapped_column(Text, server_default="active")
    settings: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'::jsonb"))
    changed: Mapped[int] = mapped_column(BigInteger, server_default="0")
    built: Mapped[int] = mapped_column(BigInteger, server_default="0")
    fingerprint: Mapped[str] = mapped_column(Text, server_default="")  # of theme and settings, at the last assembly
    created_at: Mapped[born]


class Lane(Base):
    """One dependency group of a site: a chain of topics by position."""

    __tablename__ = "lanes"
    __table_args__ = (
        UniqueConstraint("site_id", "name"),
        CheckConstraint(one_of("state", LaneState), name="state"),
        CheckConstraint(one_of("on_failed", ("halt", "skip")), name="on_failed"),
        CheckConstraint("next_position > 0", name="next_position"),
        CheckConstraint("octet_length(name) BETWEEN 1 AND 200", name="name"),
        CheckConstraint("jsonb_typeof(overrides) = 'object'", name="overrides"),
        {"postgresql_with": {"fillfactor": "10"}},
    )

    id: Mapped[identity]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[str]
    state: Mapped[str] = mapped_column(Text, server_default="active")
    # By stage, what this lane has otherwise: width (null: no limit), lease_seconds, deadline_seconds, max_attempts.
    overrides: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'::jsonb"))
    on_failed: Mapped[str] = mapped_column(Text, server_default="halt")
    schedule: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    next_position: Mapped[int] = mapped_column(BigInteger, server_default="1")
    created_at: Mapped[born]


class Stage(Base):
    """One stage of one site: order is data, registered from ``PIPELINE``. Ordinals have gaps and stay."""

    __tablename__ = "stages"
    __table_args__ = (
        UniqueConstraint("site_id", "ordinal"),
        CheckConstraint(one_of("state", StageState), name="state"),
        CheckConstraint("width > 0", name="width"),
        CheckConstraint("ordinal >= 0", name="ordinal"),
        CheckConstraint("max_attempts > 0", name="max_attempts"),
        CheckConstraint("octet_length(name) BETWEEN 1 AND 63 AND name <> 'assemble'", name="name"),
    )

    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(Text, server_default="active")
    width: Mapped[int | None] = mapped_column(Integer)
    max_attempts: Mapped[int] = mapped_column(Integer, server_default="5")  # what a job arriving here is given


class Gate(Base):
    """One lane at one limited stage. A strict one (width 1) holds ``passed``, up to which all is over.

    Gates stay: one whose stage is limited no longer has no width, and everybody passes it.
    """

    __tablename__ = "gates"
    __table_args__ = (
        UniqueConstraint("lane_id", "stage"),
        CheckConstraint("width > 0", name="width"),
        CheckConstraint("passed >= 0", name="passed"),
        {"postgresql_with": {"fillfactor": "10"}},
    )

    id: Mapped[identity]
    lane_id: Mapped[int] = mapped_column(ForeignKey("lanes.id"))
    stage: Mapped[str]
    ordinal: Mapped[int] = mapped_column(Integer)
    width: Mapped[int | None] = mapped_column(Integer)
    passed: Mapped[int] = mapped_column(BigInteger, server_default="0")
    strict_since: Mapped[born]


class Topic(Base):
    """One page to be. ``input_hash`` is what its file says now; ``made_from`` what the newest pass began with."""

    __tablename__ = "topics"
    __table_args__ = (
        UniqueConstraint("site_id", "slug"),
        UniqueConstraint("site_id", "path"),
        UniqueConstraint("lane_id", "position", deferrable=True, initially="IMMEDIATE"),
        CheckConstraint(f"slug ~ {SLUG} AND octet_length(slug) <= 200", name="slug"),
        CheckConstraint("octet_length(path) <= 1000", name="path"),
        CheckConstraint("position > 0", name="position"),
        CheckConstraint("pass >= 1", name="pass"),
        # Prune: topics that were made again.
        Index("ix_topics_again", "site_id", "id", postgresql_where=text("pass > 1")),
    )

    id: Mapped[identity]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    lane_id: Mapped[int] = mapped_column(ForeignKey("lanes.id"))
    position: Mapped[int] = mapped_column(BigInteger)
    slug: Mapped[str]
    path: Mapped[str]
    title: Mapped[str]
    type: Mapped[str]
    brief: Mapped[dict[str, Any]] = mapped_column(JSONB)
    input_hash: Mapped[str]
    made_from: Mapped[str | None]
    number: Mapped[int] = mapped_column("pass", Integer, server_default="1")  # of the newest pass
    released: Mapped[bool] = mapped_column(Boolean, server_default=text("false"))
    placed_at: Mapped[born]
    revision_id: Mapped[int | None] = mapped_column(
        ForeignKey("revisions.id", use_alter=True, deferrable=True, initially="DEFERRED")
    )
    revisions: Mapped[int] = mapped_column(Integer, server_default="0")  # how many there are


class Job(Base):
    """One pass of one topic through the pipeline, or one assembly of a site (then without topic and lane)."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(one_of("state", JobState), name="state"),
        CheckConstraint(
            "num_nonnulls(token, fence, reserved_by, reserved_at, lease_expires_at)"
            " = CASE WHEN state = 'reserved' THEN 5 ELSE 0 END",
            name="reserved",
        ),
        CheckConstraint("(slot IS NOT NULL) = (gate_id IS NOT NULL AND state IN ('pending', 'reserved'))", name="slot"),
        CheckConstraint("slot > 0", name="slot_number"),
        CheckConstraint("attempts BETWEEN 0 AND max_attempts", name="attempts"),
        CheckConstraint("given_back >= 0 AND snoozed >= 0 AND round >= 0 AND max_rounds >= 0", name="counts"),
        CheckConstraint("(finished_at IS NOT NULL) = (state IN ('done', 'skipped'))", name="finished"),
        CheckConstraint("state <> 'pending' OR run_at IS NOT NULL", name="run_at"),
        CheckConstraint("hold IS NULL OR state = 'waiting'", name="hold"),
        CheckConstraint("priority BETWEEN 0 AND 3", name="priority"),
        CheckConstraint(
            "num_nonnulls(topic_id, lane_id, position) = CASE WHEN stage = 'assemble' THEN 0 ELSE 3 END", name="topic"
        ),
        CheckConstraint(
            finite("release_at", "retry_at", "run_at", "run_until", "reserved_at", "lease_expires_at", "finished_at"),
            name="finite",
        ),
        # One unfinished job a topic, one unfinished assembly a site.
        Index(
            "uq_jobs_topic_open",
            "topic_id",
            unique=True,
            postgresql_where=text("finished_at IS NULL"),
        ),
        Index(
            "uq_jobs_assembly_open",
            "site_id",
            unique=True,
            postgresql_where=text("topic_id IS NULL AND finished_at IS NULL"),
        ),
        # The law of exclusion for every width.
        Index("uq_jobs_gate_slot", "gate_id", "slot", unique=True, postgresql_where=text("slot IS NOT NULL")),
        # The claim, and nothing else.
        Index(
            "ix_jobs_claim",
            "site_id",
            "stage",
            "priority",
            "run_at",
            "id",
            postgresql_where=text("state = 'pending'"),
        ),
        # The claim of what runs by itself.
        Index(
            "ix_jobs_alone",
            "site_id",
            "stage",
            "priority",
            "run_at",
            "id",
            postgresql_where=text("state = 'pending' AND alone"),
        ),
        # Promote: who waits at this gate, by position.
        Index("ix_jobs_waiting", "gate_id", "position", postgresql_where=text("state = 'waiting'")),
        # Reap; the lease itself is in no index.
        Index("ix_jobs_reserved", "site_id", "id", postgresql_where=text("state = 'reserved'")),
        # What needs a person.
        Index("ix_jobs_halted", "site_id", "id", postgresql_where=text("state IN ('failed', 'repair', 'cancelled')")),
        # The blocker of a strict gate and the move of passed; the history of a topic.
        Index("ix_jobs_lane_position", "lane_id", "position"),
        Index("ix_jobs_topic", "topic_id", "pass"),
        # Prune: a site's own jobs.
        Index("ix_jobs_assemblies", "site_id", "id", postgresql_where=text("topic_id IS NULL")),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    id: Mapped[identity]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    lane_id: Mapped[int | None] = mapped_column(ForeignKey("lanes.id"))
    topic_id: Mapped[int | None] = mapped_column(ForeignKey("topics.id"))
    position: Mapped[int | None] = mapped_column(BigInteger)
    number: Mapped[int] = mapped_column("pass", Integer, server_default="1")
    stage: Mapped[str]
    round: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    max_rounds: Mapped[int] = mapped_column(SmallInteger, server_default="3")
    cleared: Mapped[int] = mapped_column(Integer, server_default="-1")
    state: Mapped[str]
    hold: Mapped[str | None]
    approved: Mapped[str | None]  # the hash of the draft that a person approved; empty when there was none
    priority: Mapped[int] = mapped_column(SmallInteger, server_default="2")
    release_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    retry_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    run_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    run_until: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    gate_id: Mapped[int | None] = mapped_column(ForeignKey("gates.id"))
    slot: Mapped[int | None] = mapped_column(Integer)
    attempts: Mapped[int] = mapped_column(Integer, server_default="0")
    max_attempts: Mapped[int] = mapped_column(Integer)
    given_back: Mapped[int] = mapped_column(Integer, server_default="0")
    snoozed: Mapped[int] = mapped_column(Integer, server_default="0")
    # Lost with its worker again and again: it may be what kills it, and runs by itself.
    alone: Mapped[bool] = mapped_column(Boolean, server_default=text("false"))
    token: Mapped[UUID | None] = mapped_column(PgUuid(as_uuid=True))
    fence: Mapped[int | None] = mapped_column(BigInteger)
    reserved_by: Mapped[str | None]
    reserved_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    lease_expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    cancel_requested: Mapped[bool] = mapped_column(Boolean, server_default=text("false"))
    error_class: Mapped[str | None]
    created_at: Mapped[born]
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Attempt(Base):
    """One reservation of a job at one stage, written once, by whoever took its token away."""

    __tablename__ = "attempts"
    __table_args__ = (
        CheckConstraint(
            one_of("outcome", OUTCOMES),
            name="outcome",
        ),
        CheckConstraint("ended_at >= reserved_at", name="order"),
        Index("ix_attempts_job", "job_id", "fence"),
    )

    fence: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    stage: Mapped[str]
    round: Mapped[int] = mapped_column(SmallInteger)
    token: Mapped[UUID] = mapped_column(PgUuid(as_uuid=True))
    worker: Mapped[str]
    reserved_at: Mapped[moment]
    ended_at: Mapped[moment]
    outcome: Mapped[str]
    charged: Mapped[bool]
    error_class: Mapped[str | None]
    error: Mapped[str | None]
    metrics: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
