"""Linear maps with their weights laid out for the device they run on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.models.native.weights import PackedWeight, Packer, interleave
from specdec_core.models.processor import multiplies
from specdec_core.models.quantization import Int8Weight

if TYPE_CHECKING:
    from specdec_core.models.native.structures import Weight


@dataclass(frozen=True, slots=True)
class Storage:
    """How the weights of a target's linear maps are kept.

    Args:
        packer: Lays them out for the compiled kernels; None where PyTorch's kernels run.
        is_int8: Whether they are rounded to 8 bits. The compiled kernels read the 8 bits; PyTorch
            gets what they stand for in the target's own type: no smaller and no faster.
    """

    packer: Packer | None = None
    is_int8: bool = False


class Linear:
    """``x @ weight.T + bias`` on the last dimension, ``[..., in] -> [..., out]``.

    On CPUs with bfloat16 instructions the weight is reordered once into the layout of the
    matrix kernels, ours or oneDNN's, instead of anew at every call, which matters for the few
    rows of decoding.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, storage: Storage | None = None
    ) -> None:
        storage = storage or Storage()
        packer, rounded = storage.packer, Int8Weight.of(weight) if storage.is_int8 else None
        if rounded is not None and packer is None:
            weight = rounded.dequantized(weight.dtype)
        self.out_features = weight.shape[0]
        self._bias = bias
        self._kernels = packer.kernels if packer is not None else None
        self._weight: Tensor | PackedWeight
        self._is_reordered = packer is None and _can_reorder(weight)
        if packer is not None:
            self._weight = packer.pack(rounded if rounded is not None else weight, bias)
        elif self._is_reordered:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1)
        else:
            self._weight = weight.contiguous()

    @property
    def structure(self) -> Weight:
        """What the compiled kernels read; only of a map made for them."""
        return cast(PackedWeight, self._weight).structure

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``[..., out]`` for `x` of shape ``[..., in]``."""
        if self._kernels is not None:
            return self._kernels.linear(x, self.structure)
        if not self._is_reordered:
            return functional.linear(x, cast(Tensor, self._weight), self._bias)
        rows = x.reshape(-1, x.shape[-1])
        out = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return cast(Tensor, out.view(*x.shape[:-1], self.out_features))


class GatedLinear:
    """``activation(x @ gate.T + gate_bias) * (x @ up.T + up_bias)``, as one product."""

    def __init__(
        self,
        gate: Tensor,
        up: Tensor,
        biases: tuple[Tensor, Tensor] | None,
        *,
        is_silu: bool,
        storage: Storage | None = None,
    ) -> None:
        self._is_silu = is_silu
        packer = storage.packer if storage is not None else None
        self._kernels = packer.kernels if packer is not None else None
        join = torch.cat if packer is None else interleave
        self._linear = Linear(join((gate, up)), join(biases) if biases else None, storage)

    @property
    def structure(self) -> Weight:
        """What the compiled kernels read; only of a map made for them."""
        return self._linear.structure

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``[..., features]`` for `x` of shape ``[..., in]``."""
        if self._kernels is not None:
            return self._kernels.gated(x, self.structure, is_silu=self._is_silu)
        gate, up = self._linear(x).chunk(2, dim=-1)
        gate = functional.silu(gate) if self._is_silu else functional.gelu(gate, approximate="tanh")
        return gate * up


def _can_reorder(weight: Tensor) -> bool:
    is_reorderable = weight.device.type == "cpu" and weight.dtype is torch.bfloat16
    return is_reorderable and multiplies("bfloat16")
