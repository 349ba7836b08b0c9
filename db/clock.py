"""The clock of everything that is stored; imports nothing, as records need no database."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The present time, aware, in UTC."""
    return datetime.now(UTC)
