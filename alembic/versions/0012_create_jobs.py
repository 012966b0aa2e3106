"""Create the jobs

Narrow and hot. The lease is in no index and pages keep a fifth of their room, so that renewals are heap-only updates.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0012", "0011"


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("site_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=True),
        sa.Column("topic_id", sa.BigInteger(), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("pass", sa.Integer(), server_default="1", nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("round", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("max_rounds", sa.SmallInteger(), server_default="3", nullable=False),
        sa.Column("cleared", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("hold", sa.Text(), nullable=True),
        sa.Column("priority", sa.SmallInteger(), server_default="2", nullable=False),
        sa.Column("release_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("run_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("run_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gate_id", sa.BigInteger(), nullable=True),
        sa.Column("slot", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("given_back", sa.Integer(), server_default="0", nullable=False),
        sa.Column("snoozed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("token", sa.UUID(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("reserved_by", sa.Text(), nullable=True),
        sa.Column("reserved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_jobs_site_id_sites")),
        sa.ForeignKeyConstraint(["lane_id"], ["lanes.id"], name=op.f("fk_jobs_lane_id_lanes")),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_jobs_topic_id_topics")),
        sa.ForeignKeyConstraint(["gate_id"], ["gates.id"], name=op.f("fk_jobs_gate_id_gates")),
        sa.CheckConstraint(
            "state IN ('waiting', 'pending', 'reserved', 'done', 'failed', 'repair', 'cancelled', 'skipped')",
            name=op.f("ck_jobs_state"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(token, fence, reserved_by, reserved_at, lease_expires_at) = CASE WHEN"
            " state = 'reserved' THEN 5 ELSE 0 END",
            name=op.f("ck_jobs_reserved"),
        ),
        sa.CheckConstraint(
            "(slot IS NOT NULL) = (gate_id IS NOT NULL AND state IN ('pending', 'reserved'))",
            name=op.f("ck_jobs_slot"),
        ),
        sa.CheckConstraint("slot > 0", name=op.f("ck_jobs_slot_number")),
        sa.CheckConstraint("attempts BETWEEN 0 AND max_attempts", name=op.f("ck_jobs_attempts")),
        sa.CheckConstraint(
            "given_back >= 0 AND snoozed >= 0 AND round >= 0 AND max_rounds >= 0",
            name=op.f("ck_jobs_counts"),
        ),
        sa.CheckConstraint(
            "(finished_at IS NOT NULL) = (state IN ('done', 'skipped'))",
            name=op.f("ck_jobs_finished"),
        ),
        sa.CheckConstraint("state <> 'pending' OR run_at IS NOT NULL", name=op.f("ck_jobs_run_at")),
        sa.CheckConstraint("hold IS NULL OR state = 'waiting'", name=op.f("ck_jobs_hold")),
        sa.CheckConstraint("priority BETWEEN 0 AND 3", name=op.f("ck_jobs_priority")),
        sa.CheckConstraint(
            "num_nonnulls(topic_id, lane_id, position) = CASE WHEN stage = 'assemble' THEN 0 ELSE 3 END",
            name=op.f("ck_jobs_topic"),
        ),
        sa.CheckConstraint(
            "isfinite(release_at) AND isfinite(retry_at) AND isfinite(run_at) AND"
            " isfinite(run_until) AND isfinite(reserved_at) AND isfinite(lease_expires_at) AND"
            " isfinite(finished_at)",
            name=op.f("ck_jobs_finite"),
        ),
        postgresql_with={"fillfactor": "80"},
    )


def downgrade() -> None:
    op.drop_table("jobs")
