"""Create the topics

``UNIQUE (lane_id, position)`` is deferrable, since an insert in the middle moves every later position in one statement.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0005", "0004"


def upgrade() -> None:
    op.create_table(
        "topics",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("brief", postgresql.JSONB(), nullable=False),
        sa.Column("input_hash", sa.Text(), nullable=False),
        sa.Column("made_from", sa.Text(), nullable=True),
        sa.Column("pass", sa.Integer(), server_default="1", nullable=False),
        sa.Column("released", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("placed_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("revision_id", sa.BigInteger(), nullable=True),
        sa.Column("revisions", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_topics")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_topics_site_id_sites")),
        sa.ForeignKeyConstraint(["lane_id"], ["lanes.id"], name=op.f("fk_topics_lane_id_lanes")),
        sa.UniqueConstraint("site_id", "slug", name=op.f("uq_topics_site_id_slug")),
        sa.UniqueConstraint("site_id", "path", name=op.f("uq_topics_site_id_path")),
        sa.UniqueConstraint(
            "lane_id", "position", deferrable=True, initially="IMMEDIATE", name=op.f("uq_topics_lane_id_position")
        ),
        sa.CheckConstraint(
            "slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$' AND octet_length(slug) <= 200",
            name=op.f("ck_topics_slug"),
        ),
        sa.CheckConstraint("octet_length(path) <= 1000", name=op.f("ck_topics_path")),
        sa.CheckConstraint("position > 0", name=op.f("ck_topics_position")),
        sa.CheckConstraint("pass >= 1", name=op.f("ck_topics_pass")),
    )


def downgrade() -> None:
    op.drop_table("topics")
