"""Checkpoints of a training: whole or not there, the newest two and their best are kept."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError, StoreError

_FOLDER = re.compile(r"step-(?P<step>\d{8})")
_STATE, _MANIFEST = "state.pt", "manifest.json"
_FORMAT = 2
NUM_NEWEST = 2


class Progress(Record):
    """How far a training is; everything else about its data and rate follows from it.

    Sample order, learning rate and noise are functions of the seed and of `step`, so that no
    state of a random generator has to be kept.
    """

    step: int = 0
    best_step: int | None = None
    best_value: float | None = None
    num_tokens: int = 0
    num_skipped: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingState:
    """All that a training needs to go on.

    Attributes:
        progress: How far it is.
        weights: Of the trained parameters, by name.
        moments: State of the optimizer, by parameter name.
        reference: Weights that the present phase began with; empty where none are needed.
    """

    progress: Progress
    weights: Mapping[str, Tensor]
    moments: Mapping[str, Mapping[str, Tensor]]
    reference: Mapping[str, Tensor] = field(default_factory=dict)


class _Manifest(Record):
    """Written last into a checkpoint: what it belongs to and how large its state is."""

    format: int
    identity: str
    progress: Progress
    state_bytes: int
    state_sha256: str


class CheckpointFolder:
    """The checkpoints of one training.

    Args:
        folder: Where they are kept; made by the first `save`.
        identity: Of configuration, draft and data together.

    Raises:
        ConfigError: if the folder has a checkpoint of another identity or format.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        for path, manifest in _manifests(folder).values():
            if manifest.format != _FORMAT:
                raise ConfigError(
                    f"{path} has checkpoint format {manifest.format}, this version writes "
                    f"{_FORMAT}: continue it with the version that wrote it, or remove {folder}"
                )
            if manifest.identity != identity:
                raise ConfigError(
                    f"{path} is of another configuration or other data (identity "
                    f"{manifest.identity[:12]}, expected {identity[:12]}): give the configuration "
                    f"it was made with, or remove {folder}"
                )

    def save(self, state: TrainingState) -> Path:
        """Write a checkpoint, unless its step has one, and drop those no longer needed.

        Raises:
            StoreError: if it cannot be written, such as on a full disk; earlier ones are kept.
        """
        final = self._path(state.progress.step)
        if state.progress.step not in _manifests(self._folder):
            self._write(state, final)
        self._prune(state.progress)
        return final

    def load(self, step: int | None = None) -> TrainingState | None:
        """Return the newest whole checkpoint, or that of `step`; None if there is none.

        Raises:
            ConfigError: if its state cannot be read.
        """
        found = _manifests(self._folder)
        if step is None:
            step = max(found, default=None)
        if step is None or step not in found:
            return None
        path, manifest = found[step]
        try:
            if _hash(path / _STATE) != manifest.state_sha256:
                raise ValueError("its contents are not those that were written")
            state = torch.load(path / _STATE, map_location="cpu", weights_only=True)
            return TrainingState(
                manifest.progress, state["weights"], state["moments"], state["reference"]
            )
        except (OSError, RuntimeError, KeyError, ValueError, EOFError, UnpicklingError) as error:
            raise ConfigError(
                f"checkpoint {path} is damaged ({type(error).__name__}: {error}): remove it, the "
                "one before is used then"
            ) from error

    def check_kept(self, step: int | None) -> None:
        """Check that the checkpoint of a step is there.

        Raises:
            ConfigError: if it is not, although the newest one names it as the best.
        """
        if step is not None and step not in _manifests(self._folder):
            raise ConfigError(
                f"the checkpoint of step {step}, the best of this training, is not in "
                f"{self._folder} any more: remove that folder, which starts the training anew"
            )

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}"

    def _write(self, state: TrainingState, final: Path) -> None:
        part = self._folder / f".{final.name}.part"
        try:
            shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
            part.mkdir(parents=True)
            with (part / _STATE).open("wb") as file:
                torch.save(
                    {
                        "weights": dict(state.weights),
                        "moments": {name: dict(m) for name, m in state.moments.items()},
                        "reference": dict(state.reference),
                    },
                    file,
                )
                file.flush()
                os.fsync(file.fileno())
            manifest = _Manifest(
                format=_FORMAT,
                identity=self._identity,
                progress=state.progress,
                state_bytes=(part / _STATE).stat().st_size,
                state_sha256=_hash(part / _STATE),
            )
            (part / _MANIFEST).write_text(manifest.model_dump_json())
            shutil.rmtree(final, ignore_errors=True)  # what lies there is no whole checkpoint
            part.replace(final)
        except (OSError, RuntimeError) as error:  # torch's writer says RuntimeError on a full disk
            shutil.rmtree(part, ignore_errors=True)
            raise StoreError(
                f"checkpoint {final} cannot be written ({type(error).__name__}: {error}): free "
                "space or mend the folder; the same command continues from the one before"
            ) from error

    def _prune(self, progress: Progress) -> None:
        found = _manifests(self._folder)
        newest = sorted(found)[-NUM_NEWEST:]
        # Where the newest is damaged the one before goes on, with what was the best then.
        best = {found[step][1].progress.best_step for step in newest}
        kept = {progress.best_step, *newest, *best}
        for step, (path, _) in found.items():
            if step not in kept:
                shutil.rmtree(path, ignore_errors=True)


def check_disk(folder: Path, state_bytes: int) -> None:
    """Check that a training's checkpoints will fit on the disk of `folder`.

    Args:
        folder: Where they will be, or below what is there already.
        state_bytes: Size of one.

    Raises:
        ConfigError: if there is too little free space for the newest, their best, one more that
            is being written, and the draft itself.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    stored = sum(path.stat().st_size for path in folder.rglob(_STATE))
    needed = (NUM_NEWEST + 4) * state_bytes - stored
    free = shutil.disk_usage(there).free
    if needed > free:
        raise ConfigError(
            f"checkpoints need {needed / 2**20:.0f} MiB more in {folder}, free are "
            f"{free / 2**20:.0f} MiB: free space"
        )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifests(folder: Path) -> dict[int, tuple[Path, _Manifest]]:
    """Return whole checkpoints by step; others are ignored."""
    found = {}
    for path in folder.glob("step-*"):
        match = _FOLDER.fullmatch(path.name)
        try:
            manifest = _Manifest.model_validate_json((path / _MANIFEST).read_text())
            is_whole = (path / _STATE).stat().st_size == manifest.state_bytes
        except (OSError, ValueError, json.JSONDecodeError):
            continue
        if match is not None and is_whole and int(match["step"]) == manifest.progress.step:
            found[manifest.progress.step] = path, manifest
    return found
