"""What travels between a driver and its model workers: jobs, results and failures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from db.schemas import CalibrationRecord
from specdec_core.config.base import Record
from specdec_core.config.calibration import CalibrationRequest
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.records import EvaluationResult
from tasks.draft_data_jobs import ShardRequest, ShardResult

Job = EvaluationRequest | CalibrationRequest | ShardRequest
JobResult = EvaluationResult | CalibrationRecord | ShardResult
StopCheck = Callable[[], bool]
FailureKind = Literal["error", "memory", "lost", "cancelled", "setup"]


class JobFailure(Record):
    """Why one attempt at a job gave no result.

    ``setup`` means that the worker cannot do any job (wrong model, suite or settings);
    ``lost`` that its process died; ``memory`` that it ran out of memory.
    """

    kind: FailureKind
    error_type: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> JobFailure:
        """Return the failure that `error` means."""
        name = type(error).__name__
        kind: FailureKind = "error"
        if isinstance(error, SearchCancelledError):
            kind = "cancelled"
        elif isinstance(error, ConfigError):
            kind = "setup"
        elif isinstance(error, MemoryError) or "OutOfMemory" in name or _is_allocation(error):
            kind = "memory"
        return cls(kind=kind, error_type=name, message=str(error) or name)


def _is_allocation(error: BaseException) -> bool:
    """True for PyTorch's plain RuntimeError of a failed CPU allocation."""
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def fault_of(request: EvaluationRequest, result: EvaluationResult) -> JobFailure | None:
    """Return what makes a result unfit to be stored, if anything."""
    summary = result.summary
    figures = (summary.acceptance_length, summary.metric, summary.metric_raw, summary.loss)
    message = None
    if result.key != request.key:
        message = f"the result is for {result.key[:12]}, not for {request.key[:12]}"
    elif not all(math.isfinite(figure) for figure in figures if figure is not None):
        message = f"acceptance, metric, raw metric or loss is not a finite number: {figures}"
    if message is None:
        return None
    return JobFailure(kind="error", error_type="MeasurementError", message=message)


@dataclass(frozen=True, slots=True)
class Completed:
    """One attempt at one job, and what came of it."""

    job: Job
    result: JobResult | JobFailure


class Evaluator(Protocol):
    """Does the jobs of one worker process; holds the loaded model."""

    def run(self, job: Job, should_stop: StopCheck) -> JobResult:
        """Return the result of `job`; raise SearchCancelledError once `should_stop` is true."""
        ...


EvaluatorFactory = Callable[[], Evaluator]
"""Makes the evaluator inside the worker process; must survive pickling."""
