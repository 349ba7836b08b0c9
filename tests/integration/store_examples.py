"""Small valid records for tests of the store; every one can be varied by keyword."""

from __future__ import annotations

from typing import Any

from db.cells import BenchmarkCell, CellFigures, CellSample, Certificate
from db.clock import utc_now
from db.lifecycle import Cause, ProfileVerification
from db.schemas import (
    CalibrationRecord,
    HeldoutComparison,
    Interval,
    ProfileScores,
    RunRecord,
    SkipProfile,
    StepTime,
    TargetRecord,
)
from db.store import Store
from db.training import DraftCheckpoint, ExpectedAcceptance, TrainingPoint, TrainingRecord
from specdec_core.config.drafters import TokenRecycling
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import (
    EvaluationResult,
    EvaluationSummary,
    PhaseSeconds,
    SampleResult,
    StepTrace,
)

PROVENANCE = {
    "commit": "0123abcd",
    "environment": {"python": "3.11.7"},
    "command": ["specdec", "search", "translation"],
}


def make_run(store: Store, **changes: Any) -> RunRecord:
    """Create a run of a translation search."""
    values = {"kind": "tss-search", "name": "translation", "config": {"beam": 4}} | changes
    return store.runs.create(**{"provenance": PROVENANCE, **values})


def request(**changes: Any) -> EvaluationRequest:
    """An evaluation of two items."""
    values: dict[str, Any] = {
        "target": "path:/models/tiny",
        "target_identity": "a" * 64,
        "dtype": "float32",
        "skip": "a3",
        "drafter": TokenRecycling(),
        "suite": "translation",
        "suite_hash": "s" * 64,
        "domain": "translation",
        "template_hash": "t" * 64,
        "item_ids": ("de-1", "de-2"),
        "max_new_tokens": 8,
        "code_version": "c" * 8,
    }
    return EvaluationRequest(**(values | changes))


def sample(item_id: str, **changes: Any) -> SampleResult:
    """Three verify steps that accept 2, 0 and 4 draft tokens and commit one more each."""
    values: dict[str, Any] = {
        "item_id": item_id,
        "prompt_tokens": 5,
        "token_ids": (3, 1, 4, 1, 5, 9, 2, 6, 262143),
        "text": "Guten Tag\0\n",
        "answer": "Guten Tag",
        "useful_tokens": 7,
        "finish_reason": "stop_string",
        "score": 0.5,
        "raw_score": 0.25,
        "gaps": (5.5, 0.0, 1e-7, 0.125, 2.0, 3.0, 0.3, 1.0, 9.75),
        "trace": StepTrace(
            drafted=(12, 12, 12), depth=(4, 4, 4), accepted=(2, 0, 4), committed=(3, 1, 5)
        ),
        "seconds": 0.125,
        "step_seconds": (0.025, 0.04, 0.06),
        "token_ends": (2, 4, 5, 6, 7, 8, 9, 10, 11),
    }
    return SampleResult(**(values | changes))


def summary(num_samples: int = 2) -> EvaluationSummary:
    """The pooled figures of `num_samples` times `sample`."""
    return EvaluationSummary(
        num_samples=num_samples,
        num_scored=num_samples,
        metric=0.5,
        metric_raw=0.25,
        num_steps=3 * num_samples,
        num_tokens=9 * num_samples,
        num_useful_tokens=7 * num_samples,
        num_drafted=36 * num_samples,
        num_accepted=6 * num_samples,
        acceptance_length=3.0,
        hit_rate=1.0,
        mean_output_tokens=9.0,
        stop_rate=1.0,
        distinct_2=1.0,
        longest_repeat=1.0,
        prefill_s=0.01,
        decode_s=0.125 * num_samples,
        tokens_per_s=64.0,
    )


def result(asked: EvaluationRequest, **changes: Any) -> EvaluationResult:
    """A result that answers `asked`."""
    values: dict[str, Any] = {
        "key": asked.key,
        "summary": summary(len(asked.item_ids)),
        "samples": tuple(sample(item) for item in asked.item_ids),
        "phases": PhaseSeconds(prefill=0.01, forward=0.25),
        "wall_s": 0.5,
        "peak_memory_bytes": 3 * 2**31,
        "hardware": "test cpu, 2 threads",
    }
    return EvaluationResult(**(values | changes))


def heldout() -> HeldoutComparison:
    """A comparison in which the sparse target is a little faster and a little worse."""
    return HeldoutComparison(
        num_items=64,
        acceptance_dense=2.0,
        acceptance_sparse=2.2,
        acceptance_change=Interval(estimate=0.1, low=0.05, high=0.15),
        metric_dense=0.12,
        metric_sparse=0.117,
        metric_change=Interval(estimate=-0.025, low=-0.06, high=0.01),
        tokens_per_s_dense=20.0,
        tokens_per_s_sparse=22.0,
        speedup=Interval(estimate=1.1, low=1.05, high=1.16),
        guards_dense={"distinct_2": 0.9},
        guards_sparse={"distinct_2": 0.88},
    )


def profile(run_id: str, **changes: Any) -> SkipProfile:
    """An active profile for translation."""
    values: dict[str, Any] = {
        "target": "pypi:gemma3-270m",
        "target_identity": "a" * 64,
        "num_layers": 18,
        "dtype": "bfloat16",
        "domain": "translation",
        "drafter": "token-recycling",
        "skip": "a3,a11",
        "status": "active",
        "is_dense": False,
        "run_id": run_id,
        "suite_hash": "s" * 64,
        "template_hash": "t" * 64,
        "hardware": "test cpu, 2 threads",
        "selection": ProfileScores(
            acceptance_length=2.2, metric=0.12, dense_acceptance_length=2.0, dense_metric=0.12
        ),
        "heldout": heldout(),
        "tolerance_acceptance": -0.05,
        "tolerance_metric": -0.05,
        "reason": "held-out metric stays within tolerance",
    }
    return SkipProfile(**(values | changes))


def target(**changes: Any) -> TargetRecord:
    """The target that `profile` is for."""
    values: dict[str, Any] = {
        "identity": "a" * 64,
        "reference": "pypi:gemma3-270m",
        "kind": "base",
        "num_layers": 18,
    }
    return TargetRecord(**(values | changes))


def cause(reason: str = "a person decided", **changes: Any) -> Cause:
    """What a person at a terminal gives."""
    values = {"command": "specdec profiles activate 1", "actor": "ada@lab"}
    return Cause(reason=reason, **(values | changes))


def verification(profile_id: int | None, run_id: str, **changes: Any) -> ProfileVerification:
    """A repeated measurement that holds."""
    assert profile_id is not None
    values: dict[str, Any] = {
        "profile_id": profile_id,
        "run_id": run_id,
        "holds": True,
        "reason": "a3,a11 holds on 64 held-out items",
        "heldout": heldout(),
        "hardware": "test cpu, 2 threads",
        "created_at": utc_now(),
    }
    return ProfileVerification(**(values | changes))


def calibration(**changes: Any) -> CalibrationRecord:
    """Two points of a step-time curve."""
    values: dict[str, Any] = {
        "target": "pypi:gemma3-270m",
        "target_identity": "a" * 64,
        "dtype": "bfloat16",
        "hardware": "test cpu, 2 threads",
        "context_tokens": 256,
        "curve": (
            StepTime(num_nodes=1, median_s=0.02, seconds=(0.019, 0.02, 0.021)),
            StepTime(num_nodes=13, median_s=0.03),
        ),
    }
    return CalibrationRecord(**(values | changes))


def cell(run_id: str, **changes: Any) -> BenchmarkCell:
    """A done benchmark cell of one item, timed twice."""
    values: dict[str, Any] = {
        "run_id": run_id,
        "target": "pypi:gemma3-270m",
        "target_identity": "a" * 64,
        "dtype": "bfloat16",
        "domain": "translation",
        "drafter": "prompt-lookup",
        "status": "done",
        "certificate": Certificate(level="up-to-ties", num_items=1, num_identical=1, tie_gap=0.25),
        "figures": CellFigures(num_items=1, num_tokens=9, acceptance_length=3.0, tokens_per_s=72.0),
        "samples": (
            CellSample(
                item_id="de-1",
                num_tokens=9,
                num_steps=3,
                seconds=(0.125, 0.126),
                baseline_seconds=(0.25, 0.251),
            ),
        ),
    }
    return BenchmarkCell(**(values | changes))


_DRAFT = {
    "target": "pypi:smollm2-135m",
    "target_identity": "a" * 64,
    "draft": "pruned:num_layers=5",
    "draft_kind": "pruned",
    "loss": "wtv",
    "seed": 0,
    "data_hash": "d" * 64,
    "template_hash": "t" * 64,
}


def training(run_id: str, **changes: Any) -> TrainingRecord:
    """A training with two points of its curve, still going."""
    values: dict[str, Any] = {
        **_DRAFT,
        "run_id": run_id,
        "key": "k" * 64,
        "status": "running",
        "learning_rate": 1e-4,
        "config": {"loss": "wtv"},
        "curve": (
            TrainingPoint(step=0, sampling=ExpectedAcceptance(length=1.75, by_depth=(0.5, 0.5))),
            TrainingPoint(
                step=50,
                seconds=20.0,
                loss=-1.25,
                learning_rate=1e-4,
                gradient_norm=0.5,
                tokens_per_s=1500.0,
                validation_loss=-1.5,
                greedy=ExpectedAcceptance(length=2.0, by_depth=(0.75, 0.5)),
                sampling=ExpectedAcceptance(length=2.125, by_depth=(0.75, 0.5)),
                is_best=True,
            ),
        ),
    }
    return TrainingRecord(**(values | changes))


def checkpoint(run_id: str, **changes: Any) -> DraftCheckpoint:
    """What `training` left after 50 steps."""
    values: dict[str, Any] = {
        **_DRAFT,
        "run_id": run_id,
        "content_hash": "c" * 64,
        "training_key": "k" * 64,
        "step": 50,
        "folder": "/drafts/wtv",
        "criterion": "sampling",
        "expected_length": 2.125,
        "expected_acceptance": (0.75, 0.5),
    }
    return DraftCheckpoint(**(values | changes))
