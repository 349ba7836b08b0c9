"""Weights in the layout of the kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.models.native import structures
from specdec_core.models.native.build import Kernels
from specdec_core.models.native.memory import HugePages

_LANES, _GROUP = 16, 32


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight laid out ``[outputs / 32][inputs / 2][2 blocks][16 outputs][2 inputs]``.

    Args:
        packed: The weight, outputs padded with zeros to a multiple of 32.
        bias: One value per padded output, or None.
        structure: What the kernels read; valid as long as this object lives.
    """

    packed: Tensor
    bias: Tensor | None
    structure: structures.Weight


class Packer:
    """Packs the weights of one target for the kernels."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self._pages = HugePages()

    def pack(self, weight: Tensor, bias: Tensor | None = None) -> PackedWeight:
        """Pack a bfloat16 weight ``[out, in]``, `in` even."""
        outputs, inputs = weight.shape
        padding = -outputs % _GROUP
        padded = functional.pad(weight, (0, 0, 0, padding))
        blocks = padded.view(-1, 2, _LANES, inputs // 2, 2)
        packed = self._pages.hold(blocks.permute(0, 3, 1, 2, 4))
        if bias is not None:
            bias = functional.pad(bias, (0, padding)).contiguous()
        structure = structures.Weight(
            packed=packed.data_ptr(),
            bias=bias.data_ptr() if bias is not None else None,
            outputs=outputs,
            inputs=inputs,
        )
        return PackedWeight(packed, bias, structure)


def interleave(gate_and_up: tuple[Tensor, Tensor]) -> Tensor:
    """Return ``[2 * n, ..]`` with blocks of 16 gates, each followed by its 16 ups."""
    blocks = [part.reshape(-1, _LANES, *part.shape[1:]) for part in gate_and_up]
    return torch.stack(blocks, 1).flatten(0, 2)
