"""Index who waits at a gate

Promote takes the lowest positions waiting at a gate. Without this index it reads every job of the lane.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0017", "0016"

INDEX = "ix_jobs_waiting"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "jobs",
            ["gate_id", "position"],
            postgresql_where=sa.text("state = 'waiting'"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
