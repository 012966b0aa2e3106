"""Create the lanes

A lane is one chain of topics; its row is the lock of every operator's verb, and counts the positions.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    op.create_table(
        "lanes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="active", nullable=False),
        sa.Column("on_failed", sa.Text(), server_default="halt", nullable=False),
        sa.Column("schedule", postgresql.JSONB(), nullable=True),
        sa.Column("next_position", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lanes")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_lanes_site_id_sites")),
        sa.UniqueConstraint("site_id", "name", name=op.f("uq_lanes_site_id_name")),
        sa.CheckConstraint("state IN ('active', 'paused', 'closed')", name=op.f("ck_lanes_state")),
        sa.CheckConstraint("on_failed IN ('halt', 'skip')", name=op.f("ck_lanes_on_failed")),
        sa.CheckConstraint("next_position > 0", name=op.f("ck_lanes_next_position")),
        sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 200", name=op.f("ck_lanes_name")),
    )


def downgrade() -> None:
    op.drop_table("lanes")
