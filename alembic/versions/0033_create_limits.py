"""Create the limits

Limits over lanes, sites and machines: so many in a time, or so many at once.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0033", "0032"


def upgrade() -> None:
    op.create_table(
        "limits",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount", sa.Integer(), nullable=False),
        sa.Column("period_seconds", sa.Integer(), server_default="0", nullable=False),
        sa.Column("used", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "refilled_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
        sa.UniqueConstraint("name", name=op.f("uq_limits_name")),
        sa.CheckConstraint("kind IN ('rate', 'concurrency')", name=op.f("ck_limits_kind")),
        sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 200", name=op.f("ck_limits_name")),
        sa.CheckConstraint("amount > 0 AND period_seconds >= 0 AND used >= 0", name=op.f("ck_limits_amounts")),
    )


def downgrade() -> None:
    op.drop_table("limits")
