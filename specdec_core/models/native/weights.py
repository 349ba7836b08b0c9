"""Weights in the layout of the kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.models.native import structures
from specdec_core.models.native.build import Kernels
from specdec_core.models.native.memory import HugePages
from specdec_core.models.quantization import GROUP as SCALE_GROUP
from specdec_core.models.quantization import Int8Weight

_LANES, _GROUP = 16, 32


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight laid out as structures.hpp says, outputs padded with zeros to a multiple of 32.

    Args:
        packed: The weight, one row per 32 outputs.
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

    def pack(self, weight: Tensor | Int8Weight, bias: Tensor | None = None) -> PackedWeight:
        """Pack a bfloat16 or rounded weight ``[out, in]``, `in` even."""
        is_int8 = isinstance(weight, Int8Weight)
        outputs, inputs = weight.values.shape if isinstance(weight, Int8Weight) else weight.shape
        rows = _int8_rows(weight) if isinstance(weight, Int8Weight) else _bfloat16_rows(weight)
        packed = self._pages.hold(rows)
        if bias is not None:
            bias = functional.pad(bias, (0, -outputs % _GROUP)).contiguous()
        structure = structures.Weight(
            packed=packed.data_ptr(),
            bias=bias.data_ptr() if bias is not None else None,
            outputs=outputs,
            inputs=inputs,
            is_int8=is_int8,
        )
        return PackedWeight(packed, bias, structure)


def interleave(gate_and_up: tuple[Tensor, Tensor]) -> Tensor:
    """Return ``[2 * n, ..]`` with blocks of 16 gates, each followed by its 16 ups."""
    blocks = [part.reshape(-1, _LANES, *part.shape[1:]) for part in gate_and_up]
    return torch.stack(blocks, 1).flatten(0, 2)


def _bfloat16_rows(weight: Tensor) -> Tensor:
    blocks = _padded(weight).view(-1, 2, _LANES, weight.shape[1] // 2, 2)
    return blocks.permute(0, 3, 1, 2, 4).flatten(1)


def _int8_rows(weight: Int8Weight) -> Tensor:
    # Sign and magnitude, which the kernels look up, instead of two's complement.
    signs = (weight.values < 0).to(torch.int8) * -128
    stored, scales = _padded(weight.values.abs() | signs), _padded(weight.scales)
    parts = []
    for group, values in enumerate(torch.split(stored, SCALE_GROUP, dim=1)):
        blocks = values.view(-1, 2, 4, 4, values.shape[1] // 2, 2)
        parts.append(blocks.permute(0, 4, 2, 1, 3, 5).flatten(1))
        shared = scales[:, group].contiguous().view(-1, _GROUP)
        parts.append(shared.view(torch.int8))
    return torch.cat(parts, dim=1)


def _padded(rows: Tensor) -> Tensor:
    return functional.pad(rows, (0, 0, 0, -rows.shape[0] % _GROUP))
