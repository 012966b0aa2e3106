"""Create the attempts

One reservation, written once, when it ended. A fence is live on a job or stands here, never both and never neither.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0022", "0021"


def upgrade() -> None:
    op.create_table(
        "attempts",
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("round", sa.SmallInteger(), nullable=False),
        sa.Column("token", sa.UUID(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("reserved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("charged", sa.Boolean(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("metrics", postgresql.JSONB(), nullable=True),
        sa.PrimaryKeyConstraint("fence", name=op.f("pk_attempts")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs")),
        sa.CheckConstraint(
            "outcome IN ('done', 'rejected', 'retry', 'snoozed', 'held', 'failed', 'repair',"
            " 'released', 'expired', 'cancelled')",
            name=op.f("ck_attempts_outcome"),
        ),
        sa.CheckConstraint("ended_at >= reserved_at", name=op.f("ck_attempts_order")),
    )


def downgrade() -> None:
    op.drop_table("attempts")
