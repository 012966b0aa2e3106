"""Keep one publication for a topic and target

The ledger's lookup and its law: two workers never open two ledgers for one page.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0027", "0026"

INDEX = "uq_publications_topic"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="publications", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "publications",
            ["topic_id", "target"],
            unique=True,
            postgresql_where=sa.text("topic_id IS NOT NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="publications", if_exists=True, postgresql_concurrently=True)
