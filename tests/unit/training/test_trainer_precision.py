"""The training loop in both precisions; weights are float32, as in every real training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from specdec_core.config.training import Precision
from specdec_core.training.losses.eager import eager_loss
from specdec_core.training.outcome import StepMetrics, ValidationMetrics
from tests.tiny_training import (
    Log,
    MemorySource,
    config_of,
    make_batch,
    make_samples,
    make_trainer,
    objective,
    tiny_draft,
)
from tests.unit.training.test_trainer import assert_bitwise_equal, last_state

SAMPLES = make_samples(20, dtype=torch.float32)
ONE_STEP = make_samples(8, dtype=torch.float32)  # 4 of them are held out, 4 make a step
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-9}
"""By precision, the largest relative error of a number that is rounded to it."""


def first_gradient(
    folder: Path, precision: Precision, micro_batch_tokens: int, device: str = "cpu"
) -> tuple[Tensor, StepMetrics]:
    """Return the gradient of the first step, all weights in one row, and what was told of it."""
    source = MemorySource(ONE_STEP, micro_batch_tokens=micro_batch_tokens, device=device)
    num_parts = len(source.micro_batches(0, 0, rank=0, num_workers=1))
    assert (num_parts > 2) == (micro_batch_tokens < 100)
    draft, log = tiny_draft(folder, dtype="float32"), Log()
    draft.module.to(device)
    config = config_of(precision=precision, num_epochs=1, loss="kl+0.1eal")
    options = {"log": log, "dtype": "float32", "device": device}
    make_trainer(folder, config, source, draft=draft, **options).run()
    (step,) = log.steps
    gradients = [parameter.grad for parameter in draft.module.parameters()]
    assert all(one is not None and one.dtype == torch.float32 for one in gradients)
    return torch.cat([one.flatten().cpu() for one in gradients if one is not None]), step


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_gradient_is_the_same_however_its_step_is_split(
    precision: Precision, tmp_path: Path
) -> None:
    """Of gradients, as the first updates of AdamW have one size whatever the gradient is.

    Every micro-batch rounds its own part of a weight's gradient to the 8 bits of bfloat16: a part
    is about as large as the sum of all, so that a few roundings are what may differ.
    """
    split, step = first_gradient(tmp_path / "split", precision, 20)
    whole, other = first_gradient(tmp_path / "whole", precision, 1000)
    assert distance(split, whole) < 4 * ROUNDING[precision]
    assert step.loss == pytest.approx(other.loss, rel=4 * ROUNDING[precision])
    assert step.num_tokens == other.num_tokens
    if precision == "bfloat16":  # products are rounded, or this says nothing
        exact = first_gradient(tmp_path / "exact", "float32", 1000)[0]
        assert ROUNDING[precision] / 4 < distance(whole, exact) < 16 * ROUNDING[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_training_that_dies_in_its_second_phase_goes_on_bitwise(
    precision: Precision, tmp_path: Path
) -> None:
    """4 steps an epoch; the newest checkpoint is that of step 10, with the reference of step 4."""
    config = config_of(
        precision=precision,
        num_epochs=3,
        second_epochs=2,
        loss="kl+0.1eal",
        second_loss="wtv+0.1grpo",
        learning_rate=0.05,  # far enough from the reference to accept other tokens
    )
    source, whole, log = MemorySource(SAMPLES), Log(), Log()
    make_trainer(tmp_path / "whole", config, source, log=whole, dtype="float32").run()
    # Draft and reference are the same in the first step of the phase.
    rewarded = [event.terms["grpo"] != 0.0 for event in whole.steps[4:]]
    assert not rewarded[0]
    assert any(rewarded)

    class Died(Exception):
        pass

    def die(event: StepMetrics | ValidationMetrics) -> None:
        if event.kind == "step" and event.step == 12:
            raise Died

    dying = make_trainer(tmp_path / "dead", config, source, log=die, dtype="float32")  # type: ignore[arg-type]  # takes events as a log does
    with pytest.raises(Died):
        dying.run()
    trainer = make_trainer(tmp_path / "dead", config, source, log=log, dtype="float32")
    assert trainer.resume() == 10
    trainer.run()
    ended = last_state(tmp_path / "whole")
    assert_bitwise_equal(last_state(tmp_path / "dead"), ended)
    assert [event.loss for event in log.steps] == [event.loss for event in whole.steps[10:]]
    kept = [*ended.weights.values(), *(m["exp_avg"] for m in ended.moments.values())]
    assert {one.dtype for one in kept} == {torch.float32}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_validation_is_of_the_draft_in_its_precision(
    precision: Precision, tmp_path: Path
) -> None:
    found = {}
    for limit in (1000, 20):  # one batch, and one of every sequence
        source, log = MemorySource(ONE_STEP, micro_batch_tokens=limit), Log()
        config = config_of(precision=precision, num_epochs=1)
        make_trainer(tmp_path / str(limit), config, source, log=log, dtype="float32").run()
        found[limit] = log.validations[0]
    draft, goal = tiny_draft(tmp_path, dtype="float32"), objective(dtype=torch.float32)
    batch = make_batch(ONE_STEP, MemorySource(ONE_STEP).held_out)
    losses = {}
    for kind in PRECISIONS:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=kind == "bfloat16"):
            passes = draft.forward(batch).passes
        expected = eager_loss(
            goal.config, batch, passes, goal.target_head, measures_acceptance=True
        )
        losses[kind] = float(expected.loss.detach())
        if kind == precision:
            assert expected.acceptance is not None
            greedy, sampling = expected.acceptance.greedy, expected.acceptance.sampling
    assert losses["float32"] != pytest.approx(losses["bfloat16"], rel=1e-5)
    whole, split = found[1000], found[20]
    assert whole.loss == pytest.approx(losses[precision], rel=1e-5)
    assert whole.greedy.reached == tuple(greedy.tolist())
    assert whole.sampling.reached == pytest.approx(sampling.tolist(), rel=1e-5)
    assert split.loss == pytest.approx(whole.loss, rel=4 * ROUNDING[precision])
    assert split.sampling.reached == pytest.approx(
        whole.sampling.reached, rel=4 * ROUNDING[precision]
    )
    assert split.greedy.num_windows == whole.greedy.num_windows > 0
