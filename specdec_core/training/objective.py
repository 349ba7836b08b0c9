"""What one phase of a training minimises, as sums that add up over micro-batches and workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig
from specdec_core.config.training import TrainConfig
from specdec_core.randomness import numpy_generator
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, Head, TrainableDraft
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.common import LossResult, mean_loss
from specdec_core.training.losses.counts import Counts, PassRows, count
from specdec_core.training.losses.terms import TERMS

_AUXILIARY = "auxiliary/"


@runtime_checkable
class ForeseenDraft(Protocol):
    """A draft that says what its passes will cover without making them; others are run once more.

    Denominators are needed before the first backward pass of a step.
    """

    def rows(self, batch: TrainingBatch) -> tuple[PassRows, ...]:
        """Return the rows that each pass of `forward` will have."""
        ...

    def auxiliary_counts(self, batch: TrainingBatch) -> Mapping[str, float]:
        """Return the number of positions of each auxiliary loss of `forward`."""
        ...


@dataclass(frozen=True, slots=True)
class Objective:
    """A weighted sum of losses against one target.

    Auxiliary losses of a draft, which it has weighted already, are added as means over their own
    positions.

    Attributes:
        config: The losses.
        target_head: Makes the target's logits of the hidden states in a batch.
    """

    config: LossConfig
    target_head: Head

    @property
    def needs_reference(self) -> bool:
        """Whether a frozen earlier draft is compared with."""
        return "grpo" in self.config.names

    def count(self, draft: TrainableDraft, batches: Iterable[TrainingBatch]) -> dict[str, float]:
        """Return the denominators of all losses over batches, by name; empty without batches."""
        numbers: dict[str, float] = {}
        for batch in batches:
            rows, auxiliary = _foresee(draft, batch)
            own = _numbers(count(self.config, batch, rows))
            own |= {_AUXILIARY + name: value for name, value in auxiliary.items()}
            add(numbers, own)
        return numbers

    def can_learn(self, counts: Mapping[str, float]) -> bool:
        """Whether counts have a unit of any of the losses, auxiliary ones included."""
        units = {TERMS[name].unit for name in self.config.names}
        return any(
            number > 0.0 and (name.startswith(_AUXILIARY) or name.partition("/")[0] in units)
            for name, number in counts.items()
        )

    def loss(
        self,
        output: DraftOutput,
        batch: TrainingBatch,
        counts: Mapping[str, float],
        *,
        reference: DraftOutput | None,
        seed: tuple[int, int],
    ) -> tuple[Tensor, dict[str, float]]:
        """Return a batch's share of the mean over all that was counted, and its sums by name.

        Args:
            output: Of the draft, with gradient.
            batch: What it was made of.
            counts: Of all batches of the step on all workers, as `count` names them.
            reference: Of the frozen draft; None unless one is needed.
            seed: Of the training, and the step.
        """
        result = bounded_loss(
            self.config,
            batch,
            output.passes,
            self.target_head,
            reference=reference.passes if reference is not None else None,
            denominators=_counts(counts, batch.input_ids.device),
            generators=self._generators(batch, *seed, "groups"),
        )
        loss, sums = result.loss, _sums(result)
        for name, (value, _) in output.auxiliary.items():
            loss = loss + value / max(counts[_AUXILIARY + name], 1.0)
            sums[_AUXILIARY + name] = float(value.detach())
        return loss, sums

    def measure(
        self, output: DraftOutput, batch: TrainingBatch, reference: DraftOutput | None
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return a batch's sums, as `loss` and as ``greedy/k`` and ``sampling/k``, and its counts.

        The latter two are windows whose first k + 1 drafts are accepted, or are expected to be.
        """
        result = bounded_loss(
            self.config,
            batch,
            output.passes,
            self.target_head,
            reference=reference.passes if reference is not None else None,
            generators=self._generators(batch, "validation"),
            measures_acceptance=True,
        )
        assert result.acceptance is not None  # it was asked for
        sums, counts = _sums(result), _numbers(result.counts)
        for name in ("greedy", "sampling"):
            values = getattr(result.acceptance, name).tolist()
            sums |= {f"{name}/{depth}": value for depth, value in enumerate(values)}
        for name, (value, number) in output.auxiliary.items():
            sums[_AUXILIARY + name] = float(value)
            counts[_AUXILIARY + name] = float(number)
        return sums, counts

    def _generators(
        self, batch: TrainingBatch, *parts: int | str
    ) -> list[np.random.Generator] | None:
        """Return one generator per sample, whatever batch it is in; None where nothing is drawn."""
        if not self.needs_reference:
            return None
        return [numpy_generator(*parts, name) for name in batch.sample_ids]

    def means(
        self, sums: Mapping[str, float], counts: Mapping[str, float]
    ) -> tuple[float, dict[str, float]]:
        """Return the whole loss, and each part of it before its weight, of what was added up."""
        if not any(counts.values()):
            return 0.0, {}
        by_name = {
            name: torch.tensor(_series(sums, name) or sums[name], dtype=torch.float64)
            for name in self.config.names
        }
        loss, terms = mean_loss(self.config, by_name, _counts(counts, torch.device("cpu")))
        means: dict[str, float] = {str(name): value for name, value in terms.items()}
        for name, value in sums.items():
            if name.startswith(_AUXILIARY):
                means[name.removeprefix(_AUXILIARY)] = value / max(counts[name], 1.0)
                loss += means[name.removeprefix(_AUXILIARY)]
        return loss, means


def objectives_of(config: TrainConfig, target_head: Head) -> tuple[Objective, ...]:
    """Return the objective of the first phase, and of the second if there is one."""
    return tuple(Objective(losses, target_head) for losses in config.loss_configs)


def autocast(batch: TrainingBatch, is_enabled: bool) -> AbstractContextManager[object]:
    """Return the context of one forward pass; with autocast products are taken in bfloat16.

    Each pass has a context of its own, as casts of weights are kept within one.
    """
    kind = batch.input_ids.device.type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=is_enabled)


def add(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add numbers to those of the same names."""
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value


def _foresee(
    draft: TrainableDraft, batch: TrainingBatch
) -> tuple[tuple[PassRows, ...], Mapping[str, float]]:
    if isinstance(draft, ForeseenDraft):
        return draft.rows(batch), draft.auxiliary_counts(batch)
    with torch.no_grad():
        output = draft.forward(batch)
    rows = tuple(PassRows.of(one) for one in output.passes)
    return rows, {name: float(number) for name, (_, number) in output.auxiliary.items()}


def _numbers(counts: Counts) -> dict[str, float]:
    numbers = {"windows": float(counts.windows), "groups": float(counts.groups)}
    for name in ("positions", "labels"):
        values = getattr(counts, name).tolist()
        numbers |= {f"{name}/{depth}": value for depth, value in enumerate(values)}
    return numbers


def _counts(numbers: Mapping[str, float], device: torch.device) -> Counts:
    def tensor(values: float | list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    return Counts(
        positions=tensor(_series(numbers, "positions")),
        labels=tensor(_series(numbers, "labels")),
        windows=tensor(numbers["windows"]),
        groups=tensor(numbers["groups"]),
    )


def _sums(result: LossResult) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, value in result.sums.items():
        if value.dim():
            sums |= {f"{name}/{depth}": one for depth, one in enumerate(value.tolist())}
        else:
            sums[name] = float(value)
    return sums


def _series(numbers: Mapping[str, float], name: str) -> list[float]:
    """Return the numbers ``name/0``, ``name/1`` and so on."""
    found: list[float] = []
    while f"{name}/{len(found)}" in numbers:
        found.append(numbers[f"{name}/{len(found)}"])
    return found
