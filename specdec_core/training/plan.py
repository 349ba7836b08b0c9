"""What a training will do, step by step, worked out before it begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from specdec_core.config.dtype import DType, compute_type
from specdec_core.config.training import Criterion, Precision, TrainConfig
from specdec_core.errors import ConfigError
from specdec_core.training.schedule import learning_rate, num_warmup_steps

if TYPE_CHECKING:
    from specdec_core.training.batch import TrainingBatch

_OVERLAP = {"tv", "window-tv", "wtv", "lk-alpha", "lk-lambda"}


class BatchSource(Protocol):
    """Training and validation sequences; pure: the same arguments give the same batches."""

    @property
    def steps_per_epoch(self) -> int:
        """Updates in one pass over the training sequences."""
        ...

    def micro_batches(
        self, epoch: int, step: int, *, rank: int, num_workers: int
    ) -> list[TrainingBatch]:
        """Return one worker's part of the sequences of a step of an epoch, 0-based both.

        The parts of all workers together are the sequences of the step, each once.
        """
        ...

    def validation_batches(self, *, rank: int, num_workers: int) -> Iterable[TrainingBatch]:
        """Return one worker's part of the held-out sequences, whatever the step.

        They are gone through once; a source may make each when it is asked for.
        """
        ...


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Steps, rates and phases of one training.

    Attributes:
        steps_per_epoch: Updates per pass over the data.
        num_epochs: Passes, both phases.
        second_start: First step of the second phase; None without one.
        criterion: Acceptance that chooses the best checkpoint.
    """

    steps_per_epoch: int
    num_epochs: int
    second_start: int | None
    peak: float
    num_warmup: int
    weight_decay: float
    clip_norm: float
    validate_every: int
    is_autocast: bool
    criterion: Criterion
    seed: int

    @classmethod
    def of(
        cls, config: TrainConfig, steps_per_epoch: int, target_dtype: DType = "float32"
    ) -> TrainingPlan:
        """Return the plan of a configuration.

        Args:
            config: Of the training.
            steps_per_epoch: Updates in one pass over the data.
            target_dtype: What the data were made in, which precision ``auto`` follows.

        Raises:
            ConfigError: if there is no step, or the second phase takes every epoch.
        """
        if steps_per_epoch < 1:
            raise ConfigError("the data has no training sequence: generate more prompts")
        first_epochs = config.num_epochs
        if config.second_loss is not None:
            first_epochs -= config.second_epochs
            if first_epochs < 1:
                raise ConfigError(
                    f"{config.second_epochs} of {config.num_epochs} epochs are of the second "
                    "loss, which starts from a draft that the first has trained: give more epochs "
                    "or fewer second epochs"
                )
        num_steps = steps_per_epoch * config.num_epochs
        return cls(
            steps_per_epoch=steps_per_epoch,
            num_epochs=config.num_epochs,
            second_start=None if config.second_loss is None else steps_per_epoch * first_epochs,
            peak=config.learning_rate,
            num_warmup=num_warmup_steps(num_steps, config.warmup),
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
            validate_every=config.validate_every,
            is_autocast=_is_autocast(config.precision, target_dtype),
            criterion=criterion_of(config),
            seed=config.seed,
        )

    @property
    def num_steps(self) -> int:
        """Updates of the whole training."""
        return self.steps_per_epoch * self.num_epochs

    def epoch(self, step: int) -> int:
        """Return the 0-based epoch that has used up `step` updates, the last one at the end."""
        return min(step // self.steps_per_epoch, self.num_epochs - 1)

    def phase(self, step: int) -> Literal[1, 2]:
        """Return the phase of update `step`."""
        return 2 if self.second_start is not None and step >= self.second_start else 1

    def rate(self, step: int) -> float:
        """Return the learning rate of update `step`."""
        return learning_rate(
            step, peak=self.peak, num_steps=self.num_steps, num_warmup=self.num_warmup
        )

    def validates_after(self, num_done: int) -> bool:
        """Return whether the draft is validated and stored after so many updates."""
        return num_done % self.validate_every == 0 or num_done in {
            self.num_steps,
            self.second_start,
        }


def criterion_of(config: TrainConfig) -> Criterion:
    """Return which acceptance chooses the best checkpoint.

    Unless the configuration says, it is that of sampling where a loss aims at the overlap of both
    distributions (tv, wtv, lk), and the greedy one otherwise.
    """
    if config.select_by != "auto":
        return config.select_by
    is_for_sampling = any(losses.names & _OVERLAP for losses in config.loss_configs)
    return "sampling" if is_for_sampling else "greedy"


def _is_autocast(precision: Precision, target_dtype: DType) -> bool:
    if precision == "auto":
        return compute_type(target_dtype) == "bfloat16"
    return precision == "bfloat16"
