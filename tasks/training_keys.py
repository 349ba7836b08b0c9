"""What a training and an evaluation of a draft are known by: hashes of everything that counts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.settings import Settings
from specdec_core.config.training import ModelDraft, TrainConfig
from specdec_core.errors import ConfigError
from specdec_core.hashing import json_hash
from specdec_core.models.reference import resolve_model
from specdec_core.provenance import code_version, training_code_version
from specdec_core.training.manifest import DataManifest
from tasks.draft_benchmarks import plain_grid
from tasks.runtime import resolve_device

_VERSION = 1


def training_key(config: TrainConfig, manifest: DataManifest, settings: Settings) -> str:
    """Return the content key of a training.

    Args:
        config: The training; data are known by their own key.
        manifest: Of the data.
        settings: Device, and where models are found.

    Raises:
        ConfigError: if the draft starts from a model that cannot be found.
    """
    start = ""
    if isinstance(config.draft, ModelDraft):
        start = resolve_model(config.draft.model, settings.cache_dir).identity
    return json_hash(
        {
            "version": _VERSION,
            "config": config.content(),
            "data": manifest.key,
            "target": manifest.target_identity,
            "start": start,
            "device": resolve_device(settings.device),
            "code": training_code_version(),
        }
    )


def evaluation_key(config: DraftEvaluationConfig, content_hash: str, settings: Settings) -> str:
    """Return the content key of an evaluation of the draft with these files.

    Plain decoding, which it is compared with, stands for target, prompts, type and kernels: the
    suites that are here may be others than those that were.

    Args:
        config: The evaluation.
        content_hash: Of the draft's folder.
        settings: Where suites and models are found, and what runs them.

    Raises:
        ConfigError: if target or suites cannot be found.
    """
    rows = plain_grid(config, settings).rows
    return json_hash(
        {
            "version": _VERSION,
            "config": config.model_dump(mode="json"),
            "draft": content_hash,
            "plain": [row[0].requests[0].key for row in rows],
            "device": resolve_device(settings.device),
            # What is expected comes from the training pass.
            "code": [code_version(), training_code_version()],
        }
    )


def folder_hash(folder: Path) -> str:
    """Return the hash of names and contents of the files below a folder; it may be elsewhere.

    Raises:
        ConfigError: if there are none, which is no draft.
    """
    digest = hashlib.sha256()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if not paths:
        raise ConfigError(f"{folder} holds no files: bring them back, or train the draft again")
    for path in paths:
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
