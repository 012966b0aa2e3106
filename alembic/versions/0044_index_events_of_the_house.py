"""Index what was done to lanes and sites

Who paused a lane, when and why: without this, every list of lanes would walk back through all events of all jobs.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0044", "0043"

INDEX = "ix_events_house"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="events", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "events",
            ["lane_id", "site_id", "id"],
            postgresql_where=sa.text("job_id IS NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="events", if_exists=True, postgresql_concurrently=True)
