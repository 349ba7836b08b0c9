"""Batches of stored responses, by epoch, step and worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specdec_core.config.training import TrainConfig
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.data import BatchReader, DraftData
from specdec_core.training.packing import BatchPlan, check_fits, pack, share_of


class StoredBatches:
    """The training and validation sequences of one folder; see `plan.BatchSource`.

    Args:
        data: What is stored.
        reader: Makes batches of it.
        config: Batch sizes, seed and number of held-out prompts.

    Raises:
        ConfigError: if no prompt would be left to train on, or a sequence is longer than a
            micro-batch.
    """

    def __init__(self, data: DraftData, reader: BatchReader, config: TrainConfig) -> None:
        training, held_out = data.split(config.num_validation)
        self._reader = reader
        self._limit = config.micro_batch_tokens
        self._held_out: Mapping[str, int] = data.lengths_of(held_out)
        check_fits(self._held_out, self._limit)
        self._plan = BatchPlan(
            lengths=data.lengths_of(training),
            batch_size=config.batch_size,
            micro_batch_tokens=self._limit,
            seed=config.seed,
        )

    @property
    def steps_per_epoch(self) -> int:
        """Updates in one pass over the training sequences."""
        return self._plan.num_steps

    def micro_batches(
        self, epoch: int, step: int, *, rank: int, num_workers: int
    ) -> list[TrainingBatch]:
        """Return one worker's part of the sequences of a step of an epoch, 0-based both."""
        parts = self._plan.micro_batches(epoch, step, rank, num_workers)
        return [self._reader.read(part) for part in parts]

    def validation_batches(self, *, rank: int, num_workers: int) -> Iterator[TrainingBatch]:
        """Return one worker's part of the held-out sequences, each batch read when asked for."""
        own = share_of(self._held_out, self._held_out, rank, num_workers)
        return (self._reader.read(part) for part in pack(own, self._held_out, self._limit))
