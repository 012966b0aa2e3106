"""Create the findings

What the rules complained about; a rejected job takes them back to generate.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0024", "0023"


def upgrade() -> None:
    op.create_table(
        "findings",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("revision_id", sa.BigInteger(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("column_number", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_findings_topic_id_topics")),
        sa.ForeignKeyConstraint(["revision_id"], ["revisions.id"], name=op.f("fk_findings_revision_id_revisions")),
        sa.CheckConstraint("severity IN ('error', 'warning', 'info')", name=op.f("ck_findings_severity")),
    )


def downgrade() -> None:
    op.drop_table("findings")
