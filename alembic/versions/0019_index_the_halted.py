"""Index the halted jobs

Status and ``pipeline jobs`` list what needs a person, by site. Without this index they read all history.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0019", "0018"

INDEX = "ix_jobs_halted"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "jobs",
            ["site_id", "id"],
            postgresql_where=sa.text("state IN ('failed', 'repair', 'cancelled')"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
