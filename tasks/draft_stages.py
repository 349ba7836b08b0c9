"""What does the work of a training run: one function per stage, exchangeable as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from db.training import DraftCheckpoint
from specdec_core.config.settings import Settings
from specdec_core.training.manifest import DataManifest
from specdec_core.training.outcome import TrainingOutcome
from tasks.draft_data import make_draft_data
from tasks.draft_evaluation import evaluate_draft
from tasks.draft_exports import export_draft
from tasks.draft_report import DraftEvaluation
from tasks.runtime import LogLine
from tasks.training import train_draft
from tasks.training_sweep import SweepOutcome, sweep_training


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a training run; see the functions that are the defaults."""

    make_data: Callable[..., tuple[Path, DataManifest]] = make_draft_data
    train: Callable[..., TrainingOutcome] = train_draft
    sweep: Callable[..., SweepOutcome] = sweep_training
    evaluate: Callable[..., DraftEvaluation] = evaluate_draft
    export: Callable[
        [DraftCheckpoint, DraftEvaluation | None, Path, Settings, LogLine], tuple[Path, ...]
    ] = export_draft
