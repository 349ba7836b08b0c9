"""The rows of a training and of its checkpoint, from what was asked for and what came of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from db.store import Store
from db.training import DraftCheckpoint, TrainingRecord
from specdec_core.config.settings import Settings
from specdec_core.config.training import ModelDraft, TrainConfig, format_draft
from specdec_core.config.training_run import losses_of
from specdec_core.errors import ConfigError
from specdec_core.models.reference import ModelRef
from specdec_core.training.manifest import DataManifest
from specdec_core.training.outcome import TrainingOutcome
from tasks.draft_report import DraftEvaluation
from tasks.runtime import LogLine, patient_lock
from tasks.training_keys import folder_hash


def training_record(
    key: str, run_id: str, train: TrainConfig, manifest: DataManifest, hardware: str
) -> TrainingRecord:
    """Return the row of a training that begins."""
    return TrainingRecord(
        key=key,
        status="running",
        run_id=run_id,
        target=manifest.target,
        target_identity=manifest.target_identity,
        draft=format_draft(train.draft),
        draft_kind=train.draft.kind,
        loss=losses_of(train),
        seed=train.seed,
        learning_rate=train.learning_rate,
        data_hash=manifest.key,
        template_hash=manifest.template_hash,
        config=train.model_dump(mode="json"),
        hardware=hardware,
    )


def checkpoint_of(
    training: TrainingRecord, outcome: TrainingOutcome, parent: str | None
) -> DraftCheckpoint:
    """Return the row of the best checkpoint of a finished training.

    Args:
        training: The training, its checkpoint's content hash known.
        outcome: Of it.
        parent: Content hash of the checkpoint that it started from.
    """
    assert training.checkpoint is not None
    best = outcome.best.acceptance(outcome.criterion)
    shared = {
        name: getattr(training, name)
        for name in DraftCheckpoint.model_fields
        if name in TrainingRecord.model_fields and name != "created_at"
    }
    return DraftCheckpoint(
        **shared,
        content_hash=training.checkpoint,
        training_key=training.key,
        parent_hash=parent,
        phase=outcome.best.phase,
        step=outcome.best.step,
        folder=str(outcome.draft_folder),
        criterion=outcome.criterion,
        expected_length=best.length,
        expected_acceptance=best.by_depth,
    )


def holds_draft(folder: Path, content_hash: str) -> bool:
    """True if a folder is there and its files are those with this hash."""
    try:
        return folder_hash(folder) == content_hash
    except ConfigError:
        return False


def drop_changed_draft(
    folder: Path, content_hash: str, checkpoint: DraftCheckpoint | None, log: LogLine
) -> None:
    """Say why a training that was done is looked at again; put aside a draft that was changed.

    Args:
        folder: Where the training leaves its draft.
        content_hash: Of what it left.
        checkpoint: The same as it is registered; None if it is not.
        log: Takes lines for the user.
    """
    if checkpoint is None:
        log(f"draft {content_hash[:12]} was trained, but not registered")
    else:
        log(
            f"{checkpoint.folder} does not hold the files of checkpoint {checkpoint.id} any more: "
            "they are gone or were changed"
        )
    if folder.is_dir() and not holds_draft(folder, content_hash):
        aside = folder.with_name(f"{folder.name}-changed-{time.time_ns()}")
        folder.replace(aside)
        log(f"it is {aside} now: the draft is trained again")


@contextlib.contextmanager
def alone_with(
    store: Store,
    content_hash: str,
    settings: Settings,
    should_stop: Callable[[], bool],
    log: LogLine,
) -> Iterator[DraftCheckpoint]:
    """Wait until no other process evaluates or exports a draft; yield it as it is stored then.

    Args:
        store: Where it is registered.
        content_hash: Of its files.
        settings: Where drafts are exported to.
        should_stop: Asked while waiting.
        log: Takes lines for the user.

    Raises:
        SearchCancelledError: if told to stop while waiting.
    """
    lock = settings.home_dir / "drafts" / f".{content_hash[:16]}.lock"
    text = f"another process evaluates or exports draft {content_hash[:12]}: waiting for it"
    with patient_lock(lock, should_stop, lambda: log(text)):
        found = store.checkpoints.find(content_hash)
        assert found is not None  # rows of checkpoints are never deleted
        yield found


def stored_evaluation(store: Store, checkpoint: DraftCheckpoint) -> DraftEvaluation | None:
    """Return the report of a checkpoint's evaluation, None where there is none."""
    stored = store.checkpoints.evaluation(checkpoint.content_hash)
    return DraftEvaluation.model_validate(stored) if stored else None


def parent_of(store: Store, train: TrainConfig) -> str | None:
    """Return the content hash of the stored checkpoint that a draft is trained on from, if any."""
    if not isinstance(train.draft, ModelDraft):
        return None
    reference = ModelRef.parse(train.draft.model)
    if reference.scheme != "path":
        return None
    start = folder_hash(Path(reference.name))
    return start if store.checkpoints.find(start) is not None else None
