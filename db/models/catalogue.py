"""The tables of what is measured: targets, suites, and the runs that did it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base

# The natural key: a second write of the same thing meets the first one here.
FLOW_RUN_KEY = ("flow_run_id", "kind", "name")


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
