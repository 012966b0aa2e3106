"""Know unfinished assemblies by having no end

As for the jobs of topics: questions for other states of jobs cannot be answered from it.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0047", "0046"

INDEX, NEW = "uq_jobs_site_assemble", "uq_jobs_site_assemble_new"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(NEW, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            NEW,
            "jobs",
            ["site_id"],
            unique=True,
            postgresql_where=sa.text("topic_id IS NULL AND finished_at IS NULL"),
            postgresql_concurrently=True,
        )
        # The new one is there first, so that the law holds all the time.
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {INDEX}")
        op.execute(f"ALTER INDEX {NEW} RENAME TO {INDEX}")


def downgrade() -> None:
    old = "topic_id IS NULL AND state NOT IN ('done', 'skipped')"
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(NEW, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {NEW} ON jobs (site_id) WHERE {old}")
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {INDEX}")
        op.execute(f"ALTER INDEX {NEW} RENAME TO {INDEX}")
