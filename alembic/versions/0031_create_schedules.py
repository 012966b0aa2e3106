"""Create the schedules

When a lane may release, or new passes are planned.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0031", "0030"


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="active", nullable=False),
        sa.Column("rule", postgresql.JSONB(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_schedules_site_id_sites")),
        sa.ForeignKeyConstraint(["lane_id"], ["lanes.id"], name=op.f("fk_schedules_lane_id_lanes")),
        sa.UniqueConstraint("site_id", "name", name=op.f("uq_schedules_site_id_name")),
        sa.CheckConstraint("state IN ('active', 'paused')", name=op.f("ck_schedules_state")),
        sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 200", name=op.f("ck_schedules_name")),
    )


def downgrade() -> None:
    op.drop_table("schedules")
