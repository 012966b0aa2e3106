"""Create the redirects

Addresses that pages had once, so that a moved page is still found.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0030", "0029"


def upgrade() -> None:
    op.create_table(
        "redirects",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("from_path", sa.Text(), nullable=False),
        sa.Column("to_path", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_redirects")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_redirects_site_id_sites")),
        sa.UniqueConstraint("site_id", "from_path", name=op.f("uq_redirects_site_id_from_path")),
        sa.CheckConstraint(
            "octet_length(from_path) <= 1000 AND octet_length(to_path) <= 1000",
            name=op.f("ck_redirects_lengths"),
        ),
    )


def downgrade() -> None:
    op.drop_table("redirects")
