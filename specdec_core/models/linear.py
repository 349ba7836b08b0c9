"""One linear map with its weight laid out for the device it runs on."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional


class Linear:
    """``x @ weight.T + bias`` on the last dimension, ``[..., in] -> [..., out]``.

    On CPUs with bfloat16 instructions the weight is reordered once into the layout of the
    matrix kernels, instead of anew at every call, which matters for the few rows of decoding.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features = weight.shape[0]
        self._bias = bias
        self._is_packed = _can_pack(weight)
        if self._is_packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1)
        else:
            self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``[..., out]`` for `x` of shape ``[..., in]``."""
        if not self._is_packed:
            return functional.linear(x, self._weight, self._bias)
        rows = x.reshape(-1, x.shape[-1])
        out = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return cast(Tensor, out.view(*x.shape[:-1], self.out_features))


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or weight.dtype is not torch.bfloat16:
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call] # torch's own
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
