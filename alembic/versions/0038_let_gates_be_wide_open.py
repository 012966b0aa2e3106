"""Let gates be wide open

A stage that is limited no longer keeps its gates, since gates are never deleted: one without a width lets all pass. The
way back gives them a width that nobody reaches.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0038", "0037"


def upgrade() -> None:
    op.alter_column("gates", "width", existing_type=sa.Integer(), nullable=True)


def downgrade() -> None:
    op.execute("UPDATE gates SET width = 1000 WHERE width IS NULL")
    op.alter_column("gates", "width", existing_type=sa.Integer(), nullable=False)
