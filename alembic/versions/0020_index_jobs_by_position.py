"""Index the jobs by position

Who blocks a strict gate, and how far ``passed`` may move, are read from a lane's jobs by position.
"""

from alembic import op

revision, down_revision = "0020", "0019"

INDEX = "ix_jobs_lane_position"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(INDEX, "jobs", ["lane_id", "position"], postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
