"""The tables that content stands on: revisions, findings, publications, redirects."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, ForeignKey, Index, Integer, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB, UUID as PgUuid
from sqlalchemy.orm import Mapped, mapped_column

from pipeline.models.base import Base, born, identity, one_of


class Revision(Base):
    """One immutable version of a topic's content. The keys are hashes of what readers take for the same
    title and description, to find twins by."""

    __tablename__ = "revisions"
    __table_args__ = (
        UniqueConstraint("topic_id", "number"),
        CheckConstraint(one_of("origin", ("generated", "human", "imported")), name="origin"),
        CheckConstraint("octet_length(body) <= 16777216", name="body"),
        CheckConstraint("octet_length(title_key) <= 64 AND octet_length(description_key) <= 64", name="keys"),
        Index("ix_revisions_title", "site_id", "title_key"),
        Index("ix_revisions_description", "site_id", "description_key"),
        Index("uq_revisions_fence", "fence", unique=True, postgresql_where=text("fence IS NOT NULL")),
    )

    id: Mapped[identity]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    topic_id: Mapped[int] = mapped_column(ForeignKey("topics.id"))
    number: Mapped[int] = mapped_column(Integer)
    origin: Mapped[str]
    fence: Mapped[int | None] = mapped_column(BigInteger)  # of the attempt that made it
    title: Mapped[str]
    description: Mapped[str]
    title_key: Mapped[str]
    description_key: Mapped[str]
    body: Mapped[str]
    front_matter: Mapped[dict[str, Any]] = mapped_column(JSONB)
    content_hash: Mapped[str]
    lineage: Mapped[dict[str, Any]] = mapped_column(JSONB)
    created_at: Mapped[born]


class Finding(Base):
    """One rule's complaint about a revision, made by one attempt."""

    __tablename__ = "findings"
    __table_args__ = (
        CheckConstraint(one_of("severity", ("error", "warning", "info")), name="severity"),
        Index("ix_findings_topic", "topic_id", "fence"),
    )

    id: Mapped[identity]
    topic_id: Mapped[int] = mapped_column(ForeignKey("topics.id"))
    revision_id: Mapped[int | None] = mapped_column(ForeignKey("revisions.id"))
    fence: Mapped[int] = mapped_column(BigInteger)
    rule: Mapped[str]
    severity: Mapped[str]
    message: Mapped[str]
    line: Mapped[int | None] = mapped_column(Integer)
    column: Mapped[int | None] = mapped_column("column_number", Integer)


class Publication(Base):
    """What is live at one path of one target, and what is intended. Without a topic it is an artefact of the site.

    ``intent_path`` stays after the confirmation, equal to ``live_path``: its unique index is the one law that no two
    topics of a site are ever on their way to one path. An intent is open while ``intent_token`` is set.
    """

    __tablename__ = "publications"
    __table_args__ = (
        CheckConstraint(
            "octet_length(target) <= 63 AND octet_length(live_path) <= 1000 AND octet_length(intent_path) <= 1000",
            name="lengths",
        ),
        CheckConstraint("num_nonnulls(intent_token, intent_fence, intent_at) IN (0, 3)", name="intent"),
        CheckConstraint("num_nonnulls(live_path, live_hash, live_remote, first_at, changed_at) IN (0, 5)", name="live"),
        Index(
            "uq_publications_topic", "topic_id", "target", unique=True, postgresql_where=text("topic_id IS NOT NULL")
        ),
        Index("uq_publications_intent_path", "site_id", "target", "intent_path", unique=True),
        Index("uq_publications_live_path", "site_id", "target", "live_path", unique=True),
    )

    id: Mapped[identity]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    topic_id: Mapped[int | None] = mapped_column(ForeignKey("topics.id"))
    target: Mapped[str]
    live_path: Mapped[str | None]
    live_hash: Mapped[str | None]
    live_revision: Mapped[int | None] = mapped_column(ForeignKey("revisions.id"))
    live_remote: Mapped[str | None]
    live_inputs: Mapped[str] = mapped_column(Text, server_default="")
    live_fence: Mapped[int | None] = mapped_column(BigInteger)
    first_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    changed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    intent_path: Mapped[str]
    intent_hash: Mapped[str]
    intent_revision: Mapped[int | None] = mapped_column(ForeignKey("revisions.id"))
    intent_inputs: Mapped[str] = mapped_column(Text, server_default="")
    intent_token: Mapped[UUID | None] = mapped_column(PgUuid(as_uuid=True))
    intent_fence: Mapped[int | None] = mapped_column(BigInteger)
    intent_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Redirect(Base):
    """An address that a page had once."""

    __tablename__ = "redirects"
    __table_args__ = (
        UniqueConstraint("site_id", "from_path"),
        CheckConstraint("octet_length(from_path) <= 1000 AND octet_length(to_path) <= 1000", name="lengths"),
    )

    id: Mapped[identity]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    from_path: Mapped[str]
    to_path: Mapped[str | None]  # NULL: gone
    created_at: Mapped[born]
