"""One training as its workers get it, and what is checked and made before they start."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_core.config.base import Record
from specdec_core.config.settings import Settings
from specdec_core.config.training import ModelDraft, PrunedDraft, TrainConfig
from specdec_core.errors import ConfigError
from specdec_core.hashing import json_hash
from specdec_core.training.manifest import DataManifest, read_manifest
from specdec_core.training.outcome import MemoryEstimate
from tasks.runtime import LogLine
from tasks.start_files import made_once
from tasks.training_files import DRAFT_FOLDER, METRICS_FILE

if TYPE_CHECKING:
    from specdec_core.models.reference import ResolvedModel

logger = logging.getLogger(__name__)

_VERSION = 1


class TrainingFinish(Record):
    """What the first worker leaves when a training is done, beside the draft."""

    best_step: int
    num_steps: int
    num_tokens: int
    num_skipped: int
    seconds: float
    peak_bytes: int
    estimate: MemoryEstimate


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """All that a worker needs; survives pickling.

    Attributes:
        config: What to train.
        settings: Device, threads, cache.
        data_folder: Training data.
        run_folder: Of this training.
        manifest: Of the data.
        start_folder: Checkpoint of the draft before training; None for learned heads, which start
            from the seed.
        identity: Of configuration, data and start together.
        start_identity: Of the start alone; empty for learned heads.
        driver: Host and process that waits for the training.
    """

    config: TrainConfig
    settings: Settings
    data_folder: Path
    run_folder: Path
    manifest: DataManifest
    start_folder: Path | None
    identity: str
    start_identity: str
    driver: tuple[str, int]

    @property
    def metrics_path(self) -> Path:
        """One line per step and validation."""
        return self.run_folder / METRICS_FILE

    @property
    def messages_path(self) -> Path:
        """Lines for the user from the first worker."""
        return self.run_folder / "messages.txt"

    @property
    def stop_path(self) -> Path:
        """Exists once the training shall end."""
        return self.run_folder / ".stop"

    @property
    def fault_path(self) -> Path:
        """Why the workers ended without a draft."""
        return self.run_folder / ".fault.json"

    @property
    def finish_path(self) -> Path:
        """What the training came to."""
        return self.run_folder / "finish.json"

    @property
    def draft_folder(self) -> Path:
        """The best draft."""
        return self.run_folder / DRAFT_FOLDER

    @property
    def checkpoint_folder(self) -> Path:
        """States of the training."""
        return self.run_folder / "checkpoints"

    def must_end(self) -> bool:
        """Return whether the training shall stop: it was told to, or nobody waits for it."""
        if self.stop_path.exists():
            return True
        host, pid = self.driver
        return host == socket.gethostname() and not _is_alive(pid)


def plan_job(
    config: TrainConfig, settings: Settings, data_folder: Path, run_folder: Path, log: LogLine
) -> TrainingJob:
    """Return the job of a training after checking that its parts fit; cuts a pruned draft.

    Raises:
        ConfigError: if data, target and draft do not fit each other.
    """
    manifest = read_manifest(data_folder)
    if manifest.counts is None:
        raise ConfigError(
            f"the training data in {data_folder} is not finished: run the data stage again"
        )
    start_folder, start_identity = _make_start(
        config, settings, manifest, data_folder, run_folder, log
    )
    parts = {
        "version": _VERSION,
        "config": config.content(),
        "data": manifest.key,
        "start": start_identity,
    }
    # Workers may run in another folder.
    absolute = {"home": settings.home_dir, "cache": settings.cache_dir}
    return TrainingJob(
        config=config,
        settings=settings.model_copy(update=absolute),
        data_folder=data_folder,
        run_folder=run_folder,
        manifest=manifest,
        start_folder=start_folder,
        identity=json_hash(parts),
        start_identity=start_identity,
        driver=(socket.gethostname(), os.getpid()),
    )


def _make_start(
    config: TrainConfig,
    settings: Settings,
    manifest: DataManifest,
    data_folder: Path,
    run_folder: Path,
    log: LogLine,
) -> tuple[Path | None, str]:
    """Return the folder of the untrained draft and its identity."""
    from specdec_core.models.files import content_identity
    from specdec_core.models.reference import resolve_model
    from specdec_core.training.data import DraftData
    from specdec_core.training.pruning import prune_target

    target = resolve_model(manifest.target, settings.cache_dir, log)
    if target.identity != manifest.target_identity:
        raise ConfigError(
            f"the training data was made by target {manifest.target} with identity "
            f"{manifest.target_identity[:12]}, which now is {target.identity[:12]} (weights, "
            "tokenizer or chat template changed): make the data again"
        )
    if isinstance(config.draft, ModelDraft):
        draft = resolve_model(config.draft.model, settings.cache_dir, log)
        check_tokenizer(draft, target, settings)
        return draft.folder, draft.identity
    if not isinstance(config.draft, PrunedDraft):
        return None, ""
    cut = [config.draft.model_dump(mode="json"), manifest.key, config.num_validation]
    shape = config.draft

    def cut_draft(folder: Path) -> None:
        counts = None
        if shape.vocab_size is not None:
            data = DraftData.open(data_folder)
            counts = data.token_counts(data.split(config.num_validation)[0])
        pruned = prune_target(target, shape, folder, counts=counts)
        log(f"draft cut from {target.reference}: blocks {'/'.join(map(str, pruned.layers))}")

    folder = made_once(run_folder / f"start-{json_hash(cut)[:8]}", cut_draft, log)
    return folder, content_identity(folder, settings.cache_dir)


def check_tokenizer(draft: ResolvedModel, target: ResolvedModel, settings: Settings) -> None:
    """Check that ids mean the same to draft and target.

    Raises:
        ConfigError: at the first difference.
    """
    from specdec_core.models.files import tokenizer_identity
    from specdec_core.models.loading import load_tokenizer
    from specdec_core.models.tokenizers import check_same_tokenizer

    folders, cache = (target.folder, draft.folder), settings.cache_dir
    if len({tokenizer_identity(folder, cache) for folder in folders}) > 1:
        ours, theirs = map(load_tokenizer, folders)
        check_same_tokenizer(ours, theirs, names=(target.reference, draft.reference))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
