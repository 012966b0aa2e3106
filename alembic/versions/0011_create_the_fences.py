"""Create the fences

A number for each reservation, growing: the key of attempts, and what outside targets compare.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0011", "0010"


def upgrade() -> None:
    op.execute(sa.schema.CreateSequence(sa.Sequence("fences")))


def downgrade() -> None:
    op.execute(sa.schema.DropSequence(sa.Sequence("fences")))
