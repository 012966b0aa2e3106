"""Index the claim

The claim probes (site, stage, priority) in the order of ``run_at, id`` and reads nothing else. What waits, is halted
or finished is not in this index, so the claim's cost does not grow with any of them.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0016", "0015"

INDEX = "ix_jobs_claim"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "jobs",
            ["site_id", "stage", "priority", "run_at", "id"],
            postgresql_where=sa.text("state = 'pending'"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
