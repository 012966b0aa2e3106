"""Exclude by slot

The law of exclusion at a gate of any width: two jobs never hold one slot. Promote counts and fills the slots by it.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0015", "0014"

INDEX = "uq_jobs_gate_slot"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "jobs",
            ["gate_id", "slot"],
            unique=True,
            postgresql_where=sa.text("slot IS NOT NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
