"""One update: what ends a training between a finite loss and the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from specdec_core.errors import EvaluationFailedError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, DraftPass, Head
from tests.tiny_training import (
    HIDDEN,
    VOCAB,
    Log,
    MemorySource,
    config_of,
    make_samples,
    make_trainer,
)

SAMPLES = make_samples(20)


class RootDraft:
    """Hidden states are square roots by token: finite at 0, where their derivative is not."""

    taps: tuple[int, ...] = ()

    def __init__(self, table: Tensor) -> None:
        self.module: nn.Module = nn.Module()
        self.module.register_parameter("table", nn.Parameter(table))

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        states = self.module.get_parameter("table")[batch.input_ids].sqrt()
        head = Head(torch.eye(VOCAB, HIDDEN, dtype=torch.float64))
        return DraftOutput((DraftPass(states, head),), {})

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def test_a_gradient_that_is_no_number_ends_it_though_the_loss_is_one(tmp_path: Path) -> None:
    source, log = MemorySource(SAMPLES), Log()
    first, second = (source.plan.step_samples(0, step) for step in (0, 1))
    seen = {token for name in first for token in SAMPLES[name].token_ids.tolist()}
    new = {token for name in second for token in SAMPLES[name].token_ids.tolist()} - seen - {0}
    table = torch.ones(VOCAB, HIDDEN, dtype=torch.float64)
    table[min(new)] = 0.0
    draft = RootDraft(table)
    before: list[Tensor] = []

    def keep() -> bool:
        before.append(draft.module.get_parameter("table").detach().clone())
        return False

    trainer = make_trainer(tmp_path, config_of(), source, draft=draft, log=log)
    with pytest.raises(
        EvaluationFailedError, match=r"the norm of the gradient of step 2 is (nan|inf); samples: "
    ) as caught:
        trainer.run(keep)
    assert all(name in str(caught.value) for name in second)
    assert not any(name in str(caught.value) for name in set(SAMPLES) - set(second))
    assert [event.step for event in log.steps] == [1]
    weights = draft.module.get_parameter("table").detach()
    # The first step moved them, the second did not.
    assert torch.equal(weights, before[1])
    assert not torch.equal(weights, before[0])
