"""The tables of draft training: trainings with their curves, and draft checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.columns import Document
from db.models.base import Base


class TrainingTable(Base):
    """One training by content key; it changes until it is done."""

    __tablename__ = "specdec_training_runs"
    __table_args__ = (
        CheckConstraint("status IN ('running', 'done')", name="status"),
        CheckConstraint(
            "status = 'running' OR checkpoint IS NOT NULL", name="done_has_a_checkpoint"
        ),
        Index(None, "target_identity", "draft_kind", "loss"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"), index=True)
    status: Mapped[str]
    target: Mapped[str]
    target_identity: Mapped[str]
    draft: Mapped[str]
    draft_kind: Mapped[str]
    loss: Mapped[str]
    seed: Mapped[int]
    learning_rate: Mapped[float]
    data_hash: Mapped[str]
    template_hash: Mapped[str]
    config: Mapped[dict[str, Any]]
    outcome: Mapped[dict[str, Any]]
    curve: Mapped[list[Any]]
    checkpoint: Mapped[str | None]
    hardware: Mapped[str]
    wall_s: Mapped[float | None]
    created_at: Mapped[datetime]


class DraftCheckpointTable(Base):
    """One trained draft by the hash of its files."""

    __tablename__ = "specdec_draft_checkpoints"
    __table_args__ = (
        CheckConstraint("state IN ('candidate', 'validated', 'rejected')", name="state"),
        CheckConstraint("(evaluation_key IS NULL) = (evaluation IS NULL)", name="evaluated_whole"),
        Index(None, "target_identity", "draft_kind"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    content_hash: Mapped[str] = mapped_column(unique=True)
    training_key: Mapped[str] = mapped_column(ForeignKey("specdec_training_runs.key"), index=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"), index=True)
    parent_hash: Mapped[str | None]
    target: Mapped[str]
    target_identity: Mapped[str]
    draft: Mapped[str]
    draft_kind: Mapped[str]
    loss: Mapped[str]
    seed: Mapped[int]
    data_hash: Mapped[str]
    template_hash: Mapped[str]
    phase: Mapped[int]
    step: Mapped[int]
    folder: Mapped[str] = mapped_column(Text)
    criterion: Mapped[str]
    expected_length: Mapped[float | None]
    expected_acceptance: Mapped[list[Any]]
    realised_length: Mapped[float | None]
    realised_acceptance: Mapped[list[Any]]
    evaluation_key: Mapped[str | None]
    evaluation: Mapped[dict[str, Any] | None] = mapped_column(Document)
    state: Mapped[str]
    reason: Mapped[str] = mapped_column(Text)
    exports: Mapped[list[Any]]
    created_at: Mapped[datetime]
