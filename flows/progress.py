"""Progress of a driver as one number and one line."""

from __future__ import annotations

from tasks.report import Progress


def percent(progress: Progress) -> float:
    """Share of the work known so far that is done, in per cent."""
    return 100.0 * min(progress.done, progress.total) / progress.total if progress.total else 0.0


def describe(progress: Progress) -> str:
    """One line about where the run is."""
    counts = f"{progress.stage}: {progress.done} of {progress.total}"
    return f"{counts}, {progress.text}" if progress.text else counts
