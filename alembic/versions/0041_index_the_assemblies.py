"""Index the assemblies of a site

A prune looks for a site's own jobs that are long over. Without this it would read every job of the site.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0041", "0040"

INDEX = "ix_jobs_assemblies"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX, "jobs", ["site_id", "id"], postgresql_where=sa.text("topic_id IS NULL"), postgresql_concurrently=True
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
