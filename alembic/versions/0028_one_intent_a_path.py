"""Keep one intent for a path

No two topics of a site are ever on their way to one path of a target; the second intent is refused here.
"""

from alembic import op

revision, down_revision = "0028", "0027"

INDEX = "uq_publications_intent_path"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="publications", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX, "publications", ["site_id", "target", "intent_path"], unique=True, postgresql_concurrently=True
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="publications", if_exists=True, postgresql_concurrently=True)
