"""The tables around the work: schedules, limits, what people and upkeep did, who works."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, DateTime, ForeignKey, Index, Integer, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from pipeline.models.base import Base, born, identity, moment, one_of


class Schedule(Base):
    """When a lane may release, or when new passes are planned."""

    __tablename__ = "schedules"
    __table_args__ = (
        UniqueConstraint("site_id", "name"),
        CheckConstraint(one_of("state", ("active", "paused")), name="state"),
        CheckConstraint("octet_length(name) BETWEEN 1 AND 200", name="name"),
    )

    id: Mapped[identity]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    lane_id: Mapped[int | None] = mapped_column(ForeignKey("lanes.id"))
    name: Mapped[str]
    state: Mapped[str] = mapped_column(Text, server_default="active")
    rule: Mapped[dict[str, Any]] = mapped_column(JSONB)
    created_at: Mapped[born]


class ScheduleTick(Base):
    """One nominal tick of a schedule: its key keeps it to one, whoever comes first."""

    __tablename__ = "schedule_ticks"

    schedule_id: Mapped[int] = mapped_column(ForeignKey("schedules.id"), primary_key=True)
    due_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    created_at: Mapped[born]


class Limit(Base):
    """A shared limit: so many in a time (rate), or so many at once (concurrency)."""

    __tablename__ = "limits"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint(one_of("kind", ("rate", "concurrency")), name="kind"),
        CheckConstraint("octet_length(name) BETWEEN 1 AND 200", name="name"),
        CheckConstraint("amount > 0 AND period_seconds >= 0 AND used >= 0", name="amounts"),
    )

    id: Mapped[identity]
    name: Mapped[str]
    kind: Mapped[str]
    amount: Mapped[int] = mapped_column(Integer)
    period_seconds: Mapped[int] = mapped_column(Integer, server_default="0")
    used: Mapped[int] = mapped_column(Integer, server_default="0")
    refilled_at: Mapped[born]


class Event(Base):
    """What a person or upkeep did to a job, lane or site; append-only."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_job", "job_id", "id", postgresql_where=text("job_id IS NOT NULL")),
        # Who paused a lane or a site.
        Index("ix_events_house", "lane_id", "site_id", "id", postgresql_where=text("job_id IS NULL")),
    )

    id: Mapped[identity]
    at: Mapped[born]
    site_id: Mapped[int | None] = mapped_column(ForeignKey("sites.id"))
    lane_id: Mapped[int | None] = mapped_column(ForeignKey("lanes.id"))
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id"))
    verb: Mapped[str]
    from_state: Mapped[str | None]
    to_state: Mapped[str | None]
    actor: Mapped[str]
    reason: Mapped[str] = mapped_column(Text, server_default="")
    details: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'::jsonb"))


class Worker(Base):
    """A worker process, for human eyes only: liveness is judged by leases, never by these rows."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    started_at: Mapped[born]
    seen_at: Mapped[moment]
    stages: Mapped[dict[str, Any]] = mapped_column(JSONB)
    pid: Mapped[int] = mapped_column(BigInteger)
