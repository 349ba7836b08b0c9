"""Phases, steps and the choice of what is best."""

from __future__ import annotations

import pytest

from specdec_core.config.dtype import DType
from specdec_core.config.training import ModelDraft, Precision, TrainConfig
from specdec_core.errors import ConfigError
from specdec_core.training.plan import TrainingPlan, criterion_of


def test_three_epochs_and_three_with_grpo() -> None:
    config = TrainConfig(loss="wtv", second_loss="wtv+0.1grpo", num_epochs=6, second_epochs=3)
    plan = TrainingPlan.of(config, steps_per_epoch=10)
    assert plan.num_steps == 60
    assert [plan.phase(step) for step in (0, 29, 30, 59)] == [1, 1, 2, 2]
    assert [plan.epoch(step) for step in (0, 9, 10, 59, 60)] == [0, 0, 1, 5, 5]
    # Its end is validated though 30 is no multiple of 50, and so is that of the training.
    assert [n for n in range(1, 61) if plan.validates_after(n)] == [30, 50, 60]


@pytest.mark.parametrize(
    ("precision", "target", "expected"),
    [
        ("auto", "bfloat16", True),
        ("auto", "bfloat16-int8", True),
        ("auto", "float32", False),
        ("auto", "float16", False),
        ("float32", "bfloat16", False),
        ("bfloat16", "float32", True),
    ],
)
def test_products_are_in_the_targets_type_unless_another_is_asked_for(
    precision: Precision, target: DType, expected: bool
) -> None:
    plan = TrainingPlan.of(TrainConfig(precision=precision), 3, target)
    assert plan.is_autocast is expected


def test_the_peak_follows_the_draft_unless_it_is_given() -> None:
    trained = ModelDraft(model="path:/somewhere")
    assert TrainingPlan.of(TrainConfig(), 3).peak == 1e-3
    assert TrainingPlan.of(TrainConfig(draft=trained), 3).peak == 1e-4
    assert TrainingPlan.of(TrainConfig(draft=trained, learning_rate=0.01), 3).peak == 0.01


def test_one_phase_has_no_second_start() -> None:
    plan = TrainingPlan.of(TrainConfig(num_epochs=2), steps_per_epoch=3)
    assert plan.second_start is None
    assert plan.phase(5) == 1


def test_a_second_phase_needs_a_first() -> None:
    config = TrainConfig(second_loss="kl+0.1grpo", num_epochs=3, second_epochs=3)
    with pytest.raises(ConfigError, match="3 of 3 epochs are of the second loss"):
        TrainingPlan.of(config, 10)


def test_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(ConfigError, match="no training sequence"):
        TrainingPlan.of(TrainConfig(), 0)


@pytest.mark.parametrize(
    ("loss", "second", "chosen", "expected"),
    [
        ("kl", None, "auto", "greedy"),
        ("kl+0.1eal", "kl+0.1eal+0.1grpo", "auto", "greedy"),
        ("wtv", None, "auto", "sampling"),
        ("kl+0.1tv", None, "auto", "sampling"),
        ("lk-lambda", None, "auto", "sampling"),
        ("kl", "wtv+0.1grpo", "auto", "sampling"),
        ("wtv", None, "greedy", "greedy"),
        ("kl", None, "sampling", "sampling"),
    ],
)
def test_the_criterion_follows_the_losses_unless_it_is_given(
    loss: str, second: str | None, chosen: str, expected: str
) -> None:
    config = TrainConfig.model_validate({"loss": loss, "second_loss": second, "select_by": chosen})
    assert criterion_of(config) == expected
