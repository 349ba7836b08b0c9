"""Comparisons of losses: rates per loss, failed trainings as rows, nothing finished repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from flows.loss_tables import loss_tables
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import (
    LossComparisonConfig,
    TrainingRunConfig,
    training_config,
)
from specdec_core.errors import (
    ConfigError,
    EvaluationFailedError,
    StoreError,
    WorkerLostError,
)
from tasks.compare_losses import compare_losses
from tasks.draft_evaluation import evaluate_draft
from tasks.draft_report import DepthAgreement, DraftEvaluation
from tasks.draft_stages import Stages
from tasks.evaluator import ModelEvaluatorFactory
from tasks.loss_report import START, LossReport
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
    decode: Any = evaluate_draft,
    log: list[str] | None = None,
    **changes: Any,
) -> LossReport:
    quick = {"num_epochs": 1, "evaluate": False, "export": False}
    given = tiny_parameters(models)
    if "learning_rates" in changes:
        del given["learning_rate"]
    config = training_config(None, {**given, **quick, **changes})
    assert isinstance(config, LossComparisonConfig)
    setup = TrainingSetup(
        settings=settings,
        store=store,
        start_pool=pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True),
        log=(log if log is not None else []).append,
        is_inline=True,
    )
    return compare_losses(config, setup, Stages(train=train, evaluate=decode))


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
    assert report.headline.endswith("; nothing decoded that could be compared")
    # Two rates per loss, and the second seed: the first one is among the tried.
    assert store.trainings.count("done") == 6
    assert (report.cells, report.is_good) == ((), True)

    lines.clear()
    again = compare(models, settings, store, log=lines, train=_not_again, **asked)
    assert again.rates == report.rates
    assert again.trainings == report.trainings
    assert len([line for line in lines if line.endswith("is done")]) == 8


@pytest.mark.parametrize("draft", ["pruned:layers=0/2", "eagle"])
def test_the_start_decodes_the_same_prompts_and_is_a_row_that_losses_are_paired_with(
    models: Path, settings: Settings, store: Store, draft: str
) -> None:
    asked: dict[str, Any] = {
        "draft": draft,
        "losses": ["kl"],
        "compare_start": True,
        "evaluate": True,
        # Nothing is learned: what is trained is the start.
        "learning_rate": 1e-12,
        "eval_temperatures": [0.0],
    }
    report = compare(models, settings, store, **asked)
    start, kl = report.cells
    assert (start.loss, kl.loss, start.num_prompts) == ("start", "kl", 3)
    assert start.num_steps == kl.num_steps
    assert start.accepted_per_step == kl.accepted_per_step
    (change,) = report.changes_against(START)
    assert (change.loss, change.num_prompts) == ("kl", 3)
    assert change.length.estimate == pytest.approx(0.0)
    tables = dict(loss_tables(report))
    assert "Paired changes against start" in tables["start"].title
    assert "changes" not in tables
    said = "accepted tokens per step against start: 3 prompts are too few to tell losses apart"
    assert report.headline.endswith(said)

    # The start is made and decoded once.
    num_evaluations = store.evaluations.count()
    again = compare(models, settings, store, train=_not_again, **asked)
    assert again.cells == report.cells
    assert store.evaluations.count() == num_evaluations


def test_a_start_that_decodes_otherwise_than_expected_is_a_note(
    models: Path, settings: Settings, store: Store
) -> None:
    gap = DepthAgreement(
        depth=1,
        num_trials=40,
        expected=0.75,
        realised=0.25,
        standard_error=0.0,
        is_checked=True,
        is_agreed=False,
    )

    def decode(config: Any, setup: Any, folder: Path) -> DraftEvaluation:
        found = evaluate_draft(config, setup, folder)
        if "starts" not in folder.parts:
            return found
        cells = tuple(cell.model_copy(update={"depths": (gap,)}) for cell in found.cells)
        return found.model_copy(update={"cells": cells})

    asked: dict[str, Any] = {"losses": ["kl"], "compare_start": True, "evaluate": True}
    report = compare(models, settings, store, decode=decode, eval_temperatures=[0.0], **asked)
    assert report.notes == (
        "start: accepts otherwise in decoding than expected: qa, chain, temperature 0, depth 1: "
        "expected 0.750, realised 0.250 in 40 steps",
    )
    assert report.is_good


def test_a_start_that_cannot_decode_costs_no_training(
    models: Path, settings: Settings, store: Store
) -> None:
    def decode(config: Any, setup: Any, folder: Path) -> Any:
        if "starts" in folder.parts:
            raise ConfigError("its files are damaged")
        return evaluate_draft(config, setup, folder)

    asked: dict[str, Any] = {"losses": ["kl"], "compare_start": True, "evaluate": True}
    report = compare(models, settings, store, decode=decode, eval_temperatures=[0.0], **asked)
    assert [cell.loss for cell in report.cells] == ["kl"]
    assert report.notes[0] == "start: its files are damaged"

    def full(*_given: Any) -> Any:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        compare(models, settings, store, decode=full, **asked, seeds=[1])


def test_a_start_that_shall_not_decode_cannot_be_compared(models: Path) -> None:
    given = tiny_parameters(models)
    with pytest.raises(ConfigError, match=r"compare_start decodes .* but evaluate is off"):
        training_config(None, {**given, "compare_start": True, "evaluate": False})
    assert isinstance(training_config("kl", given | {"compare_start": False}), TrainingRunConfig)


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
    # A loss without a usable rate is a row too, and what is compared is not what was asked for.
    assert [(each.loss, each.error) for each in report.trainings] == [
        ("kl", None),
        ("ce", "no learning rate could be used"),
    ]
    assert not report.is_good
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
    assert [(each.loss, each.error is None) for each in report.trainings] == [
        ("ce", False),
        ("kl", True),
    ]
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
    with pytest.raises(ConfigError, match="3 of 1 epochs are of the second loss"):
        compare(models, settings, store, losses=losses)
    with pytest.raises(ConfigError, match="domain 'nonsense' is unknown"):
        compare(models, settings, store, losses=["kl"], evaluate=True, eval_domains=["nonsense"])
    assert store.runs.list() == []
    assert not (settings.home_dir / "draft-data").exists()


def _not_again(*_given: Any, **_options: Any) -> Any:
    raise AssertionError("a finished training was done again")
