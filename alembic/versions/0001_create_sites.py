"""Create the sites

One row a publication. ``changed`` is raised by whatever alters what is live, ``built`` is the value last assembled.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0001", None


def upgrade() -> None:
    op.create_table(
        "sites",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), server_default="UTC", nullable=False),
        sa.Column("locale", sa.Text(), server_default="en", nullable=False),
        sa.Column("state", sa.Text(), server_default="active", nullable=False),
        sa.Column("settings", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("changed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("built", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("fingerprint", sa.Text(), server_default="", nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sites")),
        sa.UniqueConstraint("slug", name=op.f("uq_sites_slug")),
        sa.CheckConstraint(
            "slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$' AND octet_length(slug) <= 200",
            name=op.f("ck_sites_slug"),
        ),
        sa.CheckConstraint("state IN ('active', 'paused')", name=op.f("ck_sites_state")),
        sa.CheckConstraint("built <= changed", name=op.f("ck_sites_built")),
    )


def downgrade() -> None:
    op.drop_table("sites")
