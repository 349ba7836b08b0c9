"""Gradients that are known before `backward` is called, handed to autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from specdec_core.training.draft import DraftPass
from specdec_core.training.losses.common import compute_dtype


class Gradients:
    """Sums of gradients for hidden states, head weights and biases of all passes.

    A tensor that several passes share has one sum. Tensors that need no gradient have none. Sums
    are float32, or float64 for float64 tensors.

    Args:
        passes: By draft depth.
    """

    def __init__(self, passes: Sequence[DraftPass]) -> None:
        self._tensors: dict[int, Tensor] = {}
        for one in passes:
            for tensor in (one.hidden, one.head.weight, one.head.bias):
                if tensor is not None and tensor.requires_grad:
                    self._tensors[id(tensor)] = tensor
        self._sums = {
            key: torch.zeros(tensor.shape, dtype=compute_dtype(tensor.dtype), device=tensor.device)
            for key, tensor in self._tensors.items()
        }

    def of(self, tensor: Tensor | None) -> Tensor | None:
        """Return the sum for a tensor of a pass, to be added to; None where it needs none."""
        return self._sums.get(id(tensor))

    def __bool__(self) -> bool:
        """Whether anything needs a gradient."""
        return bool(self._tensors)

    def attach(self, value: Tensor) -> Tensor:
        """Return `value` such that its `backward` hands the sums to their tensors."""
        sums = [self._sums[key].to(tensor.dtype) for key, tensor in self._tensors.items()]
        inputs = (value, len(sums), *sums, *self._tensors.values())
        found = _Known.apply(*inputs)  # type: ignore[no-untyped-call]  # torch has no types for it
        return cast("Tensor", found)


class _Known(torch.autograd.Function):
    """A value whose derivative by each input was computed with it."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Tensor, num: int, *tensors: Tensor) -> Tensor:
        """Keep the derivatives, the first `num` tensors; the others are the inputs."""
        ctx.save_for_backward(*tensors[:num])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        """Return the derivatives times that of the value."""
        sums: tuple[Tensor, ...] = ctx.saved_tensors
        return (None, None, *(None for _ in sums), *(outer[0].to(s.dtype) * s for s in sums))
