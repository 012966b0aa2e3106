"""Note what was approved

The hash of the draft that a person approved, so that a stage which asked for it knows, and knows it of that draft only.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0040", "0039"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("approved", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "approved")
