"""Know open assemblies by having no end

As for the jobs of topics: questions for other states of jobs cannot be answered from it.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0047", "0046"

INDEX = "uq_jobs_assembly_open"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "jobs",
            ["site_id"],
            unique=True,
            postgresql_where=sa.text("topic_id IS NULL AND finished_at IS NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
