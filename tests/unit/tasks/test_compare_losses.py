"""Comparisons of losses: rates per loss, failed trainings as rows, nothing finished repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import LossComparisonConfig, training_config
from specdec_core.errors import (
    ConfigError,
    EvaluationFailedError,
    StoreError,
    WorkerLostError,
)
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


def test_any_failure_of_a_training_is_a_row_but_a_store_that_is_gone_ends_all(
    models: Path, settings: Settings, store: Store
) -> None:
    def train(config: Any, *given: Any, **options: Any) -> Any:
        if config.loss == "ce":
            raise ConfigError("memory is too small")
        return train_draft(config, *given, **options)

    asked: dict[str, Any] = {"losses": ["ce", "kl"], "learning_rates": [1e-3, 3e-3]}
    report = compare(models, settings, store, train=train, **asked)
    assert [each.error for each in report.rates[:2]] == ["memory is too small"] * 2
    assert [each.loss for each in report.trainings] == ["kl"]
    plain = compare(models, settings, store, train=train, losses=["ce", "kl"])
    assert [each.error for each in plain.trainings] == ["memory is too small", None]

    for error in (StoreError("the disk is full"), WorkerLostError("no worker can be had")):

        def fail(*_given: Any, error: Exception = error, **_options: Any) -> Any:
            raise error

        with pytest.raises(type(error), match=str(error)):
            compare(models, settings, store, train=fail, losses=["wtv"], seeds=[0, 1])


def test_a_loss_that_cannot_be_trained_is_refused_before_the_first_one_is(
    models: Path, settings: Settings, store: Store
) -> None:
    # One epoch cannot be shared by the two phases of the last loss.
    losses = ["kl", "wtv/wtv+0.1grpo"]
    with pytest.raises(ConfigError, match="1 of 1 epochs are of the second loss"):
        compare(models, settings, store, losses=losses)
    with pytest.raises(ConfigError, match="domain 'nonsense' is unknown"):
        compare(models, settings, store, losses=["kl"], evaluate=True, eval_domains=["nonsense"])
    assert store.runs.list() == []
    assert not (settings.home_dir / "draft-data").exists()


def _not_again(*_given: Any, **_options: Any) -> Any:
    raise AssertionError("a finished training was done again")
