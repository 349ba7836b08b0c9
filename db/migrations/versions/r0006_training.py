"""Draft training: trainings by content key with their curves, and draft checkpoints."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TRAININGS = "specdec_training_runs"
CHECKPOINTS = "specdec_draft_checkpoints"
_SHARED = ("run_id", "target", "target_identity", "draft", "draft_kind", "loss")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        TRAININGS,
        _integer("id"),
        *_strings("key", *_SHARED, "status", "data_hash", "template_hash", "hardware"),
        _integer("seed"),
        sa.Column("learning_rate", sa.Double(), nullable=False),
        *_documents("config", "outcome", "curve"),
        sa.Column("checkpoint", sa.String(), nullable=True),
        sa.Column("wall_s", sa.Double(), nullable=True),
        *_common(TRAININGS, "key"),
        sa.CheckConstraint("status IN ('running', 'done')", name=op.f(f"ck_{TRAININGS}_status")),
        sa.CheckConstraint(
            "status = 'running' OR checkpoint IS NOT NULL",
            name=op.f(f"ck_{TRAININGS}_done_has_a_checkpoint"),
        ),
    )
    op.create_table(
        CHECKPOINTS,
        _integer("id"),
        *_strings("content_hash", "training_key", *_SHARED, "data_hash", "template_hash"),
        *_strings("criterion", "state"),
        sa.Column("parent_hash", sa.String(), nullable=True),
        *(_integer(name) for name in ("seed", "phase", "step")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("folder", "reason")),
        *(
            sa.Column(name, sa.Double(), nullable=True)
            for name in ("expected_length", "realised_length")
        ),
        *_documents("expected_acceptance", "realised_acceptance", "exports"),
        sa.Column("evaluation_key", sa.String(), nullable=True),
        sa.Column("evaluation", sa.JSON(none_as_null=True), nullable=True),
        *_common(CHECKPOINTS, "content_hash"),
        sa.ForeignKeyConstraint(
            ["training_key"], [f"{TRAININGS}.key"], name=f"fk_{CHECKPOINTS}_training_key"
        ),
        sa.CheckConstraint(
            "state IN ('candidate', 'validated', 'rejected')", name=op.f(f"ck_{CHECKPOINTS}_state")
        ),
        sa.CheckConstraint(
            "(evaluation_key IS NULL) = (evaluation IS NULL)",
            name=op.f(f"ck_{CHECKPOINTS}_evaluated_whole"),
        ),
    )
    _index(TRAININGS, "target_identity", "draft_kind", "loss")
    _index(CHECKPOINTS, "target_identity", "draft_kind")
    _index(CHECKPOINTS, "training_key")
    for table in (TRAININGS, CHECKPOINTS):
        _index(table, "run_id")


def downgrade() -> None:
    """Drop the tables; the files of checkpoints stay where they are."""
    op.drop_table(CHECKPOINTS)
    op.drop_table(TRAININGS)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False)


def _strings(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(), nullable=False) for name in names]


def _documents(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.JSON(none_as_null=True), nullable=False) for name in names]


def _common(table: str, natural: str) -> tuple[Any, ...]:
    return (
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        sa.UniqueConstraint(natural, name=f"uq_{table}_{natural}"),
        sa.ForeignKeyConstraint(["run_id"], ["specdec_runs.id"], name=f"fk_{table}_run_id"),
    )


def _index(table: str, *columns: str) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, list(columns))
