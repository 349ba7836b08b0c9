"""What one worker of a training does, wherever it runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

import torch

from specdec_core.config.training import EagleDraft, MedusaDraft
from specdec_core.drafts.building import new_trainable
from specdec_core.drafts.provenance_file import write_provenance
from specdec_core.drafts.specs import Provenance
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.models.files import writing
from specdec_core.models.loading import torch_device
from specdec_core.models.reference import resolve_model
from specdec_core.training.checkpoints import CheckpointFolder, check_disk
from specdec_core.training.data import BatchReader, DraftData, is_stored
from specdec_core.training.draft import TrainableDraft
from specdec_core.training.draft_model import DraftModel
from specdec_core.training.memory import (
    check_memory,
    estimate_memory,
    free_memory,
    peak_memory,
    trained_bytes,
)
from specdec_core.training.objective import objectives_of
from specdec_core.training.outcome import MemoryEstimate, StepMetrics, ValidationMetrics
from specdec_core.training.plan import TrainingPlan
from specdec_core.training.pruning import frequent_vocabulary
from specdec_core.training.sharding import is_sharded, shard_blocks
from specdec_core.training.source import StoredBatches
from specdec_core.training.state import load_weights
from specdec_core.training.target import FrozenTarget, load_head
from specdec_core.training.trainer import Trainer, TrainingParts
from specdec_core.training.workers import Workers, trainable
from tasks.jobs import StopCheck
from tasks.run_files import write_text
from tasks.runtime import LogLine, file_lock, resolve_device
from tasks.training_files import MetricsFile
from tasks.training_job import TrainingFinish, TrainingJob

# Weights, two moments, and the reference of a second phase.
_STATE_COPIES = 3


@dataclass(frozen=True, slots=True)
class _Built:
    """A trainer and what it was found to need."""

    trainer: Trainer
    draft: TrainableDraft
    estimate: MemoryEstimate
    data: str


def run_worker(
    job: TrainingJob,
    *,
    log: LogLine,
    should_stop: StopCheck,
    record: Callable[[StepMetrics | ValidationMetrics], None] = lambda _event: None,
    num_here: int = 1,
) -> None:
    """Train as one worker, from the newest checkpoint to the end; the first one saves the draft.

    Args:
        job: What to train.
        log: Takes lines for the user; used by the first worker.
        should_stop: Asked between steps.
        record: Told of metrics, beside the metrics file; used by the first worker.
        num_here: Workers that share this machine's memory.

    Raises:
        SpecDecError: as `tasks.training.train_draft`, on every worker.
    """
    device = torch_device(resolve_device(job.settings.device))
    torch.set_num_threads(job.settings.threads)
    workers = Workers.of_group(device)
    if workers.is_first:
        # One that a killed driver left may still be at it: it ends after its step.
        with file_lock(job.run_folder / ".worker.lock"):
            _train(job, workers, log, should_stop, record, num_here)
    else:
        _train(job, workers, log, should_stop, record, num_here)


def _train(
    job: TrainingJob,
    workers: Workers,
    log: LogLine,
    should_stop: StopCheck,
    record: Callable[[StepMetrics | ValidationMetrics], None],
    num_here: int,
) -> None:
    metrics = MetricsFile(job.metrics_path)

    def keep(event: StepMetrics | ValidationMetrics) -> None:
        metrics.append(event)
        record(event)

    built = workers.together(lambda: _build(job, workers, keep, num_here))
    done = workers.together(built.trainer.resume)
    if workers.is_first:
        log(f"training data: {built.data}")
        log(f"memory of one worker: {built.estimate.describe()}")
        if done:
            log(f"continuing after step {done}")
    num_kept = done if built.trainer.progress.best_step is not None else None
    workers.together(lambda: metrics.truncate(num_kept) if workers.is_first else None)
    progress = built.trainer.run(should_stop)
    peak = workers.most(float(peak_memory(workers.device)))
    if workers.is_first:
        assert progress.best_step is not None  # it ran to the end
        _save_draft(_whole_draft(built, job, progress.best_step, workers.device), job)
        finish = TrainingFinish(
            best_step=progress.best_step,
            num_steps=progress.step,
            num_tokens=progress.num_tokens,
            num_skipped=progress.num_skipped,
            seconds=progress.seconds,
            peak_bytes=int(peak),
            estimate=built.estimate,
        )
        write_text(job.finish_path, finish.model_dump_json(indent=1) + "\n")


def _build(
    job: TrainingJob,
    workers: Workers,
    record: Callable[[StepMetrics | ValidationMetrics], None],
    num_here: int,
) -> _Built:
    config, device = job.config, workers.device
    data = DraftData.open(job.data_folder)
    draft = untrained_draft(job, data, device)
    reader = _reader(job, data, draft, device)
    source = StoredBatches(data, reader, config)
    target = resolve_model(job.manifest.target, job.settings.cache_dir)
    head = load_head(target.folder, dtype=job.manifest.dtype, device=str(device))
    objectives = objectives_of(config, head)
    plan = TrainingPlan.of(config, source.steps_per_epoch, job.manifest.dtype)
    is_spread = config.sharding == "fsdp" and workers.num > 1
    sample = reader.read([max(data.lengths, key=lambda name: data.lengths[name])])
    estimate = estimate_memory(
        draft,
        objectives,
        sample,
        micro_batch_tokens=config.micro_batch_tokens,
        is_autocast=plan.is_autocast,
        num_shards=workers.num if is_spread else 1,
    )
    check_memory(estimate, free_memory(device), num_here if device.type == "cpu" else 1)
    num_copies = _STATE_COPIES + (1 if estimate.reference else 0)
    check_disk(job.checkpoint_folder, num_copies * trained_bytes(draft))
    if is_spread:
        shard_blocks(draft, workers)
    parts = TrainingParts(
        plan=plan,
        draft=draft,
        objectives=objectives,
        source=source,
        checkpoints=CheckpointFolder(job.checkpoint_folder, job.identity),
        workers=workers,
        record=record,
    )
    return _Built(Trainer(parts), draft, estimate, data.report.sentence())


def untrained_draft(job: TrainingJob, data: DraftData, device: torch.device) -> TrainableDraft:
    """Return the draft before training, with float32 master weights.

    Args:
        job: The training.
        data: Its data, which a head's narrowed vocabulary is counted in.
        device: Where it is.

    Raises:
        ConfigError: if it cannot be loaded.
    """
    shape = job.config.draft
    if not isinstance(shape, EagleDraft | MedusaDraft):
        assert job.start_folder is not None  # made with the job
        return DraftModel.load(job.start_folder, device=device)
    target = resolve_model(job.manifest.target, job.settings.cache_dir)
    vocabulary: DraftVocabulary | None = None
    if isinstance(shape, EagleDraft) and shape.vocab_size is not None:
        training = data.split(job.config.num_validation)[0]
        vocabulary = frequent_vocabulary(data.token_counts(training), shape.vocab_size, target)
    return new_trainable(
        shape,
        target,
        device=str(device),
        seed=job.config.seed,
        vocabulary=vocabulary,
        provenance=_provenance(job),
    )


def _provenance(job: TrainingJob) -> Provenance:
    return Provenance(
        template_hash=job.manifest.template_hash,
        domains=job.manifest.domains,
        data_hash=job.manifest.key,
        training=job.config.model_dump(mode="json"),
    )


def _reader(
    job: TrainingJob, data: DraftData, draft: TrainableDraft, device: torch.device
) -> BatchReader:
    """Return what makes batches; the target is loaded only if hidden states are not stored."""
    target = None
    if not is_stored(job.manifest, draft.taps):
        model = resolve_model(job.manifest.target, job.settings.cache_dir)
        target = FrozenTarget.load(
            model, dtype=job.manifest.dtype, device=str(device), settings=job.settings
        )
    return BatchReader(data, draft.taps, target=target, device=device)


def _whole_draft(
    built: _Built, job: TrainingJob, best_step: int, device: torch.device
) -> TrainableDraft:
    """Return the draft with its best weights; of one that is sharded another copy, whole."""
    if not is_sharded(built.draft):
        return built.draft
    draft = untrained_draft(job, DraftData.open(job.data_folder), device)
    state = CheckpointFolder(job.checkpoint_folder, job.identity).load(best_step)
    assert state is not None  # pruning never removes the best
    load_weights(trainable(draft.module), state.weights)
    return draft


def _save_draft(draft: TrainableDraft, job: TrainingJob) -> None:
    """Write the draft by temporary name and rename.

    Raises:
        StoreError: if it cannot be written, such as on a full disk.
    """
    part = job.run_folder / ".draft.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(job.draft_folder, ignore_errors=True)
    with writing(job.draft_folder):
        draft.save(part)
        if isinstance(draft, DraftModel):  # others say it in their manifest
            write_provenance(part, _provenance(job))
        part.replace(job.draft_folder)
