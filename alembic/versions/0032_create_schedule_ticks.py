"""Create the ticks of schedules

The key keeps each nominal tick to one, whoever comes first; so no scheduler process is needed.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0032", "0031"


def upgrade() -> None:
    op.create_table(
        "schedule_ticks",
        sa.Column("schedule_id", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("schedule_id", "due_at", name=op.f("pk_schedule_ticks")),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_schedule_ticks_schedule_id_schedules")
        ),
    )


def downgrade() -> None:
    op.drop_table("schedule_ticks")
