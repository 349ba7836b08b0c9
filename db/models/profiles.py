"""The tables of skip profiles, of their moves and of repeated measurements."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from db.columns import Document
from db.models.base import Base

# The natural key: a second write of the same thing meets the first one here.
PROFILE_KEY = ("target_identity", "domain", "drafter", "dtype")


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
    prefill: Mapped[str] = mapped_column(server_default="sparse")
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
