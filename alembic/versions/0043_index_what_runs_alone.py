"""Index what runs alone

The claim leaves these few out, and a worker with empty hands asks for one of them by itself. Without this it would read
every pending job of a stage to find none.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0043", "0042"

INDEX = "ix_jobs_alone"


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
            postgresql_where=sa.text("state = 'pending' AND alone"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
