"""Forbid two unfinished assemblies of one site

Whoever asks for an assembly inserts with ON CONFLICT DO NOTHING on this index; it finds a site's open assembly, too.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0014", "0013"

INDEX = "uq_jobs_site_assemble"


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
            postgresql_where=sa.text("topic_id IS NULL AND state NOT IN ('done', 'skipped')"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
