"""Training data: the frozen target answers prompts, shard by shard, and a folder keeps it all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.config.draft_data import DataConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import (
    ConfigError,
    EvaluationFailedError,
    SearchCancelledError,
    WorkerLostError,
)
from specdec_core.training.manifest import DataCounts, DataManifest, shard_path, write_manifest
from specdec_core.training.records import read_counts
from tasks.answers import MAX_ATTEMPTS
from tasks.draft_data_jobs import ShardResult
from tasks.draft_data_plan import (
    DataPlan,
    check_disk,
    check_held_out,
    missing_shards,
    open_folder,
    plan_data,
)
from tasks.evaluator import ModelEvaluatorFactory
from tasks.jobs import Completed, JobFailure, StopCheck
from tasks.pool import WorkerPool, pool_factory
from tasks.runtime import LogLine, patient_lock

_MIB = 2**20


class DataProgress(Record):
    """How far the data is."""

    num_done: int = Field(ge=0, description="shards that are there")
    num_shards: int = Field(ge=1)
    num_response_tokens: int = Field(ge=0, description="written by this call")
    tokens_per_s: float = Field(
        ge=0.0, description="response tokens per second of this call, states included"
    )


OnData = Callable[[DataProgress], None]


def make_draft_data(
    config: DataConfig,
    settings: Settings,
    *,
    num_validation: int = 0,
    folder: Path | None = None,
    is_inline: bool = False,
    log: LogLine = lambda _line: None,
    progress: OnData = lambda _event: None,
    should_stop: StopCheck = lambda: False,
) -> tuple[Path, DataManifest]:
    """Return the folder with the training data that `config` asks for, made where it is missing.

    Shards that are there are kept, so the same call continues a run that was killed, and returns
    at once where all is done.

    Args:
        config: Prompts, target and what is stored.
        settings: Home, data and cache folders, device, threads, workers, Ray address.
        num_validation: Prompts that a training will hold out of them.
        folder: Where it goes; None for a folder under the settings' home that the key names.
        is_inline: Whether to work in this process, without Ray.
        log: Takes lines for the user.
        progress: Told of every finished shard.
        should_stop: Asked before every decoding step.

    Raises:
        ConfigError: if prompts, target or options cannot be used, no prompt would be left to train
            on, `folder` holds other data or an old format, or the disk is too small; before the
            target is loaded.
        SearchCancelledError: once `should_stop` is true; the same call continues.
        EvaluationFailedError: if a shard could not be made.
        WorkerLostError: if workers die again and again.
    """
    plan = plan_data(config, settings, log)
    check_held_out(plan, num_validation)
    place = folder or settings.home_dir / "draft-data" / plan.manifest.key[:20]
    waiting = f"another process makes the same training data in {place}: waiting for it"
    lock = place.with_name(f".{place.name}.lock")
    with patient_lock(lock, should_stop, lambda: log(waiting)):
        manifest = open_folder(plan, place)
        if manifest.counts is not None and not missing_shards(manifest, place):
            log(f"training data {manifest.key[:12]} is complete in {place}")
            return place, manifest
        _make_missing(plan, place, settings, is_inline, log, progress, should_stop)
        finished = manifest.model_copy(update={"counts": _total(manifest, place)})
        write_manifest(place, finished)
    log(_summary(finished))
    return place, finished


@dataclass(slots=True)
class _Run:
    """The shards that one call makes."""

    plan: DataPlan
    folder: Path
    progress: OnData
    num_done: int
    started: float = field(default_factory=time.monotonic)
    counts: DataCounts = field(default_factory=DataCounts)
    attempts: Counter[str] = field(default_factory=Counter)

    def take(self, completed: Completed, pool: WorkerPool) -> None:
        """Count a finished shard, or send a lost one again."""
        result = completed.result
        if isinstance(result, ShardResult):
            self.counts += result.counts
            self.num_done += 1
            self.report()
            return
        assert isinstance(result, JobFailure)
        self.attempts[completed.job.key] += 1
        _raise_unless_lost(result, self.attempts[completed.job.key])
        pool.submit(completed.job)

    def report(self) -> None:
        """Tell how far the data is."""
        seconds = time.monotonic() - self.started
        num = self.counts.num_response_tokens
        self.progress(
            DataProgress(
                num_done=self.num_done,
                num_shards=self.plan.manifest.num_shards,
                num_response_tokens=num,
                tokens_per_s=num / seconds if seconds > 0 else 0.0,
            )
        )


def _make_missing(
    plan: DataPlan,
    folder: Path,
    settings: Settings,
    is_inline: bool,
    log: LogLine,
    progress: OnData,
    should_stop: StopCheck,
) -> None:
    missing = missing_shards(plan.manifest, folder)
    if not missing:
        return
    needed = check_disk(plan, folder, missing)
    log(f"{len(missing)} shards to make in {folder}, at most {needed / _MIB:.0f} MiB")
    for leftover in folder.glob(".shard-*"):
        leftover.unlink()  # of a killed run: the lock says that none is at work
    run = _Run(plan, folder, progress, plan.manifest.num_shards - len(missing))
    start_pool = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=is_inline)
    with start_pool(should_stop) as pool:
        for index in missing:
            pool.submit(plan.request(index, folder))
        while not pool.is_idle:
            for completed in pool.wait(1.0):
                run.take(completed, pool)
            if should_stop():
                pool.stop()
                raise SearchCancelledError(
                    f"training data was stopped with {run.num_done} of "
                    f"{plan.manifest.num_shards} shards done: the same call continues"
                )


def _raise_unless_lost(failure: JobFailure, attempts: int) -> None:
    if failure.kind == "cancelled":
        raise SearchCancelledError(failure.message)
    if failure.kind == "setup":
        raise ConfigError(f"a model worker cannot work: {failure.message}")
    if failure.kind == "lost" and attempts >= MAX_ATTEMPTS:
        raise WorkerLostError(f"one shard ended {attempts} workers: {failure.message}")
    if failure.kind != "lost":
        advice = "lower batch_size or max_tokens; " if failure.kind == "memory" else ""
        raise EvaluationFailedError(
            f"a shard of training data failed ({failure.error_type}: {failure.message}): "
            f"{advice}finished shards are kept"
        )


def _total(manifest: DataManifest, folder: Path) -> DataCounts:
    counts = DataCounts()
    for index in range(manifest.num_shards):
        counts += read_counts(shard_path(folder, index), manifest.key)
    return counts


def _summary(manifest: DataManifest) -> str:
    counts = manifest.counts or DataCounts()
    rate = counts.num_generated / counts.generation_s if counts.generation_s else 0.0
    share = counts.num_mismatched / counts.num_compared if counts.num_compared else 0.0
    return (
        f"training data {manifest.key[:12]}: {counts.num_samples} samples, "
        f"{counts.num_response_tokens} response tokens ({rate:.0f} per second and worker), "
        f"{counts.num_bytes / _MIB:.0f} MiB; the training forward disagrees with {share:.3%} of "
        f"the tokens, {counts.num_flagged} samples are flagged"
    )
