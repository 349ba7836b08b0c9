"""Trainings and comparisons of losses for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from flows.loss_tables import loss_tables
from flows.training_tables import notes_of, training_tables
from tasks.loss_report import LossReport
from tasks.training_report import TrainingReport


def render_training(report: TrainingReport) -> RenderableType:
    """Return a training for the terminal."""
    skipped = f", {', '.join(report.skipped)} done before" if report.skipped else ""
    lines = [report.headline, *notes_of(report), f"run: {report.run_id}{skipped}"]
    return Group(*(view.to_rich() for _, view in training_tables(report)), *map(Text, lines))


def render_losses(report: LossReport) -> RenderableType:
    """Return a comparison of losses for the terminal; every pair is in its files."""
    views = [view for name, view in loss_tables(report) if name != "pairs"]
    lines = [report.headline, *report.all_notes, f"run: {report.run_id}"]
    return Group(*(view.to_rich() for view in views), *map(Text, lines))
