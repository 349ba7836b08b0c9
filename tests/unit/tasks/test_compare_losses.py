"""Comparisons of losses: rates per loss, failed trainings as rows, nothing finished repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import LossComparisonConfig, training_config
from specdec_core.errors import EvaluationFailedError
from tasks.compare_losses import compare_losses
from tasks.draft_stages import Stages
from tasks.evaluator import ModelEvaluatorFactory
from tasks.loss_report import LossReport
from tasks.pool import pool_factory
from tasks.training import train_draft
from tasks.training_setup import TrainingSetup
from tests.draft_prompts import settings_of
from tests.tiny_training_runs import tiny_parameters


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny target and its prompts."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def compare(
    models: Path,
    settings: Settings,
    store: Store,
    *,
    train: Any = train_draft,
    log: list[str] | None = None,
    **changes: Any,
) -> LossReport:
    quick = {"num_epochs": 1, "evaluate": False, "export": False}
    config = training_config(None, {**tiny_parameters(models), **quick, **changes})
    assert isinstance(config, LossComparisonConfig)
    setup = TrainingSetup(
        settings=settings,
        store=store,
        start_pool=pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True),
        log=(log if log is not None else []).append,
        is_inline=True,
    )
    return compare_losses(config, setup, Stages(train=train))


def test_every_loss_gets_the_rate_that_is_best_on_validation_data(
    models: Path, settings: Settings, store: Store
) -> None:
    lines: list[str] = []
    asked = {"losses": ["kl", "wtv"], "seeds": [0, 1], "learning_rates": [1e-7, 3e-3]}
    report = compare(models, settings, store, log=lines, **asked)
    for loss in asked["losses"]:
        tried = [each for each in report.rates if each.loss == loss]
        (chosen,) = (each for each in tried if each.is_chosen)
        assert chosen.expected_length == max(each.expected_length or 0.0 for each in tried)
        rates = {each.learning_rate for each in report.trainings if each.loss == loss}
        assert rates == {chosen.learning_rate}
    # Two rates per loss, and the second seed: the first one is among the tried.
    assert store.trainings.count("done") == 6
    assert (report.cells, report.is_good) == ((), True)

    lines.clear()
    again = compare(models, settings, store, log=lines, train=_not_again, **asked)
    assert again.rates == report.rates
    assert again.trainings == report.trainings
    assert len([line for line in lines if line.endswith("is done")]) == 8


def test_a_loss_that_is_not_finite_is_a_row_with_its_reason(
    models: Path, settings: Settings, store: Store
) -> None:
    def train(config: Any, *given: Any, **options: Any) -> Any:
        if config.learning_rate > 1.0 / 2 or config.loss == "ce":
            raise EvaluationFailedError("loss is nan at step 1, samples s1")
        return train_draft(config, *given, **options)

    report = compare(
        models, settings, store, train=train, losses=["kl", "ce"], learning_rates=[3e-3, 1.0]
    )
    tried = {(each.loss, each.learning_rate): each for each in report.rates}
    assert tried["kl", 3e-3].is_chosen
    assert tried["kl", 1.0].error == "loss is nan at step 1, samples s1"
    assert tried["ce", 3e-3].expected_length is None
    assert [each.loss for each in report.trainings] == ["kl"]
    plain = compare(models, settings, store, train=train, losses=["kl", "ce"])
    assert [(each.loss, each.error is None) for each in plain.trainings] == [
        ("kl", True),
        ("ce", False),
    ]
    assert not plain.is_good
    assert "ce, seed 0: loss is nan at step 1, samples s1" in plain.notes


def _not_again(*_given: Any, **_options: Any) -> Any:
    raise AssertionError("a finished training was done again")
