"""Point topics at their current revision

Topics and revisions name each other, so this key comes after both; it is deferred, since they are born together.
"""

from alembic import op

revision, down_revision = "0007", "0006"


def upgrade() -> None:
    op.create_foreign_key(
        op.f("fk_topics_revision_id_revisions"),
        "topics",
        "revisions",
        ["revision_id"],
        ["id"],
        deferrable=True,
        initially="DEFERRED",
    )


def downgrade() -> None:
    op.drop_constraint(op.f("fk_topics_revision_id_revisions"), "topics", type_="foreignkey")
