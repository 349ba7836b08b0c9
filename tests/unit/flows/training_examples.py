"""Reports of a training and of a comparison of losses, small and valid."""

from __future__ import annotations

from typing import Any

from db.cells import CellFigures
from db.schemas import Interval
from db.store import Store
from db.training import DraftCheckpoint
from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.training_run import LossComparisonConfig, training_config
from specdec_core.training.outcome import (
    Acceptance,
    MemoryEstimate,
    TrainingOutcome,
    ValidationMetrics,
)
from tasks.draft_report import DepthAgreement, DraftCell, DraftEvaluation, PromptAcceptance
from tasks.loss_compose import compare_arms
from tasks.loss_report import LossReport, LossTraining, RateTrial
from tasks.training_report import DataSummary, TrainingReport, headline
from tests.integration import store_examples


def validation(step: int, first: float) -> ValidationMetrics:
    """Ten windows of two tokens, of which `first` reach the first depth."""
    return ValidationMetrics(
        step=step,
        epoch=0,
        loss=1.0,
        terms={"wtv": 1.0},
        greedy=Acceptance(num_windows=10, reached=(first, first / 2)),
        sampling=Acceptance(num_windows=10, reached=(first, first / 2)),
        num_sequences=2,
        num_tokens=40,
        seconds=1.0,
    )


def outcome() -> TrainingOutcome:
    """50 steps that take the expected acceptance length from 1.15 to 2.2."""
    sizes = dict.fromkeys(MemoryEstimate.model_fields, 1024)
    return TrainingOutcome.model_validate(
        {
            "num_steps": 50,
            "num_epochs": 2,
            "criterion": "sampling",
            "start": validation(0, 1.0),
            "best": validation(50, 8.0),
            "last": validation(50, 8.0),
            "losses": ((50, 1.0),),
            "validations": (validation(0, 1.0), validation(50, 8.0)),
            "num_tokens": 1000,
            "num_skipped": 0,
            "seconds": 10.0,
            "tokens_per_s": 100.0,
            "peak_bytes": 2**30,
            "estimate": MemoryEstimate.model_validate(sizes),
            "draft_folder": "/drafts/wtv",
            "data_hash": "d" * 64,
            "template_hash": "t" * 64,
            "lineage": {"target": "a" * 64, "code": "c" * 8},
        }
    )


def evaluation(accepted: tuple[int, ...] = (2, 0, 1, 2)) -> DraftEvaluation:
    """One prompt in chains of two at temperature 1."""
    depths = tuple(
        DepthAgreement(
            depth=depth,
            num_trials=40,
            expected=0.75,
            realised=0.7,
            standard_error=0.07,
            is_checked=True,
            is_agreed=True,
        )
        for depth in (1, 2)
    )
    cell = DraftCell(
        domain="math@gsm8k",
        shape="chain",
        temperature=1.0,
        drafter="draft-model",
        run_id="b" * 32,
        evaluation_key="e" * 64,
        figures=CellFigures(
            num_items=1,
            num_tokens=9,
            acceptance_length=2.25,
            accepted_p25=0.75,
            accepted_median=1.5,
            accepted_p75=2.0,
            tokens_per_s=60.0,
            speedup=Interval(estimate=1.25, low=1.1, high=1.4),
        ),
        accepted_per_step=sum(accepted) / len(accepted),
        depths=depths,
        samples=(
            PromptAcceptance(
                item_id="gsm8k/1",
                num_steps=len(accepted),
                num_tokens=1 + len(accepted) + sum(accepted),
                accepted=accepted,
            ),
        ),
    )
    return DraftEvaluation(
        draft="path:/drafts/wtv",
        draft_identity="i" * 64,
        reference_identity="i" * 64,
        target="pypi:smollm2-135m",
        target_identity="a" * 64,
        config=DraftEvaluationConfig(),
        cells=(cell,),
        notes=("one remark",),
    )


def seed_training(store: Store) -> TrainingReport:
    """Store a finished training with its checkpoint, evaluation and report."""
    run = store_examples.make_run(
        store, kind="train-drafter", name="wtv", flow_run_id="0f", config={"loss": "wtv"}
    )
    training = store_examples.training(run.id, checkpoint="c" * 64, status="done")
    store.trainings.put(training)
    store.checkpoints.register(store_examples.checkpoint(run.id))
    checkpoint = store.checkpoints.judge(
        "c" * 64,
        state="validated",
        reason="realised acceptance is the expected one at 2 depths",
        evaluation_key="e" * 64,
        evaluation=evaluation().model_dump(mode="json"),
        realised_length=2.25,
        realised_acceptance=(0.7, 0.7),
    )
    report = training_report(run.id, checkpoint)
    summary = report.model_dump(mode="json")
    store.runs.update(run.id, status="completed", summary=summary, tracker_id="f" * 32)
    return report


def training_report(run_id: str, checkpoint: DraftCheckpoint) -> TrainingReport:
    """The report of `seed_training`."""
    return TrainingReport.model_validate(
        {
            "run_id": run_id,
            "headline": headline("pruned", "wtv", outcome(), checkpoint),
            "config": training_config("wtv", {}),
            "target": "pypi:smollm2-135m",
            "target_identity": "a" * 64,
            "draft": "pruned",
            "losses": "wtv",
            "data": DataSummary(
                key="d" * 64,
                folder="/home/me/draft-data",
                template_hash="t" * 64,
                num_prompts=16,
                num_samples=15,
                num_tokens=900,
                num_response_tokens=600,
                dropped={"duplicate": 1},
            ),
            "training_key": "k" * 64,
            "outcome": outcome(),
            "curve": store_examples.training(run_id).curve,
            "checkpoint": checkpoint,
            "evaluation": evaluation(),
            "hardware": "test cpu, 2 threads",
            "log_file": "/home/me/log",
        }
    )


def loss_report(run_id: str = "r" * 32) -> LossReport:
    """Two losses with one seed each; the second accepts twice as much."""
    arms = {("kl", 0): evaluation((1, 0, 1, 0)), ("wtv", 0): evaluation((1, 1, 1, 1))}
    cells, changes, notes = compare_arms(arms)
    config = training_config(None, {"losses": ["kl", "wtv"], "learning_rates": [1e-4, 1e-3]})
    assert isinstance(config, LossComparisonConfig)
    trainings: list[dict[str, Any]] = [
        {"loss": loss, "seed": 0, "learning_rate": 1e-4, "run_id": run_id, "state": "validated"}
        for loss in ("kl", "wtv")
    ]
    curve = store_examples.training(run_id).curve
    return LossReport(
        run_id=run_id,
        headline="2 trainings",
        config=config,
        target="pypi:smollm2-135m",
        draft="pruned",
        rates=(
            RateTrial(
                loss="kl", learning_rate=1e-4, expected_length=2.0, best_step=0, is_chosen=True
            ),
            RateTrial(loss="kl", learning_rate=1e-3, error="loss is nan"),
        ),
        trainings=tuple(LossTraining(**each, curve=curve) for each in trainings),
        cells=cells,
        changes=changes,
        notes=notes,
    )
