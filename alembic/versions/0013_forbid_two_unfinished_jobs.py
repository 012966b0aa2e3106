"""Forbid two unfinished jobs of one topic

The law behind planning: whoever plans a topic twice at once is refused here. Its query: the unfinished job of a topic.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0013", "0012"

INDEX = "uq_jobs_topic_unfinished"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "jobs",
            ["topic_id"],
            unique=True,
            postgresql_where=sa.text("state NOT IN ('done', 'skipped')"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
