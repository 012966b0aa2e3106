"""Index the events by job

``explain`` and a job's page show what was done to it, in order. Events of sites and lanes stay out.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0035", "0034"

INDEX = "ix_events_job"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="events", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "events",
            ["job_id", "id"],
            postgresql_where=sa.text("job_id IS NOT NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="events", if_exists=True, postgresql_concurrently=True)
