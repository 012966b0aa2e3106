"""Index the attempts by job

The history of one job, in order; also what pruning deletes by.
"""

from alembic import op

revision, down_revision = "0023", "0022"

INDEX = "ix_attempts_job"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="attempts", if_exists=True, postgresql_concurrently=True)
        op.create_index(INDEX, "attempts", ["job_id", "fence"], postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="attempts", if_exists=True, postgresql_concurrently=True)
