"""Index the findings by topic

A stage gets the findings of its topic's last round, which are those of one attempt.
"""

from alembic import op

revision, down_revision = "0025", "0024"

INDEX = "ix_findings_topic"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="findings", if_exists=True, postgresql_concurrently=True)
        op.create_index(INDEX, "findings", ["topic_id", "fence"], postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="findings", if_exists=True, postgresql_concurrently=True)
