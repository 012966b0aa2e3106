"""Create the revisions

Immutable versions of a topic's content; nothing overwrites a person's edit.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0006", "0005"


def upgrade() -> None:
    op.create_table(
        "revisions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("title_key", sa.Text(), nullable=False),
        sa.Column("description_key", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("front_matter", postgresql.JSONB(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("lineage", postgresql.JSONB(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_revisions")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_revisions_site_id_sites")),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_revisions_topic_id_topics")),
        sa.UniqueConstraint("topic_id", "number", name=op.f("uq_revisions_topic_id_number")),
        sa.CheckConstraint("origin IN ('generated', 'human', 'imported')", name=op.f("ck_revisions_origin")),
        sa.CheckConstraint("octet_length(body) <= 16777216", name=op.f("ck_revisions_body")),
        sa.CheckConstraint(
            "octet_length(title_key) <= 64 AND octet_length(description_key) <= 64",
            name=op.f("ck_revisions_keys"),
        ),
    )


def downgrade() -> None:
    op.drop_table("revisions")
