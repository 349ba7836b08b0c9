"""The tables of evaluations, of their samples, and of which run used them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from db.columns import CompressedText, Document, Microseconds, TokenIds
from db.models.base import Base


class EvaluationTable(Base):
    """One evaluation by content key; `attempts` counts every try, failed ones included."""

    __tablename__ = "specdec_evaluations"
    __table_args__ = (
        CheckConstraint("status IN ('done', 'failed')", name="status"),
        CheckConstraint("(status = 'done') = (summary IS NOT NULL)", name="done_has_summary"),
        Index(None, "target_identity", "domain", "drafter", "skip"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    status: Mapped[str]
    attempts: Mapped[int]
    error_type: Mapped[str | None]
    error: Mapped[str | None] = mapped_column(Text)
    target_identity: Mapped[str]
    domain: Mapped[str]
    drafter: Mapped[str]
    skip: Mapped[str]
    suite_hash: Mapped[str]
    request: Mapped[dict[str, Any]]
    summary: Mapped[dict[str, Any] | None] = mapped_column(Document)
    phases: Mapped[dict[str, Any] | None] = mapped_column(Document)
    wall_s: Mapped[float | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    hardware: Mapped[str]
    created_at: Mapped[datetime]


class SampleTable(Base):
    """One item of an evaluation; token ids compressed, the trace as compact JSON."""

    __tablename__ = "specdec_sample_results"
    __table_args__ = (
        UniqueConstraint("evaluation_id", "position"),
        UniqueConstraint("evaluation_id", "item_id"),
    )

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("specdec_evaluations.id"))
    position: Mapped[int]
    item_id: Mapped[str]
    prompt_tokens: Mapped[int]
    token_ids: Mapped[tuple[int, ...]] = mapped_column(TokenIds)
    text: Mapped[str] = mapped_column(CompressedText)
    answer: Mapped[str] = mapped_column(CompressedText)
    useful_tokens: Mapped[int]
    finish_reason: Mapped[str]
    score: Mapped[float | None]
    raw_score: Mapped[float | None]
    trace: Mapped[str] = mapped_column(Text)
    gaps: Mapped[list[Any]]
    seconds: Mapped[float | None]
    step_seconds: Mapped[tuple[float, ...] | None] = mapped_column(Microseconds)
    token_ends: Mapped[tuple[int, ...] | None] = mapped_column(TokenIds)


class RunEvaluationTable(Base):
    """Which evaluations a run used, and as what; ordered by `id`."""

    __tablename__ = "specdec_run_evaluations"
    __table_args__ = (UniqueConstraint("run_id", "evaluation_id", "role"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"))
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("specdec_evaluations.id"), index=True)
    role: Mapped[str]
    level: Mapped[int | None]
