"""Answers to evaluation requests as the store has them: every result is written and linked once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import EvaluationResult, EvaluationSummary
from specdec_core.summary import join_results
from tasks.jobs import JobFailure, fault_of

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 2
"""Tries per request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about one request, and how it became known."""

    request: EvaluationRequest
    result: EvaluationSummary | JobFailure
    source: Literal["store", "worker"]
    seconds: float = 0.0
    """Seconds in the worker; 0 where it came from the store."""


@dataclass(slots=True)
class StoredAnswers:
    """Reads and writes the answers of one run, and counts them.

    Args:
        store: Where results are kept.
        run_id: The run that results are linked to.
        retries_failed: Whether requests that failed finally in an earlier run count as unknown.
    """

    store: Store
    run_id: str
    retries_failed: bool = False
    num_memoised: int = 0
    num_evaluated: int = 0
    num_failed: int = 0
    evaluated: set[str] = field(default_factory=set)
    """Keys of what workers have done for this run."""
    failed: set[str] = field(default_factory=set)
    """Keys of what failed for good, now or before."""

    def find(self, request: EvaluationRequest) -> Answer | None:
        """Return the answer that is stored, done or failed for good; None where a worker is due."""
        summary = self.store.evaluations.summary(request.key)
        if summary is not None:
            self.num_memoised += 1
            logger.info("evaluation %s is stored already, skipped", request.key[:12])
            return Answer(request, summary, "store")
        row = self.store.evaluations.row(request.key)
        if row is None or row.attempts < MAX_ATTEMPTS or self.retries_failed:
            return None
        self.num_failed += 1
        self.failed.add(request.key)
        logger.warning(
            "evaluation %s failed %d times before and is left out; --retry-failed tries it again",
            request.key[:12],
            row.attempts,
        )
        failure = JobFailure(
            kind="error", error_type=row.error_type or "Error", message=row.error or "unknown"
        )
        return Answer(request, failure, "store")

    def link(self, request: EvaluationRequest, role: str, level: int | None = None) -> None:
        """Note that the run needs what is stored for a request, and what for."""
        self.store.runs.link(self.run_id, request.key, role, level)

    def put(self, request: EvaluationRequest, result: EvaluationResult) -> Answer | JobFailure:
        """Store what a worker found; a result that is unfit is returned as a failed attempt."""
        fault = fault_of(request, result)
        if fault is not None:
            return fault
        is_new = self.store.evaluations.put(request, result)
        # Where another search was faster, its stored result is the one that counts.
        summary = result.summary if is_new else self.store.evaluations.summary(request.key)
        assert summary is not None
        self.num_evaluated += 1
        self.evaluated.add(request.key)
        logger.info(
            "evaluation %s (%s) done in %.1f s: acceptance %.3f, metric %s",
            request.key[:12],
            request.skip or "dense",
            result.wall_s,
            summary.acceptance_length,
            summary.metric,
        )
        return Answer(request, summary, "worker", result.wall_s)

    def put_whole(self, request: EvaluationRequest, parts: Sequence[str]) -> EvaluationSummary:
        """Store the whole that stored parts make up, and return its figures.

        Args:
            request: The whole.
            parts: Keys of its parts in the order of its items, all of them stored.
        """
        found = [self.store.evaluations.get(key) for key in parts]
        whole = join_results(request.key, [part for part in found if part is not None])
        self.store.evaluations.put(request, whole)
        return whole.summary

    def note_failure(
        self, request: EvaluationRequest, failure: JobFailure, *, is_final: bool
    ) -> None:
        """Store a failed attempt."""
        total = self.store.evaluations.fail(request, failure.error_type, failure.message)
        if is_final:
            self.num_failed += 1
            self.failed.add(request.key)
        logger.warning(
            "evaluation %s (%s) failed, attempt %d, %s: %s: %s",
            request.key[:12],
            request.skip or "dense",
            total,
            "left out" if is_final else "trying again",
            failure.error_type,
            failure.message,
        )
