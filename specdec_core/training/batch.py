"""One batch of training sequences, as data makes it and drafts and losses read it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Sequences padded on the right, with what the frozen target made of them.

    Attributes:
        input_ids: ``[B, N]`` int64; padding is any valid id.
        response_mask: ``[B, N]`` bool: tokens of responses; neither prompt nor padding.
        lengths: ``[B]`` int64: tokens per sequence, the rest is padding.
        hidden: ``[B, N, h_t]``: input of the target's head after each token.
        taps: ``[B, N, T * h_t]``: further hidden states of the target side by side; None if the
            draft reads none.
        sample_ids: Where each sequence comes from, for messages.
    """

    input_ids: Tensor
    response_mask: Tensor
    lengths: Tensor
    hidden: Tensor
    taps: Tensor | None
    sample_ids: tuple[str, ...]
