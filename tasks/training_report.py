"""What a training from data to export says: one record for terminal, flow, store and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from db.training import CheckpointState, DraftCheckpoint, TrainingPoint
from specdec_core.config.base import Record
from specdec_core.config.training import Criterion
from specdec_core.config.training_run import TrainingRunConfig
from specdec_core.training.manifest import DataCounts, DataManifest
from specdec_core.training.outcome import TrainingOutcome
from tasks.draft_report import DraftCell, DraftEvaluation

TRAINING_KIND = "train-drafter"
Stage = Literal["data", "sweep", "training", "evaluation", "export"]


class DataSummary(Record):
    """The training data in numbers."""

    key: str = Field(description="content key")
    folder: str
    template_hash: str
    num_prompts: int
    num_samples: int
    num_tokens: int
    num_response_tokens: int
    dropped: dict[str, int] = Field(description="prompts left out, by reason")

    @classmethod
    def of(cls, folder: Path, manifest: DataManifest) -> Self:
        """Return the summary of the data in `folder`."""
        counts = manifest.counts or DataCounts()
        return cls(
            key=manifest.key,
            folder=str(folder),
            template_hash=manifest.template_hash,
            num_prompts=manifest.num_prompts,
            num_samples=counts.num_samples,
            num_tokens=counts.num_tokens,
            num_response_tokens=counts.num_response_tokens,
            dropped=dict(manifest.dropped),
        )


class TrainingReport(Record):
    """The result of one training; stored as the summary of its run."""

    run_id: str
    headline: str = Field(description="the result in one sentence")
    config: TrainingRunConfig = Field(description="as it was asked for")
    target: str
    target_identity: str
    draft: str = Field(description="canonical text")
    losses: str = Field(description="phases joined by /")
    data: DataSummary
    training_key: str = Field(description="content key of the training")
    outcome: TrainingOutcome
    curve: tuple[TrainingPoint, ...] = Field(description="oldest first")
    sweep: dict[str, Any] | None = Field(
        None, description="trials that sought learning rate and loss weight, if asked for"
    )
    checkpoint: DraftCheckpoint
    evaluation: DraftEvaluation | None = Field(None, description="None if it was not asked for")
    skipped: tuple[Stage, ...] = Field(
        (), description="stages that were answered from what is stored"
    )
    stage_s: dict[Stage, float] = Field(
        default_factory=dict, description="seconds of this run, by stage"
    )
    hardware: str = ""
    log_file: str = ""
    notes: tuple[str, ...] = Field((), description="what could not be done, and why")

    @property
    def state(self) -> CheckpointState:
        """Whether the draft does in decoding what training says."""
        return self.checkpoint.state

    @property
    def is_good(self) -> bool:
        """Whether nothing speaks against the draft."""
        return self.state != "rejected"


class Realised(Record):
    """Chains in the decode loop, pooled over domains, as validation in training sees them."""

    length: float = Field(description="accepted tokens per verify step, and the bonus token")
    by_depth: tuple[float, ...] = Field(description="accepted of the steps that reached a depth")
    expected: tuple[float, ...] = Field(
        description="teacher-forced chance at just these steps, by depth"
    )
    num_steps: int


def chain_cells(evaluation: DraftEvaluation, temperature: float) -> tuple[DraftCell, ...]:
    """Return the measured chains of one temperature."""
    return tuple(
        cell
        for cell in evaluation.cells
        if cell.shape == "chain" and cell.temperature == temperature and cell.samples
    )


def realised_of(
    evaluation: DraftEvaluation, criterion: Criterion, temperature: float
) -> Realised | None:
    """Return what chains reached where the criterion applies; None where nothing was measured.

    Args:
        evaluation: Of the draft.
        criterion: Acceptance that chose the checkpoint.
        temperature: Of the training, which the criterion of sampling is at.
    """
    cells = chain_cells(evaluation, 0.0 if criterion == "greedy" else temperature)
    num_steps = sum(sample.num_steps for cell in cells for sample in cell.samples)
    if not num_steps:
        return None
    accepted = sum(sum(sample.accepted) for cell in cells for sample in cell.samples)
    trials: dict[int, list[tuple[int, float, float]]] = {}
    for depth in (each for cell in cells for each in cell.depths if each.num_trials):
        trials.setdefault(depth.depth, []).append(
            (depth.num_trials, depth.realised, depth.expected)
        )
    pooled = [
        (
            sum(n * realised for n, realised, _ in rows) / sum(n for n, _, _ in rows),
            sum(n * expected for n, _, expected in rows) / sum(n for n, _, _ in rows),
        )
        for _, rows in sorted(trials.items())
    ]
    return Realised(
        length=1.0 + accepted / num_steps,
        by_depth=tuple(realised for realised, _ in pooled),
        expected=tuple(expected for _, expected in pooled),
        num_steps=num_steps,
    )


def judge(evaluation: DraftEvaluation) -> tuple[CheckpointState, str]:
    """Return the state that follows from an evaluation, and why."""
    failed = evaluation.failed_cells
    measured = [cell for cell in evaluation.cells if cell.error is None]
    if not measured:
        errors = "; ".join(dict.fromkeys(cell.error or "" for cell in failed))
        return "rejected", f"nothing could be decoded with it: {errors or 'no cells'}"
    if not evaluation.is_agreed:
        failures = evaluation.failures
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        return "rejected", f"accepts otherwise in decoding than in training: {failures[0]}{more}"
    if failed:
        return "candidate", (
            f"{len(failed)} of {len(evaluation.cells)} cells failed ({failed[0].error}): the same "
            "command tries them again"
        )
    unchecked = [setting.name for setting in evaluation.settings if not setting.is_checked]
    if unchecked:
        few = "; ".join(unchecked)
        return "candidate", f"too few steps to compare with training ({few}): evaluate more prompts"
    num_checked = sum(depth.is_checked for each in evaluation.settings for depth in each.depths)
    return "validated", (
        "realised acceptance is the expected one in every shape and temperature, at "
        f"{num_checked} depths over all domains"
    )


def step_text(step: int) -> str:
    """Return the step of the checkpoint that was kept, in words where it is the start."""
    return str(step) if step else "0 (its start: no step was better)"


def headline(draft: str, losses: str, outcome: TrainingOutcome, checkpoint: DraftCheckpoint) -> str:
    """Return the result in one sentence."""
    start, best = (
        outcome.start.acceptance(outcome.criterion),
        outcome.best.acceptance(outcome.criterion),
    )
    realised = checkpoint.realised_length
    decoded = "" if realised is None else f", {realised:.3f} in decoding"
    step = outcome.best.step
    kept = f"{best.length:.3f} after {step} steps" if step else "and no step was better"
    return (
        f"{draft} under {losses}: expected acceptance length {start.length:.3f} before, {kept} "
        f"({outcome.criterion}){decoded}; {checkpoint.state}"
    )
