"""Create the workers

For human eyes only: liveness is judged by leases, never by these rows.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0036", "0035"


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stages", postgresql.JSONB(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )


def downgrade() -> None:
    op.drop_table("workers")
