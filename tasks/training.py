"""Training one draft from stored responses: in this process, or by Ray Train workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from specdec_core.config.base import Record
from specdec_core.config.settings import Settings
from specdec_core.config.training import TrainConfig
from specdec_core.errors import ConfigError
from specdec_core.provenance import training_code_version
from specdec_core.search.storage import try_lock
from specdec_core.training.outcome import StepMetrics, TrainingOutcome, ValidationMetrics
from specdec_core.training.plan import criterion_of
from tasks.jobs import StopCheck
from tasks.run_files import make_folder, write_text
from tasks.runtime import LogLine
from tasks.training_files import MetricsFile
from tasks.training_job import TrainingFinish, TrainingJob, plan_job

Progress = Callable[[StepMetrics | ValidationMetrics], None]
"""Called in the driver's main thread, once per step and validation, in order.

After a lost worker or a resume, steps that are done again are reported again.
"""

_MAX_POINTS = 200
RecordT = TypeVar("RecordT", bound=Record)


def train_draft(
    config: TrainConfig,
    settings: Settings,
    data_folder: Path,
    run_folder: Path,
    *,
    is_inline: bool = False,
    log: LogLine = lambda _line: None,
    progress: Progress = lambda _event: None,
    should_stop: StopCheck = lambda: False,
) -> TrainingOutcome:
    """Train the draft that `config` asks for and leave the best one in `run_folder`.

    The same call continues where an earlier one ended, however it ended; on a finished folder it
    returns the stored outcome at once, unless the draft is gone. In `run_folder`: ``metrics.jsonl``
    (one `StepMetrics` or `ValidationMetrics` per line), ``checkpoints`` while it runs, ``draft``
    (the best draft, what decoding loads) and ``outcome.json``.

    Args:
        config: What to train.
        settings: Device, threads per worker, Ray address, cache.
        data_folder: What the data stage made for `config.data`.
        run_folder: Of this training alone; on a cluster, a folder that all nodes share.
        is_inline: Whether to train in this process, without Ray, with one worker.
        log: Takes lines for the user.
        progress: Told of every step and validation.
        should_stop: Asked between steps; true ends the training with a checkpoint.

    Raises:
        ConfigError: if data, draft and configuration do not fit each other, the folder is in use
            or holds another training, or memory or disk are too small; before anything is trained.
        SearchCancelledError: once `should_stop` is true; the same call continues.
        EvaluationFailedError: if the loss is not a finite number; names step and samples.
        StoreError: if checkpoints or metrics cannot be written.
        WorkerLostError: if workers died more often than allowed.
    """
    run_folder = make_folder(run_folder.expanduser().absolute())
    lock = try_lock(run_folder / ".lock")
    if lock is None:
        raise ConfigError(f"another process trains in {run_folder}: wait for it")
    with lock:
        job = plan_job(config, settings, data_folder.absolute(), run_folder, log)
        stored = _stored_outcome(job, log)
        if stored is not None:
            log(f"{run_folder} holds this training, finished: nothing to do")
            return stored
        _run(job, is_inline=is_inline, log=log, progress=progress, should_stop=should_stop)
        outcome = _outcome(job)
        write_text(_outcome_path(job), outcome.model_dump_json(indent=1) + "\n")
        shutil.rmtree(job.checkpoint_folder, ignore_errors=True)
        shutil.rmtree(run_folder / "ray", ignore_errors=True)
    return outcome


def _run(
    job: TrainingJob, *, is_inline: bool, log: LogLine, progress: Progress, should_stop: StopCheck
) -> None:
    if _read(job.finish_path, TrainingFinish, log) is not None:  # ended before the outcome
        return
    if not is_inline:
        from tasks.training_ray import run_on_ray  # Ray takes a second to import

        run_on_ray(job, log=log, progress=progress, should_stop=should_stop)
        return
    if job.config.num_workers > 1:
        raise ConfigError(
            f"{job.config.num_workers} workers cannot train in one process: use Ray, or "
            "num_workers 1"
        )
    from tasks.training_worker import run_worker  # torch and transformers, unless it is finished

    run_worker(job, log=log, should_stop=should_stop, record=progress)


def _outcome_path(job: TrainingJob) -> Path:
    return job.run_folder / "outcome.json"


def _stored_outcome(job: TrainingJob, log: LogLine) -> TrainingOutcome | None:
    """Return the outcome of the same training if the folder holds it and its draft.

    What says that a draft is done is removed where there is none, so that it is trained again.

    Raises:
        ConfigError: if it holds that of another.
    """
    stored = _read(_outcome_path(job), TrainingOutcome, log)
    if stored is not None and stored.lineage["configuration"] != job.identity:
        raise ConfigError(
            f"{job.run_folder} holds a finished training of another configuration or other data "
            f"({stored.lineage['configuration'][:12]}, expected {job.identity[:12]}): "
            f"`rm -r {job.run_folder}` makes room for this one"
        )
    if not any(job.draft_folder.rglob("*")):
        marks = [path for path in (_outcome_path(job), job.finish_path) if path.exists()]
        if marks:
            log(f"{job.draft_folder} is gone: the draft is trained again")
        for path in marks:
            path.unlink()
        return None
    # The folder may have moved since.
    return stored and stored.model_copy(update={"draft_folder": job.draft_folder})


def _read(path: Path, record: type[RecordT], log: LogLine) -> RecordT | None:
    """Return what a file holds; None where there is none, or a damaged one."""
    if not path.exists():
        return None
    try:
        return record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        log(f"{path} cannot be read ({error.error_count()} faults): it counts as absent")
        return None


def _outcome(job: TrainingJob) -> TrainingOutcome:
    """Return the outcome of a training whose workers are done."""
    finish = TrainingFinish.model_validate_json(job.finish_path.read_text(encoding="utf-8"))
    events = MetricsFile(job.metrics_path).read_to(finish.num_steps)
    steps = [event for event in events if isinstance(event, StepMetrics)]
    validations = tuple(event for event in events if isinstance(event, ValidationMetrics))
    by_step = {event.step: event for event in validations}
    second = next((step.step - 1 for step in steps if step.phase == 2), None)
    manifest = job.manifest
    return TrainingOutcome(
        num_steps=len(steps),
        num_epochs=job.config.num_epochs,
        criterion=criterion_of(job.config),
        start=validations[0],
        best=by_step[finish.best_step],
        last=validations[-1],
        second_start=None if second is None else by_step[second],
        losses=thin(steps),
        validations=validations,
        num_tokens=finish.num_tokens,
        num_skipped=finish.num_skipped,
        seconds=finish.seconds,
        tokens_per_s=finish.num_tokens / finish.seconds if finish.seconds else 0.0,
        peak_bytes=finish.peak_bytes,
        estimate=finish.estimate,
        draft_folder=job.draft_folder,
        data_hash=manifest.key,
        template_hash=manifest.template_hash,
        lineage={
            "configuration": job.identity,
            "target": manifest.target_identity,
            "start": job.start_identity,
            "data": manifest.key,
            "tokenizer": manifest.tokenizer_identity,
            "code": training_code_version(),
        },
    )


def thin(steps: list[StepMetrics]) -> tuple[tuple[int, float], ...]:
    """Return last step and mean loss of at most 200 runs of equally many steps."""
    size = max(1, -(-len(steps) // _MAX_POINTS))
    parts = [steps[start : start + size] for start in range(0, len(steps), size)]
    return tuple((part[-1].step, sum(one.loss for one in part) / len(part)) for part in parts)
