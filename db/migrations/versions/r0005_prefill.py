"""Profiles say how prompts are read; those from before read them without what they skip."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

PROFILES = "specdec_skip_profiles"
_PROFILES = sa.table(PROFILES, sa.column("prefill", sa.String()), sa.column("status", sa.String()))


def upgrade() -> None:
    """Add the column."""
    column = sa.Column("prefill", sa.String(), nullable=False, server_default="sparse")
    op.add_column(PROFILES, column)


def downgrade() -> None:
    """Drop the column. What would be served otherwise than it was measured is rejected."""
    changed = sa.update(_PROFILES).where(_PROFILES.c.prefill == "dense").values(status="rejected")
    op.get_bind().execute(changed)
    op.drop_column(PROFILES, "prefill")
