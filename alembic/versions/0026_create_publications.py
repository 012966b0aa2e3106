"""Create the publications

The ledger: what is live at each target and what is intended, so that a retry never publishes twice.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0026", "0025"


def upgrade() -> None:
    op.create_table(
        "publications",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("live_path", sa.Text(), nullable=True),
        sa.Column("live_hash", sa.Text(), nullable=True),
        sa.Column("live_revision", sa.BigInteger(), nullable=True),
        sa.Column("live_remote", sa.Text(), nullable=True),
        sa.Column("live_inputs", sa.Text(), server_default="", nullable=False),
        sa.Column("live_fence", sa.BigInteger(), nullable=True),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("intent_path", sa.Text(), nullable=False),
        sa.Column("intent_hash", sa.Text(), nullable=False),
        sa.Column("intent_revision", sa.BigInteger(), nullable=True),
        sa.Column("intent_inputs", sa.Text(), server_default="", nullable=False),
        sa.Column("intent_token", sa.UUID(), nullable=True),
        sa.Column("intent_fence", sa.BigInteger(), nullable=True),
        sa.Column("intent_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_publications")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_publications_site_id_sites")),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_publications_topic_id_topics")),
        sa.ForeignKeyConstraint(
            ["live_revision"], ["revisions.id"], name=op.f("fk_publications_live_revision_revisions")
        ),
        sa.ForeignKeyConstraint(
            ["intent_revision"], ["revisions.id"], name=op.f("fk_publications_intent_revision_revisions")
        ),
        sa.CheckConstraint(
            "octet_length(target) <= 63 AND octet_length(live_path) <= 1000 AND octet_length(intent_path) <= 1000",
            name=op.f("ck_publications_lengths"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(intent_token, intent_fence, intent_at) IN (0, 3)",
            name=op.f("ck_publications_intent"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(live_path, live_hash, live_remote, first_at, changed_at) IN (0, 5)",
            name=op.f("ck_publications_live"),
        ),
    )


def downgrade() -> None:
    op.drop_table("publications")
