"""From requests to stored results: memo first, then workers; every result is written once."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.records import EvaluationResult, EvaluationSummary
from specdec_core.summary import join_results
from tasks.backlog import Backlog
from tasks.claimed import POLL_S, ClaimedWork
from tasks.jobs import Completed, JobFailure, StopCheck, fault_of
from tasks.pool import PoolFactory, WorkerPool
from tasks.utilisation import Utilisation, WaitingLog, utilisation

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
    is_handed_out: bool = True


@dataclass(slots=True)
class Dispatcher:
    """Answers evaluation requests of one run.

    What the store has is answered at once and no worker is started for it. The pool is started
    at the first request that the store cannot answer. Results are stored, and linked to the
    run, before they are handed out. A request that fails is tried again until it has failed
    `max_attempts` times, except where it ran out of memory; then it is answered as failed, and
    stays failed for later runs unless `retries_failed`.

    Before a worker begins with a request it is claimed, so that of several processes with one
    store one evaluates it and the others wait for its result; a claim ends with its process.

    Args:
        store: Where results are looked up and kept; this object is its only writer of results.
        start_pool: Starts the workers.
        run_id: The run that results are linked to.
        should_stop: Asked while waiting; true cancels.
        max_attempts: Tries per request.
        retries_failed: Whether requests that failed finally in an earlier run are tried again.
        clock: Seconds, the clock of the pool.
    """

    store: Store
    start_pool: PoolFactory
    run_id: str
    should_stop: StopCheck = lambda: False
    max_attempts: int = MAX_ATTEMPTS
    retries_failed: bool = False
    clock: Callable[[], float] = time.monotonic
    num_memoised: int = 0
    num_evaluated: int = 0
    num_failed: int = 0
    patient_s: float = 0.0
    """Seconds in workers of what was offered and not asked for."""
    _pool: WorkerPool | None = None
    _asked: dict[str, _Asked] = field(default_factory=dict)
    _backlog: Backlog = field(default_factory=Backlog)
    _claimed: ClaimedWork = field(init=False)
    _waiting: WaitingLog = field(default_factory=WaitingLog)
    _ready: deque[Answer] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._claimed = ClaimedWork(self.store.claims)

    @property
    def has_answers(self) -> bool:
        """Whether `wait` returns something at once."""
        return bool(self._ready)

    @property
    def num_workers(self) -> int:
        """Workers that can be busy at once; starts them if there are none yet."""
        return self._workers().num_workers

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
            if request.key not in self._asked and not self.recall(role, request, level):
                self._asked[request.key] = _Asked(role, level)
                missing.append(request)
        self._backlog.add(missing)
        self._feed()

    def recall(self, role: str, request: EvaluationRequest, level: int | None = None) -> bool:
        """Answer a request if the store can; return whether it did."""
        answer = self._from_store(request)
        if answer is None:
            return False
        self.store.runs.link(self.run_id, request.key, role, level)
        self._ready.append(answer)
        return True

    def keep(
        self, role: str, request: EvaluationRequest, parts: Sequence[str], level: int | None = None
    ) -> EvaluationSummary:
        """Store the whole that stored parts make up, link it to the run, return its figures.

        Args:
            role: Noted with the run.
            request: The whole.
            parts: Keys of its parts in the order of its items, all of them stored.
            level: Noted with the run.
        """
        found = [self.store.evaluations.get(key) for key in parts]
        whole = join_results(request.key, [part for part in found if part is not None])
        self.store.evaluations.put(request, whole)
        self.store.runs.link(self.run_id, request.key, role, level)
        return whole.summary

    def offer(self, requests: Sequence[tuple[str, EvaluationRequest]]) -> None:
        """Have some evaluations done that are certainly needed later; no answers are handed out.

        They fill the time in which a worker would have nothing to do, and are stored like others.
        """
        for role, request in requests:
            if request.key in self._asked:
                continue
            if self._from_store(request) is not None:
                self.store.runs.link(self.run_id, request.key, role)
                continue
            self._asked[request.key] = _Asked(role, None, is_handed_out=False)
            self._backlog.add_patient(request)

    def wait(self, timeout_s: float = 1.0) -> list[Answer]:
        """Return answers that are ready; none after `timeout_s` if there are none.

        Raises:
            SearchCancelledError: once `should_stop` is true; finished results are stored.
            ConfigError: if a worker cannot work at all.
            StoreError: if a result cannot be written.
            WorkerLostError: if no workers can be had.
        """
        self._check_cancelled()
        self._feed(fills=True)
        if self._asked and not self._ready:
            self._await(timeout_s)
        answers, self._ready = list(self._ready), deque()
        return answers

    def close(self) -> None:
        """End the workers, if any were started, and give up what is claimed."""
        self._claimed.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def utilisation(self) -> Utilisation | None:
        """Return how the workers spent their time so far; None where none did a job."""
        return utilisation(self._pool.times, self._waiting) if self._pool else None

    def _feed(self, *, fills: bool = False) -> None:
        """Let free workers begin with what waits."""
        while group := self._backlog.take(self._pool.num_workers if self._pool else 1, fills=fills):
            own = [request for request in group if self._is_ours(request)]
            if own:
                self._backlog.begin(own)
                self._workers().submit(*own)
        self._waiting.note(self.clock(), self._backlog.waiting)

    def _is_ours(self, request: EvaluationRequest) -> bool:
        """Claim a request; False where another process has it, or has answered it meanwhile."""
        if self._claimed.has(request.key):
            return True
        if not self._claimed.take(request):
            logger.info("evaluation %s is being done by another process", request.key[:12])
            return False
        answer = self._from_store(request)
        if answer is not None:
            self._answer(answer)
        return answer is None

    def _await(self, timeout_s: float) -> None:
        """Take what workers and other processes have done."""
        elsewhere = self._claimed.elsewhere
        patience = min(timeout_s, POLL_S) if elsewhere else timeout_s
        ended: list[Completed] = []
        if self._backlog.num_begun:
            ended = self._workers().wait(patience)
        elif elsewhere:
            time.sleep(patience)
        for completed in ended:
            self._backlog.end(completed.job.key)
        self._feed()  # before results are stored, which takes time
        for completed in ended:
            assert isinstance(completed.job, EvaluationRequest)
            assert isinstance(completed.result, EvaluationResult | JobFailure)
            self._take(completed.job, completed.result)
        for request in list(elsewhere.values()):
            # Claimed before looked up: whoever finished had stored it before the claim was free.
            is_free = self._claimed.take(request)
            answer = self._from_store(request)
            if answer is not None:
                self._answer(answer)
            elif is_free:  # its process died or gave up
                self._backlog.add([request], is_next=True)

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
            self._claimed.release(request.key)
        elif result.kind == "setup":
            raise ConfigError(f"a model worker cannot work: {result.message}")
        else:
            self._store_failure(request, result)

    def _store_result(self, request: EvaluationRequest, result: EvaluationResult) -> None:
        fault = fault_of(request, result)
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
        self._answer(Answer(request, summary, "worker", result.wall_s))

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
            self._backlog.add([request], is_next=True)
            return
        self.num_failed += 1
        self._answer(Answer(request, failure, "worker"))

    def _answer(self, answer: Answer) -> None:
        """Link a stored result to the run and hand it out."""
        key = answer.request.key
        asked = self._asked.pop(key)
        self._claimed.release(key)
        self.store.runs.link(self.run_id, key, asked.role, asked.level)
        if asked.is_handed_out:
            self._ready.append(answer)
        else:
            self.patient_s += answer.seconds

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
