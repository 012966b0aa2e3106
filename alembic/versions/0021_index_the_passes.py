"""Index the passes of a topic

The history of one topic, newest pass first; also what the foreign key to topics is checked by.
"""

from alembic import op

revision, down_revision = "0021", "0020"

INDEX = "ix_jobs_topic"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
        op.create_index(INDEX, "jobs", ["topic_id", "pass"], postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="jobs", if_exists=True, postgresql_concurrently=True)
