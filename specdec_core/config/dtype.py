"""What a target computes in, and how its weights are stored."""

from __future__ import annotations

from typing import Literal, cast

ComputeType = Literal["float32", "float64", "bfloat16", "float16"]
DType = Literal[
    "float32",
    "float64",
    "bfloat16",
    "float16",
    "float32-int8",
    "float64-int8",
    "bfloat16-int8",
    "float16-int8",
]
"""Floating point type of a target; ``-int8`` rounds the weights of its linear maps to 8 bits.

That is another target, not a faster way to the same outputs, so it is part of every key that the
type is part of.
"""

DTYPE_HELP = (
    "'auto' is the checkpoint's own, or float32 on processors without instructions for it; "
    "with -int8, as bfloat16-int8, weights are rounded (lossy)"
)

_INT8 = "-int8"


def compute_type(dtype: DType) -> ComputeType:
    """Return the floating point type that sums, caches and logits are in."""
    return cast(ComputeType, dtype.removesuffix(_INT8))


def has_int8_weights(dtype: str) -> bool:
    """Whether weights are rounded to 8 bits."""
    return dtype.endswith(_INT8)


def type_label(dtype: str) -> str:
    """Return the type in the words that must stand beside every figure of such a target."""
    if not has_int8_weights(dtype):
        return dtype
    return f"{dtype.removesuffix(_INT8)}, int8 weights (lossy)"
