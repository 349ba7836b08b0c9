"""Profiles say how prompts are read; those from before read them without what they skip."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

PROFILES = "specdec_skip_profiles"
_PROFILES = sa.table(
    PROFILES,
    sa.column("id", sa.Integer()),
    sa.column("prefill", sa.String()),
    sa.column("status", sa.String()),
)
_TRANSITIONS = sa.table(
    "specdec_profile_transitions",
    sa.column("profile_id", sa.Integer()),
    *(sa.column(name, sa.String()) for name in ("from_status", "to_status", "reason")),
    *(sa.column(name, sa.String()) for name in ("command", "actor")),
    sa.column("created_at", sa.DateTime(timezone=True)),
)


def upgrade() -> None:
    """Add the column."""
    column = sa.Column("prefill", sa.String(), nullable=False, server_default="sparse")
    op.add_column(PROFILES, column)


def downgrade() -> None:
    """Drop the column. What would be served otherwise than it was measured is rejected."""
    connection = op.get_bind()
    is_served = (_PROFILES.c.prefill == "dense") & (_PROFILES.c.status != "rejected")
    moved = connection.execute(sa.select(_PROFILES.c.id, _PROFILES.c.status).where(is_served)).all()
    moves = [
        {
            "profile_id": row.id,
            "from_status": row.status,
            "to_status": "rejected",
            "reason": "it was measured with dense prefill, which the former schema cannot say",
            "command": "",
            "actor": "",
            "created_at": datetime.now(UTC),
        }
        for row in moved
    ]
    if moves:
        op.bulk_insert(_TRANSITIONS, moves)
    connection.execute(sa.update(_PROFILES).where(is_served).values(status="rejected"))
    op.drop_column(PROFILES, "prefill")
