"""Index the folded titles

The site rules look for pages of one site with the same title. Without this index that reads every revision.
"""

from alembic import op

revision, down_revision = "0008", "0007"

INDEX = "ix_revisions_title"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="revisions", if_exists=True, postgresql_concurrently=True)
        op.create_index(INDEX, "revisions", ["site_id", "title_key"], postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="revisions", if_exists=True, postgresql_concurrently=True)
