"""Stored runs read back as the reports that they ended with."""

from __future__ import annotations

from typing import get_args

from pydantic import ValidationError

from db.schemas import RunRecord
from db.store import Store
from specdec_core.errors import ConfigError, RunNotFoundError
from tasks.benchmark_report import BenchmarkReport
from tasks.loss_report import LOSS_KIND, LossReport
from tasks.report import SearchReport
from tasks.sweep_report import SweepKind, SweepReport
from tasks.training_report import TRAINING_KIND, TrainingReport

Report = SearchReport | SweepReport | BenchmarkReport | TrainingReport | LossReport
SEARCH_KIND = "tss-search"


def finished_run(store: Store, run_id: str) -> RunRecord:
    """Return a completed run.

    Raises:
        ConfigError: if it has not come to its end.
        RunNotFoundError: if there is none.
    """
    run = store.runs.get(run_id)
    if run is None:
        raise RunNotFoundError(
            f"there is no run {run_id!r}: `specdec runs list` shows what is stored"
        )
    if run.status != "completed":
        raise ConfigError(
            f"run {run_id} is {run.status}, and only completed ones have a result: run the same "
            "again, it goes on with what is stored"
        )
    return run


def read_report(run: RunRecord) -> Report:
    """Return the report of a search, a sweep, a benchmark, a training or a comparison of losses.

    Raises:
        ConfigError: if the run is of another kind, or was stored in a form that is not read.
    """
    try:
        if run.kind == SEARCH_KIND:
            return SearchReport.model_validate(run.summary)
        if run.kind in get_args(SweepKind):
            return SweepReport.model_validate(run.summary)
        if run.kind == TRAINING_KIND:
            return TrainingReport.model_validate(run.summary)
        if run.kind == LOSS_KIND:
            return LossReport.model_validate(run.summary)
        return BenchmarkReport.model_validate(run.summary)
    except ValidationError as error:
        raise ConfigError(
            f"run {run.id} is a {run.kind} run without the report of a search, a sweep, a "
            "benchmark or a training in it: `specdec runs show` prints any run whole"
        ) from error
