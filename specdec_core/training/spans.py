"""Where the responses of a sequence are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Span = tuple[int, int]
"""Response tokens from the first index up to, not including, the second."""


def response_mask(num_tokens: int, spans: Sequence[Span]) -> Tensor:
    """Return ``[num_tokens]`` bool: true inside the spans."""
    import torch  # data on disk is described without it

    mask = torch.zeros(num_tokens, dtype=torch.bool)
    for start, stop in spans:
        mask[start:stop] = True
    return mask


def cut_spans(spans: Sequence[Span], max_tokens: int) -> tuple[Span, ...]:
    """Return what is left of spans where a sequence ends after `max_tokens`."""
    return tuple((start, min(stop, max_tokens)) for start, stop in spans if start < max_tokens)
