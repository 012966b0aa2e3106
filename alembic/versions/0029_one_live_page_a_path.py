"""Keep one live page for a path

At most one page is live at a path; assembling reads a site's live pages in the order of this index.
"""

from alembic import op

revision, down_revision = "0029", "0028"

INDEX = "uq_publications_live_path"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        # A failed build leaves an invalid index behind.
        op.drop_index(INDEX, table_name="publications", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX, "publications", ["site_id", "target", "live_path"], unique=True, postgresql_concurrently=True
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        op.drop_index(INDEX, table_name="publications", if_exists=True, postgresql_concurrently=True)
