"""Index the revisions by attempt

A resent write looks up what its attempt has made already; unique, so that one attempt makes one revision at most.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0010", "0009"

INDEX = "uq_revisions_fence"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="revisions", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "revisions",
            ["fence"],
            unique=True,
            postgresql_where=sa.text("fence IS NOT NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="revisions", if_exists=True, postgresql_concurrently=True)
