"""Let a job run alone

One that was lost with its worker again and again may be what kills it. It is then taken by a worker whose hands are
empty, so that it takes no other job down with it.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0042", "0041"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("alone", sa.Boolean(), server_default=sa.text("false"), nullable=False))


def downgrade() -> None:
    op.drop_column("jobs", "alone")
