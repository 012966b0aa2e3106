"""Create the stages

The order of the stages is data, so that a release which adds one leaves running jobs their way.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"


def upgrade() -> None:
    op.create_table(
        "stages",
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default="active", nullable=False),
        sa.Column("width", sa.Integer(), nullable=True),
        sa.Column("max_attempts", sa.Integer(), server_default="5", nullable=False),
        sa.PrimaryKeyConstraint("site_id", "name", name=op.f("pk_stages")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_stages_site_id_sites")),
        sa.UniqueConstraint("site_id", "ordinal", name=op.f("uq_stages_site_id_ordinal")),
        sa.CheckConstraint("state IN ('active', 'paused', 'retired')", name=op.f("ck_stages_state")),
        sa.CheckConstraint("width > 0", name=op.f("ck_stages_width")),
        sa.CheckConstraint("ordinal >= 0", name=op.f("ck_stages_ordinal")),
        sa.CheckConstraint("max_attempts > 0", name=op.f("ck_stages_max_attempts")),
        sa.CheckConstraint(
            "octet_length(name) BETWEEN 1 AND 63 AND name <> 'assemble'",
            name=op.f("ck_stages_name"),
        ),
    )


def downgrade() -> None:
    op.drop_table("stages")
