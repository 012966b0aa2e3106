"""Drop what knew them by their states

Two indexes with the same rows and the same laws stand beside these by now.
"""

from alembic import op

revision, down_revision = "0048", "0047"

# By index: its column, and the condition of its rows.
OLD = {
    "uq_jobs_topic_unfinished": ("topic_id", "state NOT IN ('done', 'skipped')"),
    "uq_jobs_site_assemble": ("site_id", "topic_id IS NULL AND state NOT IN ('done', 'skipped')"),
}


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        for index in OLD:
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")
        op.execute("SET lock_timeout = 0")
        for index, (column, condition) in OLD.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
            op.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {index} ON jobs ({column}) WHERE {condition}")
