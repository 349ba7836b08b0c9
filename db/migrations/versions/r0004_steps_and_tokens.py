"""Samples get the seconds of every step and the end of every token; of older ones none is known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLE = "specdec_sample_results"
ADDED = ("step_seconds", "token_ends")


def upgrade() -> None:
    """Add the columns, empty."""
    for name in ADDED:
        op.add_column(TABLE, sa.Column(name, sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    with op.batch_alter_table(TABLE) as table:
        for name in ADDED:
            table.drop_column(name)
