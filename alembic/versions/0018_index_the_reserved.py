"""Index the reserved jobs

Reap looks through what is reserved, by site. The lease itself stays out of the index: renewals must not touch it.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0018", "0017"

INDEX = "ix_jobs_reserved"


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
            postgresql_where=sa.text("state = 'reserved'"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
