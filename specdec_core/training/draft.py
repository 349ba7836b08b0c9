"""What the trainer asks of a draft, whatever it is made of: its passes over a batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from specdec_core.training.batch import TrainingBatch


@dataclass(frozen=True, slots=True)
class Head:
    """A language-model head.

    Attributes:
        weight: ``[V, h]``.
        bias: ``[V]`` or None.
        target_ids: ``[V]`` int64: the target's id of each row, where the vocabulary is narrowed;
            None where row v is id v.
    """

    weight: Tensor
    bias: Tensor | None = None
    target_ids: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DraftPass:
    """Predictions of one draft depth at every position.

    Attributes:
        hidden: ``[B, N, h_d]``, with gradient: input of the head at every row.
        head: Makes logits of it.
        shift: Row t predicts token ``t + shift`` (1 for the pass of an independent draft model;
            head m of Medusa and step m of EAGLE's training-time test have m + 1 counted so that
            the m-th draft token, m = 0 the first, is predicted from what is known at decoding).
        mask: ``[B, N]`` bool by *row*: rows this pass has a prediction for; None for all.
    """

    hidden: Tensor
    head: Head
    shift: int = 1
    mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DraftOutput:
    """What a draft makes of a batch.

    Attributes:
        passes: By draft depth; the last one stands for all deeper ones too, where there are any.
            An independent draft model has one.
        auxiliary: Further losses by name, summed over positions, and the number of positions.
    """

    passes: tuple[DraftPass, ...]
    auxiliary: Mapping[str, tuple[Tensor, Tensor]]


class TrainableDraft(Protocol):
    """A draft that can be trained.

    `module` holds every parameter; those that do not require gradients (a frozen embedding, the
    target's head) are not stored by `save`.
    """

    module: nn.Module

    @property
    def taps(self) -> tuple[int, ...]:
        """Hidden states of the target that it reads, numbered as `specdec_core.models.taps`."""
        ...

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        """Return its predictions for a batch, teacher-forced."""
        ...

    def save(self, folder: Path) -> None:
        """Write what decoding loads into an empty folder."""
        ...


@runtime_checkable
class NoisyDraft(Protocol):
    """A draft whose passes see noise in updates and nowhere else."""

    def noisy(self, step: int) -> AbstractContextManager[None]:
        """Return the context of update `step`, 0-based, in which passes see its noise.

        The noise is a function of the step and of the samples and not of weights, so that a frozen
        earlier state of the draft sees the same, as does a training that is resumed.
        """
        ...
