"""Small batches, heads and passes for tests of losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig, parse_loss
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.counts import PassRows
from specdec_core.training.losses.eager import PassLogits

# Prompt of two, a response with a gap (two turns), padding; prompt of one, one long response.
SPANS = (((2, 6), (7, 8)), ((1, 9),))


def losses(text: str, **options: object) -> LossConfig:
    return LossConfig(terms=parse_loss(text), **options)


def masked(spans: Sequence[Sequence[tuple[int, int]]], length: int) -> Tensor:
    mask = torch.zeros(len(spans), length, dtype=torch.bool)
    for row, ranges in zip(mask, spans, strict=True):
        for start, end in ranges:
            row[start:end] = True
    return mask


def make_batch(
    *,
    spans: Sequence[Sequence[tuple[int, int]]] = SPANS,
    length: int = 9,
    vocab: int = 5,
    width: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> TrainingBatch:
    generator = torch.Generator().manual_seed(seed)
    size = (len(spans), length)
    return TrainingBatch(
        input_ids=torch.randint(vocab, size, generator=generator),
        response_mask=masked(spans, length),
        lengths=torch.full((len(spans),), length),
        hidden=torch.randn(*size, width, generator=generator, dtype=dtype),
        taps=None,
        sample_ids=tuple(f"s{i}" for i in range(len(spans))),
    )


def make_head(
    vocab: int = 5, width: int = 4, seed: int = 1, dtype: torch.dtype = torch.float64
) -> Head:
    generator = torch.Generator().manual_seed(seed)
    return Head(torch.randn(vocab, width, generator=generator, dtype=dtype))


def make_passes(
    batch: TrainingBatch, head: Head, *, num: int = 1, width: int = 3, seed: int = 2
) -> tuple[DraftPass, ...]:
    """Passes with shifts 1, 2, .. that share a head of `width`; hidden states have gradients."""
    generator = torch.Generator().manual_seed(seed)
    size = (*batch.input_ids.shape, width)
    dtype = batch.hidden.dtype
    made = (torch.randn(size, generator=generator, dtype=dtype) for _ in range(num))
    return tuple(DraftPass(h.requires_grad_(), head, shift) for shift, h in enumerate(made, 1))


def generators(batch: TrainingBatch) -> list[np.random.Generator]:
    return [np.random.default_rng(row) for row in range(len(batch.input_ids))]


def trainable(head: Head) -> Head:
    bias = head.bias.clone().requires_grad_() if head.bias is not None else None
    return replace(head, weight=head.weight.clone().requires_grad_(), bias=bias)


def from_logits(logits: Tensor, shift: int = 1, target_ids: Tensor | None = None) -> PassLogits:
    return PassLogits(logits, PassRows(shift, None, target_ids, logits.shape[-1]))
