"""Index the topics that were made again

A prune looks for passes that others have followed. Without this it would read every topic of its site, nearly all of
which have one pass.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0039", "0038"

INDEX = "ix_topics_again"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="topics", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX, "topics", ["site_id", "id"], postgresql_where=sa.text("pass > 1"), postgresql_concurrently=True
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="topics", if_exists=True, postgresql_concurrently=True)
