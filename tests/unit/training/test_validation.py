"""Validation goes through batches once and keeps none of them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from specdec_core.training.batch import TrainingBatch
from specdec_core.training.validation import validate
from specdec_core.training.workers import Workers
from tests.tiny_training import MemorySource, make_samples, objective, tiny_draft


def test_batches_are_let_go_and_all_of_them_count(tmp_path: Path) -> None:
    source = MemorySource(make_samples(12), num_validation=10, micro_batch_tokens=20)
    kept = list(source.validation_batches(rank=0, num_workers=1))
    # One without a response has nothing to learn and counts as a sequence.
    kept[0] = replace(kept[0], response_mask=torch.zeros_like(kept[0].response_mask))
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def batches() -> Iterator[TrainingBatch]:
        nonlocal most
        for batch in kept:
            hidden = batch.hidden.clone()
            alive.append(weakref.ref(hidden))
            most = max(most, sum(one() is not None for one in alive))
            made = replace(batch, hidden=hidden)
            del hidden
            yield made
            del made

    draft, goal = tiny_draft(tmp_path), objective("kl+0.1eal")
    found = validate(draft, goal, batches(), Workers())
    assert len(alive) == len(kept) > 4
    assert most == 2  # the one before is let go once the next is there
    assert found.num_sequences == 10
    assert found.num_tokens == sum(int(batch.response_mask.sum()) for batch in kept)
    # The mean over windows is that of the batches, weighted by their windows.
    parts = [validate(draft, goal, [batch], Workers()) for batch in kept]
    for name in ("greedy", "sampling"):
        whole, own = getattr(found, name), [getattr(part, name) for part in parts]
        assert whole.num_windows == sum(one.num_windows for one in own)
        sums = [sum(values) for values in zip(*(one.reached for one in own), strict=True)]
        torch.testing.assert_close(torch.tensor(whole.reached), torch.tensor(sums))
