"""What this machine's processor can do."""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch


@cache
def multiplies(dtype: Literal["bfloat16", "float16"]) -> bool:
    """Return whether the processor has instructions for this type that PyTorch's kernels use.

    Where it has none, they convert the weights to float32 anew in every product.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call] # torch's own
        return False
    ask = {
        "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported,
        "float16": torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return bool(ask[dtype]())
