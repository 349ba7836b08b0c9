"""Weights and optimizer state by name, whole even where workers hold parts of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from specdec_core.errors import ConfigError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, DraftPass, TrainableDraft

Named = Mapping[str, nn.Parameter]


def copy_weights(parameters: Named) -> dict[str, Tensor]:
    """Return copies of parameters on the CPU; called by all workers, as shards are gathered."""
    return {name: _whole(p.detach()).cpu().clone() for name, p in parameters.items()}


def load_weights(parameters: Named, weights: Mapping[str, Tensor]) -> None:
    """Overwrite parameters with weights of the same names.

    Raises:
        ConfigError: if names or shapes differ.
    """
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    given = {name: tuple(w.shape) for name, w in weights.items()}
    if shapes != given:
        differing = sorted(set(shapes.items()) ^ set(given.items()))
        raise ConfigError(
            f"weights do not fit the draft ({len(differing)} names or shapes differ, such as "
            f"{differing[0]}): they are of another draft, start in a new folder"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(_like(parameter, weights[name]))


def copy_moments(optimizer: Optimizer, parameters: Named) -> dict[str, dict[str, Tensor]]:
    """Return copies of the optimizer's state by parameter name, on the CPU."""
    return {
        name: {key: _whole(value).cpu().clone() for key, value in optimizer.state[p].items()}
        for name, p in parameters.items()
        if p in optimizer.state
    }


def load_moments(
    optimizer: Optimizer, parameters: Named, moments: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Set the optimizer's state to what `copy_moments` returned.

    Numbers of steps stay on the CPU, where AdamW made them: it reads each before every update.
    """
    optimizer.state.clear()
    for name, state in moments.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            key: (value if key == "step" else _like(parameter, value)).clone()
            for key, value in state.items()
        }


class Reference:
    """A frozen earlier state of a draft, which shares its module.

    Source: EAL (arXiv 2609.24150), GRPO phase: the reference is the draft at the end of the
    supervised phase.

    Args:
        draft: The draft.
        parameters: What training changes of it.
        weights: Their earlier values, by name.
    """

    def __init__(
        self, draft: TrainableDraft, parameters: Named, weights: Mapping[str, Tensor]
    ) -> None:
        self._draft = draft
        self._parameters = parameters
        self._weights = {name: _like(p, weights[name]) for name, p in parameters.items()}

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        """Return the predictions of the earlier state; nothing of them has a gradient."""
        with torch.no_grad(), self._in_place():
            output = self._draft.forward(batch)
            # Detached while the earlier weights are in place, heads keep them afterwards.
            passes = tuple(_detached(one) for one in output.passes)
        return DraftOutput(passes, {})

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            other = self._weights[name]
            if isinstance(parameter, DTensor):
                # A shard's memory is known to others, so that its values change and not its place.
                mine, theirs = parameter.to_local(), other.to_local()  # type: ignore[attr-defined]  # other is its like
                kept = mine.clone()
                mine.copy_(theirs)
                theirs.copy_(kept)
            else:
                parameter.data, self._weights[name] = other, parameter.data


def _detached(one: DraftPass) -> DraftPass:
    bias = None if one.head.bias is None else one.head.bias.detach()
    head = replace(one.head, weight=one.head.weight.detach(), bias=bias)
    return replace(one, hidden=one.hidden.detach(), head=head)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """Return a value on the device of a parameter, in its dtype, and sharded as it is."""
    value = value.to(device=parameter.device, dtype=parameter.dtype)
    if isinstance(parameter, DTensor):
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    return value
