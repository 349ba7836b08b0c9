"""Weights of linear maps rounded to 8 bits: whole numbers, and scales that inputs share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

GROUP = 64
"""Inputs of an output that share a scale; the last group of a weight may be shorter."""

_LARGEST = 127


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """A weight as ``values * scales``, symmetric around zero.

    Args:
        values: Whole numbers -127 .. 127, ``[out, in]``, int8.
        scales: At least 0, ``[out, ceil(in / group)]``, float32; a group of zeros has 0.
        group: Inputs that share a scale; the compiled kernels read `GROUP` alone.
    """

    values: Tensor
    scales: Tensor
    group: int = GROUP

    @classmethod
    def of(cls, weight: Tensor, group: int = GROUP) -> Int8Weight:
        """Round ``[out, in]`` to nearest, ties to even; the largest of a group becomes 127.

        Computed in float32, so that every device finds the same numbers.
        """
        outputs, inputs = weight.shape
        padded = functional.pad(weight.float(), (0, -inputs % group))
        groups = padded.view(outputs, -1, group)
        scales = groups.abs().amax(-1) / _LARGEST
        steps = torch.where(scales > 0, scales, 1.0).unsqueeze(-1)
        # A scale below the smallest normal number is inexact: hence the clamp.
        whole = (groups / steps).round().clamp(-_LARGEST, _LARGEST)
        return cls(whole.to(torch.int8).view(outputs, -1)[:, :inputs].contiguous(), scales, group)

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """Return the weight ``[out, in]`` that the numbers stand for, rounded to `dtype`."""
        inputs = self.values.shape[1]
        wide = torch.promote_types(dtype, torch.float32)
        scales = self.scales.to(wide).repeat_interleave(self.group, dim=1)[:, :inputs]
        return (self.values.to(wide) * scales).to(dtype)
