"""The tables of measured seconds: calibrations, benchmark cells, and named baselines."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.columns import CompressedText, Document
from db.models.base import Base

# Natural keys: a second write of the same thing meets the first one here.
CALIBRATION_KEY = ("target_identity", "dtype", "hardware", "skip", "context_tokens")
CELL_KEY = ("run_id", "target_identity", "dtype", "domain", "drafter", "skip")


class CalibrationTable(Base):
    """The measured step-time curve of one target on one hardware; the latest replaces."""

    __tablename__ = "specdec_calibrations"
    __table_args__ = (UniqueConstraint(*CALIBRATION_KEY, name="uq_specdec_calibrations_key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    target: Mapped[str]
    target_identity: Mapped[str]
    dtype: Mapped[str]
    hardware: Mapped[str]
    skip: Mapped[str]
    context_tokens: Mapped[int]
    run_id: Mapped[str | None] = mapped_column(ForeignKey("specdec_runs.id"))
    curve: Mapped[list[Any]]
    layers: Mapped[list[Any]]
    created_at: Mapped[datetime]


class BenchmarkCellTable(Base):
    """One (target, method, domain) cell of a benchmark run, with its raw timings."""

    __tablename__ = "specdec_benchmark_cells"
    __table_args__ = (
        UniqueConstraint(*CELL_KEY, name="uq_specdec_benchmark_cells_key"),
        CheckConstraint("status IN ('done', 'failed')", name="status"),
        Index(None, "domain", "drafter"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"))
    target: Mapped[str]
    target_identity: Mapped[str]
    dtype: Mapped[str]
    domain: Mapped[str]
    drafter: Mapped[str]
    skip: Mapped[str]
    status: Mapped[str]
    error: Mapped[str | None] = mapped_column(Text)
    suite_hash: Mapped[str]
    hardware: Mapped[str]
    evaluation_key: Mapped[str | None]
    baseline_key: Mapped[str | None]
    sampling: Mapped[str]
    is_lossless: Mapped[bool]
    is_synthetic: Mapped[bool]
    certificate: Mapped[dict[str, Any] | None] = mapped_column(Document)
    figures: Mapped[dict[str, Any] | None] = mapped_column(Document)
    samples: Mapped[str] = mapped_column(CompressedText)
    created_at: Mapped[datetime]


class BaselineTable(Base):
    """The benchmark runs that a name has pointed to; the newest row counts."""

    __tablename__ = "specdec_baselines"
    __table_args__ = (Index(None, "name", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"))
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
