"""Create the gates

One lane at one limited stage. Its row is the lock under which jobs arrive, leave and are promoted.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"


def upgrade() -> None:
    op.create_table(
        "gates",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("passed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column(
            "strict_since", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gates")),
        sa.ForeignKeyConstraint(["lane_id"], ["lanes.id"], name=op.f("fk_gates_lane_id_lanes")),
        sa.UniqueConstraint("lane_id", "stage", name=op.f("uq_gates_lane_id_stage")),
        sa.CheckConstraint("width > 0", name=op.f("ck_gates_width")),
        sa.CheckConstraint("passed >= 0", name=op.f("ck_gates_passed")),
    )


def downgrade() -> None:
    op.drop_table("gates")
