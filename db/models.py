"""The tables: typed SQLAlchemy models, read and written through the repositories only.

Every table is prefixed ``specdec_`` so that the schema may share a database with neighbours.
`SCHEMA_REVISION` names the Alembic revision that these models describe.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db.columns import CompressedText, Document, TokenIds, UtcDateTime

SCHEMA_REVISION = "0003"
TABLE_PREFIX = "specdec_"
VERSION_TABLE = "specdec_alembic_version"

# Natural keys: a second write of the same thing meets the first one here.
FLOW_RUN_KEY = ("flow_run_id", "kind", "name")
PROFILE_KEY = ("target_identity", "domain", "drafter", "dtype")
CALIBRATION_KEY = ("target_identity", "dtype", "hardware", "skip", "context_tokens")
CELL_KEY = ("run_id", "target_identity", "dtype", "domain", "drafter", "skip")

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Declarative base of every table."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - read once by SQLAlchemy, as its documentation asks
        str: String(),
        datetime: UtcDateTime(),
        dict[str, Any]: Document(),
        list[Any]: Document(),
    }


class TargetTable(Base):
    """A target model, by the content hash of its configuration, weights and tokenizer."""

    __tablename__ = "specdec_targets"

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(unique=True)
    reference: Mapped[str]
    kind: Mapped[str]
    architecture: Mapped[str]
    num_layers: Mapped[int]
    license_note: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class SuiteTable(Base):
    """An evaluation suite, by content hash."""

    __tablename__ = "specdec_suites"

    id: Mapped[int] = mapped_column(primary_key=True)
    content_hash: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    domain: Mapped[str]
    source: Mapped[str]
    num_items: Mapped[int]
    created_at: Mapped[datetime]


class RunTable(Base):
    """One run of a flow: what was asked, from which code, and how it ended."""

    __tablename__ = "specdec_runs"
    __table_args__ = (
        UniqueConstraint(*FLOW_RUN_KEY),
        CheckConstraint("status IN ('running', 'completed', 'failed', 'cancelled')", name="status"),
        Index(None, "kind", "status"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    name: Mapped[str]
    status: Mapped[str]
    config: Mapped[dict[str, Any]]
    provenance: Mapped[dict[str, Any]]
    summary: Mapped[dict[str, Any]]
    flow_run_id: Mapped[str | None]
    tracker_id: Mapped[str | None]
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(index=True)
    updated_at: Mapped[datetime]


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


class RunEvaluationTable(Base):
    """Which evaluations a run used, and as what; ordered by `id`."""

    __tablename__ = "specdec_run_evaluations"
    __table_args__ = (UniqueConstraint("run_id", "evaluation_id", "role"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"))
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("specdec_evaluations.id"), index=True)
    role: Mapped[str]
    level: Mapped[int | None]


class SkipProfileTable(Base):
    """One version of a skip profile; at most one is active per key."""

    __tablename__ = "specdec_skip_profiles"
    __table_args__ = (
        UniqueConstraint(*PROFILE_KEY, "version", name="uq_specdec_skip_profiles_version"),
        UniqueConstraint("run_id", *PROFILE_KEY, "skip", name="uq_specdec_skip_profiles_run"),
        CheckConstraint(
            "status IN ('candidate', 'validated', 'active', 'retired', 'rejected')", name="status"
        ),
        CheckConstraint("is_dense = (skip = '')", name="dense_skips_nothing"),
        Index(
            "uq_specdec_skip_profiles_active",
            *PROFILE_KEY,
            unique=True,
            sqlite_where=text("status = 'active'"),
            postgresql_where=text("status = 'active'"),
        ),
        Index(None, "status", "domain", "target"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int]
    target: Mapped[str]
    target_identity: Mapped[str]
    num_layers: Mapped[int]
    dtype: Mapped[str]
    domain: Mapped[str]
    drafter: Mapped[str]
    skip: Mapped[str]
    status: Mapped[str]
    is_dense: Mapped[bool]
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"))
    suite_hash: Mapped[str]
    template_hash: Mapped[str]
    hardware: Mapped[str]
    selection: Mapped[dict[str, Any]]
    heldout: Mapped[dict[str, Any] | None] = mapped_column(Document)
    tolerance_acceptance: Mapped[float]
    tolerance_metric: Mapped[float]
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]


class ProfileTransitionTable(Base):
    """One change of status of a profile version, never changed itself; ordered by `id`."""

    __tablename__ = "specdec_profile_transitions"

    id: Mapped[int] = mapped_column(primary_key=True)
    profile_id: Mapped[int] = mapped_column(ForeignKey("specdec_skip_profiles.id"), index=True)
    from_status: Mapped[str | None]
    to_status: Mapped[str]
    reason: Mapped[str] = mapped_column(Text)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("specdec_runs.id"))
    command: Mapped[str] = mapped_column(Text)
    actor: Mapped[str]
    created_at: Mapped[datetime]


class ProfileVerificationTable(Base):
    """One repeated held-out measurement of a profile version; ordered by `id`."""

    __tablename__ = "specdec_profile_verifications"

    id: Mapped[int] = mapped_column(primary_key=True)
    profile_id: Mapped[int] = mapped_column(ForeignKey("specdec_skip_profiles.id"), index=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("specdec_runs.id"), unique=True)
    holds: Mapped[bool]
    reason: Mapped[str] = mapped_column(Text)
    heldout: Mapped[dict[str, Any] | None] = mapped_column(Document)
    hardware: Mapped[str]
    created_at: Mapped[datetime]


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
