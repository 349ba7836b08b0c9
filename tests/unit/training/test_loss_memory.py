"""The memory-bounded form holds chunks of logits only."""

import gc

import pytest
import torch

from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.eager import eager_loss
from specdec_core.training.losses.rows import Chunks
from tests.live_bytes import LiveBytes
from tests.unit.training.loss_cases import (
    generators,
    losses,
    make_batch,
    make_head,
    make_passes,
    trainable,
)

LENGTH, VOCAB = 384, 4096
FULL = LENGTH * VOCAB * 4  # bytes of one float32 tensor of logits or probabilities
SMALL = {"gamma": 3, "grpo_windows": 2, "grpo_groups": 1}


def peak(form, text, **options):
    """Bytes of a loss, its gradients included, and of its backward pass; inputs are there."""
    batch = make_batch(spans=[[(1, LENGTH)]], length=LENGTH, vocab=VOCAB, dtype=torch.float32)
    target_head = make_head(VOCAB, dtype=torch.float32)
    head = trainable(make_head(VOCAB, 3, seed=5, dtype=torch.float32))
    passes = make_passes(batch, head)
    before = make_passes(batch, head, seed=11)
    gc.collect()
    with LiveBytes() as live:
        form(
            losses(text, **SMALL),
            batch,
            passes,
            target_head,
            reference=before,
            generators=generators(batch),
            measures_acceptance=True,
            **options,
        ).loss.backward()
    assert head.weight.grad is not None
    return live.peak


@pytest.mark.parametrize("text", ["wtv", "wtv+0.1grpo"])
@pytest.mark.parametrize("chunks", [Chunks(rows=4), Chunks(rows=64, vocab=256)])
def test_less_than_half_of_one_full_tensor_is_held(text, chunks):
    assert peak(bounded_loss, text, chunks=chunks) < 0.5 * FULL
    assert peak(eager_loss, text) > 3.0 * FULL
