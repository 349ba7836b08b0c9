"""Reading training data: what is usable of it, the split, and batches with hidden states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdec_core.errors import ConfigError, DataError
from specdec_core.models.loading import torch_dtype
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.manifest import DataManifest, read_manifest, shard_path
from specdec_core.training.packing import split_prompts
from specdec_core.training.records import (
    StoredSample,
    open_shard,
    read_states,
    read_tokens,
)
from specdec_core.training.spans import cut_spans, response_mask
from specdec_core.training.target import FrozenTarget, pad_rows


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What reading made of the samples on disk.

    Attributes:
        num_stored: Samples on disk.
        num_cut: Of those, longer than `max_tokens` and cut to it.
        num_empty: Left out, as no response token lies within the limit.
        num_flagged: Where the training forward disagrees with several tokens of the response, more
            than 1 %.
        max_tokens: The limit that the data was made with, tokens.
    """

    num_stored: int
    num_cut: int
    num_empty: int
    num_flagged: int
    max_tokens: int

    def sentence(self) -> str:
        """Return it in words for the user."""
        return (
            f"{self.num_stored} samples: {self.num_cut} cut to {self.max_tokens} tokens, "
            f"{self.num_empty} without a response left out, {self.num_flagged} flagged"
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a sample's states are."""

    shard: int
    row: int


class DraftData:
    """The usable samples of one folder of training data; tokens in memory, states on disk.

    Attributes:
        manifest: What the folder says of itself.
        report: What was cut and left out.
        samples: Usable samples by sample id, cut to the data's limit, without states.
    """

    def __init__(
        self,
        folder: Path,
        manifest: DataManifest,
        stored: Sequence[tuple[StoredSample, _Place]],
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self.samples: dict[str, StoredSample] = {}
        self._places: dict[str, _Place] = {}
        self._files: dict[int, Any] = {}
        max_tokens = manifest.config.max_tokens
        num_cut = num_empty = num_flagged = 0
        for sample, place in stored:
            num_flagged += sample.is_flagged
            spans = cut_spans(sample.spans, max_tokens)
            if not spans:
                num_empty += 1
                continue
            num_cut += len(sample.token_ids) > max_tokens
            kept = replace(sample, token_ids=sample.token_ids[:max_tokens], spans=spans)
            self.samples[sample.sample_id] = kept
            self._places[sample.sample_id] = place
        self.report = ReadReport(len(stored), num_cut, num_empty, num_flagged, max_tokens)

    @classmethod
    def open(cls, folder: Path) -> DraftData:
        """Read the tokens of all samples in `folder`, which is of finished training data.

        Raises:
            ConfigError: if there is no data, it is of another format, or not finished.
            DataError: if a shard is missing or damaged, samples are missing, or none is usable.
        """
        manifest = read_manifest(folder)
        if manifest.counts is None:
            raise ConfigError(
                f"the training data in {folder} is not finished: run the same 'specdec train' "
                "again, which makes the missing shards"
            )
        stored = [
            (sample, _Place(index, row))
            for index in range(manifest.num_shards)
            for row, sample in enumerate(read_tokens(shard_path(folder, index), manifest.key))
        ]
        if len(stored) != manifest.counts.num_samples:
            raise DataError(
                f"the shards in {folder} hold {len(stored)} samples, but its manifest says "
                f"{manifest.counts.num_samples}: it is of another version, or shards were "
                "replaced; make the data again"
            )
        data = cls(folder, manifest, stored)
        if not data.samples:
            raise DataError(
                f"no sample in {folder} can be trained on ({data.report.sentence()}): raise "
                "max_tokens or make data from other prompts"
            )
        return data

    @cached_property
    def lengths(self) -> Mapping[str, int]:
        """Tokens per usable sample."""
        return {name: len(sample.token_ids) for name, sample in self.samples.items()}

    def split(self, num_validation: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the sample ids of training and of validation, each sorted.

        Args:
            num_validation: Prompts held out; samples of one conversation stay together.

        Raises:
            ConfigError: if no prompt would be left to train on.
        """
        prompts = (sample.prompt_id for sample in self.samples.values())
        _, held_out = split_prompts(prompts, num_validation)
        names = sorted(self.samples)
        return (
            tuple(n for n in names if self.samples[n].prompt_id not in held_out),
            tuple(n for n in names if self.samples[n].prompt_id in held_out),
        )

    def lengths_of(self, sample_ids: Iterable[str]) -> dict[str, int]:
        """Return tokens per sample, for `BatchPlan`."""
        return {name: self.lengths[name] for name in sample_ids}

    def token_counts(self, sample_ids: Iterable[str]) -> Tensor:
        """Return how often each id of the target occurs in these samples' responses, ``[V]``."""
        counts = np.zeros(self.manifest.vocab_size, dtype=np.int64)
        for name in sample_ids:
            sample = self.samples[name]
            for start, stop in sample.spans:
                np.add.at(counts, np.asarray(sample.token_ids[start:stop]), 1)
        return torch.from_numpy(counts)

    def states(self, sample_id: str) -> Tensor:
        """Return a sample's stored states ``[N, 1 + T, h]``: head's input, then stored taps.

        In the type that the target computes in, whatever they are stored in.

        Raises:
            ConfigError: if none are stored.
            DataError: if they are damaged.
        """
        manifest, place = self.manifest, self._places[sample_id]
        if manifest.config.hidden == "none":
            raise ConfigError(
                f"the training data in {self.folder} holds no hidden states: load the target to "
                "compute them, or make it with hidden=head-input"
            )
        num_states = 1 + len(manifest.taps)
        found = read_states(
            self._shard(place.shard),
            shard_path(self.folder, place.shard),
            place.row,
            dtype=manifest.config.hidden_dtype,
            width=num_states * manifest.hidden_size,
        )
        kept = found[: self.lengths[sample_id]]
        shape = (len(kept), num_states, manifest.hidden_size)
        return kept.view(shape).to(torch_dtype(manifest.dtype))

    def _shard(self, index: int) -> Any:
        if index not in self._files:
            self._files[index] = open_shard(shard_path(self.folder, index), self.manifest.key)
        return self._files[index]


class BatchReader:
    """Makes batches of samples, with hidden states from disk or from the target.

    Args:
        data: Opened training data.
        taps: Hidden states that the draft reads, numbered as `specdec_core.models.taps`.
        target: Computes what is not stored; may be None where everything is.
        device: Where batches go.

    Raises:
        ConfigError: if something must be computed and there is no target.
    """

    def __init__(
        self,
        data: DraftData,
        taps: Sequence[int] = (),
        *,
        target: FrozenTarget | None = None,
        device: torch.device | None = None,
    ) -> None:
        self._data, self._taps = data, tuple(taps)
        self._target = None if is_stored(data.manifest, taps) else target
        self._device = device or torch.device("cpu")
        if self._target is None and not is_stored(data.manifest, taps):
            raise ConfigError(
                f"the training data stores hidden={data.manifest.config.hidden}, taps "
                f"{list(data.manifest.taps)}, but the draft reads taps {list(taps)}: load the "
                "target, or make the data with these"
            )

    def read(self, sample_ids: Sequence[str]) -> TrainingBatch:
        """Return one batch, samples in the order given.

        Raises:
            ConfigError: if there are none.
        """
        if not sample_ids:
            raise ConfigError("a batch of no samples was asked for: leave it out")
        samples = [self._data.samples[name] for name in sample_ids]
        sizes = [len(sample.token_ids) for sample in samples]
        width = max(sizes)
        ids = torch.zeros(len(samples), width, dtype=torch.int64)
        mask = torch.zeros(len(samples), width, dtype=torch.bool)
        for row, sample in enumerate(samples):
            ids[row, : sizes[row]] = torch.tensor(sample.token_ids)
            mask[row, : sizes[row]] = response_mask(sizes[row], sample.spans)
        lengths = torch.tensor(sizes)
        hidden, taps = self._states(sample_ids, ids, lengths)
        place = self._device
        return TrainingBatch(
            input_ids=ids.to(place),
            response_mask=mask.to(place),
            lengths=lengths.to(place),
            hidden=hidden.to(place),
            taps=taps.to(place) if taps is not None else None,
            sample_ids=tuple(sample_ids),
        )

    def _states(
        self, sample_ids: Sequence[str], ids: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        if self._target is not None:
            return self._target.batch_states(ids, lengths, self._taps)
        stored = [self._data.states(name) for name in sample_ids]
        hidden = pad_rows([rows[:, 0] for rows in stored], ids.shape[1])
        if not self._taps:
            return hidden, None
        order = [1 + self._data.manifest.taps.index(tap) for tap in self._taps]
        taps = [rows[:, order].flatten(1) for rows in stored]
        return hidden, pad_rows(taps, ids.shape[1])


def is_stored(manifest: DataManifest, taps: Sequence[int]) -> bool:
    """Whether data holds everything that a draft with these taps reads."""
    return manifest.config.hidden != "none" and set(taps) <= set(manifest.taps)
