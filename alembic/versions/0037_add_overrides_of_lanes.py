"""Let lanes differ

What a lane has otherwise than its stages say: a longer lease, another width. By stage, as one small object on the
lane's row, which the claim reads anyhow.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision = "0037", "0036"


def upgrade() -> None:
    op.add_column(
        "lanes", sa.Column("overrides", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False)
    )
    op.create_check_constraint(op.f("ck_lanes_overrides"), "lanes", "jsonb_typeof(overrides) = 'object'")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_lanes_overrides"), "lanes", type_="check")
    op.drop_column("lanes", "overrides")
