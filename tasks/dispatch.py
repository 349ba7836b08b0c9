"""From requests to stored results: memo first, then workers; every result is written once."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.records import EvaluationResult, EvaluationSummary
from tasks.jobs import JobFailure, StopCheck
from tasks.pool import PoolFactory, WorkerPool

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 2
_CANCEL_GRACE_S = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about one request, and how it became known."""

    request: EvaluationRequest
    result: EvaluationSummary | JobFailure
    source: Literal["store", "worker"]
    seconds: float = 0.0
    """Seconds in the worker; 0 where it came from the store."""


@dataclass(slots=True)
class _Asked:
    role: str
    level: int | None
    attempts: int = 0


@dataclass(slots=True)
class Dispatcher:
    """Answers evaluation requests of one run.

    What the store has is answered at once and no worker is started for it. The pool is started
    at the first request that the store cannot answer. Results are stored, and linked to the
    run, before they are handed out. A request that fails is tried again until it has failed
    `max_attempts` times, except where it ran out of memory; then it is answered as failed, and
    stays failed for later runs unless `retries_failed`.

    Args:
        store: Where results are looked up and kept; this object is its only writer of results.
        start_pool: Starts the workers.
        run_id: The run that results are linked to.
        should_stop: Asked while waiting; true cancels.
        max_attempts: Tries per request.
        retries_failed: Whether requests that failed finally in an earlier run are tried again.
    """

    store: Store
    start_pool: PoolFactory
    run_id: str
    should_stop: StopCheck = lambda: False
    max_attempts: int = MAX_ATTEMPTS
    retries_failed: bool = False
    num_memoised: int = 0
    num_evaluated: int = 0
    num_failed: int = 0
    _pool: WorkerPool | None = None
    _asked: dict[str, _Asked] = field(default_factory=dict)
    _ready: deque[Answer] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        """True when every request has been answered and handed out."""
        return not self._asked and not self._ready

    def submit(
        self, requests: Sequence[tuple[str, EvaluationRequest]], level: int | None = None
    ) -> None:
        """Ask for some evaluations, each in a role that is noted with the run.

        Those that need a worker are done by one, in this order.
        """
        missing = []
        for role, request in requests:
            if request.key in self._asked:
                continue
            answer = self._from_store(request)
            if answer is None:
                self._asked[request.key] = _Asked(role, level)
                missing.append(request)
                continue
            self.store.runs.link(self.run_id, request.key, role, level)
            self._ready.append(answer)
        if missing:
            self._workers().submit(*missing)

    def wait(self, timeout_s: float = 1.0) -> list[Answer]:
        """Return answers that are ready; none after `timeout_s` if there are none.

        Raises:
            SearchCancelledError: once `should_stop` is true; finished results are stored.
            ConfigError: if a worker cannot work at all.
            StoreError: if a result cannot be written.
            WorkerLostError: if no workers can be had.
        """
        self._check_cancelled()
        if self._asked and not self._ready:
            for completed in self._workers().wait(timeout_s):
                assert isinstance(completed.job, EvaluationRequest)
                assert isinstance(completed.result, EvaluationResult | JobFailure)
                self._take(completed.job, completed.result)
        answers, self._ready = list(self._ready), deque()
        return answers

    def close(self) -> None:
        """End the workers, if any were started."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _workers(self) -> WorkerPool:
        if self._pool is None:
            self._pool = self.start_pool(self.should_stop)
        return self._pool

    def _from_store(self, request: EvaluationRequest) -> Answer | None:
        summary = self.store.evaluations.summary(request.key)
        if summary is not None:
            self.num_memoised += 1
            logger.info("evaluation %s is stored already, skipped", request.key[:12])
            return Answer(request, summary, "store")
        row = self.store.evaluations.row(request.key)
        if row is None or row.attempts < self.max_attempts or self.retries_failed:
            return None
        self.num_failed += 1
        logger.warning(
            "evaluation %s failed %d times before and is left out; --retry-failed tries it again",
            request.key[:12],
            row.attempts,
        )
        failure = JobFailure(
            kind="error", error_type=row.error_type or "Error", message=row.error or "unknown"
        )
        return Answer(request, failure, "store")

    def _take(self, request: EvaluationRequest, result: EvaluationResult | JobFailure) -> None:
        """Store one attempt; answer it, or send it again."""
        if isinstance(result, EvaluationResult):
            self._store_result(request, result)
        elif result.kind == "cancelled":
            self._asked.pop(request.key)
        elif result.kind == "setup":
            raise ConfigError(f"a model worker cannot work: {result.message}")
        else:
            self._store_failure(request, result)

    def _store_result(self, request: EvaluationRequest, result: EvaluationResult) -> None:
        fault = _fault(request, result)
        if fault is not None:
            self._store_failure(request, fault)
            return
        is_new = self.store.evaluations.put(request, result)
        # Where another search was faster, its stored result is the one that counts.
        summary = result.summary if is_new else self.store.evaluations.summary(request.key)
        assert summary is not None
        self.num_evaluated += 1
        logger.info(
            "evaluation %s (%s) done in %.1f s: acceptance %.3f, metric %s",
            request.key[:12],
            request.skip or "dense",
            result.wall_s,
            summary.acceptance_length,
            summary.metric,
        )
        self._answer(request, summary, result.wall_s)

    def _store_failure(self, request: EvaluationRequest, failure: JobFailure) -> None:
        asked = self._asked[request.key]
        asked.attempts += 1
        total = self.store.evaluations.fail(request, failure.error_type, failure.message)
        is_final = failure.kind == "memory" or asked.attempts >= self.max_attempts
        logger.warning(
            "evaluation %s (%s) failed, attempt %d, %s: %s: %s",
            request.key[:12],
            request.skip or "dense",
            total,
            "left out" if is_final else "trying again",
            failure.error_type,
            failure.message,
        )
        if not is_final:
            self._workers().submit(request)
            return
        self.num_failed += 1
        self._answer(request, failure, 0.0)

    def _answer(
        self, request: EvaluationRequest, result: EvaluationSummary | JobFailure, seconds: float
    ) -> None:
        asked = self._asked.pop(request.key)
        self.store.runs.link(self.run_id, request.key, asked.role, asked.level)
        self._ready.append(Answer(request, result, "worker", seconds))

    def _check_cancelled(self) -> None:
        """Once told to stop: end the workers' jobs, keep what finished, and raise."""
        if not self.should_stop():
            return
        if self._pool is not None:
            self._pool.stop()
            deadline = time.monotonic() + _CANCEL_GRACE_S
            while not self._pool.is_idle and time.monotonic() < deadline:
                for completed in self._pool.wait(1.0):
                    if isinstance(completed.result, EvaluationResult):
                        assert isinstance(completed.job, EvaluationRequest)
                        self._store_result(completed.job, completed.result)
        raise SearchCancelledError(
            "stopped on request: finished evaluations are stored, the same command continues"
        )


def _fault(request: EvaluationRequest, result: EvaluationResult) -> JobFailure | None:
    """What makes a result unfit to be stored, if anything."""
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
