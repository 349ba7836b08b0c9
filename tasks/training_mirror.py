"""What the tracker shows of a training: curves by step, headline figures, the registered draft."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from db.schemas import RunRecord
from db.store import Store
from db.training import TrainingPoint
from tasks.loss_report import LOSS_KIND, LossReport
from tasks.mirrored import ChildRun, CurvePoint, TrackedModel, report_metrics
from tasks.mlflow_client import MlflowMirror
from tasks.run_files import slug
from tasks.training_report import TRAINING_KIND, TrainingReport

_SCALARS = ("loss", "validation_loss", "learning_rate", "gradient_norm", "tokens_per_s")


def curve_points(points: Iterable[TrainingPoint], begun: datetime) -> tuple[CurvePoint, ...]:
    """Return points for the tracker.

    Times are the begin of the run and the seconds of training before a point, so that the same
    point has the same time whenever it is sent.
    """
    return tuple(
        CurvePoint(point.step, round(1000.0 * (begun.timestamp() + point.seconds)), _metrics(point))
        for point in points
    )


def _metrics(point: TrainingPoint) -> dict[str, float]:
    found: dict[str, float | None] = {name: getattr(point, name) for name in _SCALARS}
    for criterion, acceptance in (("greedy", point.greedy), ("sampling", point.sampling)):
        if acceptance is not None:
            found[f"expected_length/{criterion}"] = acceptance.length
            for depth, chance in enumerate(acceptance.by_depth, start=1):
                found[f"expected_acceptance_{criterion}/{depth:02d}"] = chance
    found["phase"] = float(point.phase)
    return {name: value for name, value in found.items() if value is not None}


def training_metrics(report: TrainingReport) -> dict[str, float | None]:
    """Return the headline figures of a training."""
    outcome, checkpoint = report.outcome, report.checkpoint
    found: dict[str, float | None] = {
        "best_step": float(outcome.best.step),
        "start_length": outcome.start.acceptance(outcome.criterion).length,
        "best_length": outcome.best.acceptance(outcome.criterion).length,
        "realised_length": checkpoint.realised_length,
        "train_tokens_per_s": outcome.tokens_per_s,
        "train_seconds": outcome.seconds,
        "peak_bytes": float(outcome.peak_bytes),
    }
    for depth, share in enumerate(checkpoint.realised_acceptance, start=1):
        found[f"realised_acceptance/{depth:02d}"] = share
    for cell in report.evaluation.cells if report.evaluation else ():
        name = f"{cell.domain}/{cell.shape}/T{cell.temperature:g}"
        found[f"accepted_per_step/{name}"] = cell.accepted_per_step
        found[f"speedup/{name}"] = cell.speedup.estimate if cell.speedup else None
    return found


def tracked_model(report: TrainingReport) -> TrackedModel:
    """Return the draft for the registry, with where it comes from in tags."""
    one = report.checkpoint
    tags = {
        "specdec.run_id": report.run_id,
        "specdec.checkpoint_id": str(one.id),
        "specdec.training_key": one.training_key,
        "specdec.state": one.state,
        "target": one.target,
        "target_identity": one.target_identity,
        "draft": one.draft,
        "loss": one.loss,
        "data_hash": one.data_hash,
        "template_hash": one.template_hash,
        "parent": one.parent_hash or "",
        **{f"lineage.{name}": text for name, text in report.outcome.lineage.items()},
    }
    train = report.config.train
    parameters = {
        "loss": report.losses,
        "draft": report.draft,
        "seed": str(train.seed),
        "learning_rate": f"{train.learning_rate:g}",
        "num_epochs": str(train.num_epochs),
    }
    name = f"specdec-draft-{slug(one.target.rpartition(':')[2])[-80:]}-{one.draft_kind}"
    # Seconds and bytes are of the run, not of the model.
    metrics = {
        key: value
        for key, value in training_metrics(report).items()
        if not key.startswith(("train_", "peak_"))
    }
    return TrackedModel(one.content_hash, name, Path(one.folder), tags, parameters, metrics)


def loss_metrics(report: LossReport) -> dict[str, float | None]:
    """Return the headline figures of a comparison for the tracker."""
    found: dict[str, float | None] = {}
    for cell in report.cells:
        name = f"{cell.loss}/{cell.shape}/T{cell.temperature:g}"
        found[f"accepted_per_step/{name}"] = cell.accepted_per_step.estimate
    for change in report.changes_against(report.config.losses[0]):
        name = f"{change.loss}/{change.shape}/T{change.temperature:g}"
        if change.accepted is not None:
            for part in ("estimate", "low", "high"):
                found[f"change_{part}/{name}"] = getattr(change.accepted, part)
    return found


def training_child(report: TrainingReport) -> ChildRun:
    """Return a training as a child of the comparison that it belongs to."""
    train = report.config.train
    named = {"loss": report.losses, "seed": train.seed, "learning_rate": train.learning_rate}
    name = f"{report.losses} seed {train.seed}"
    return ChildRun(report.training_key, name, named, training_metrics(report))


def stored_metrics(run: RunRecord) -> dict[str, float | None]:
    """Return the headline figures of a stored run of any kind; none if it did not end well."""
    if run.status == "completed" and run.kind == TRAINING_KIND:
        return training_metrics(TrainingReport.model_validate(run.summary))
    if run.status == "completed" and run.kind == LOSS_KIND:
        return loss_metrics(LossReport.model_validate(run.summary))
    return report_metrics(run.summary)


def mirror_stored(mirror: MlflowMirror, tracker_id: str, store: Store, run: RunRecord) -> None:
    """Send curves, drafts and children of a stored training or comparison; others have none.

    A training that did not end well has a curve at most.

    Raises:
        TrackerDownError: if the tracker cannot be reached.
    """
    if run.kind == TRAINING_KIND and run.status != "completed":
        for training in store.trainings.list(run_id=run.id):
            mirror.curve(tracker_id, curve_points(training.curve, run.created_at))
    elif run.kind == TRAINING_KIND:
        report = TrainingReport.model_validate(run.summary)
        mirror.curve(tracker_id, curve_points(report.curve, run.created_at))
        if Path(report.checkpoint.folder).is_dir():
            mirror.model(tracker_id, tracked_model(report))
    elif run.kind == LOSS_KIND and run.status == "completed":
        for one in LossReport.model_validate(run.summary).trainings:
            trained = store.runs.get(one.run_id) if one.run_id is not None else None
            if trained is not None:
                child = training_child(TrainingReport.model_validate(trained.summary))
                mirror.child(tracker_id, run.id, child)
