"""From requests to stored results: memo first, then workers; every result is written once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.records import EvaluationResult, EvaluationSummary
from tasks.answers import MAX_ATTEMPTS, Answer, StoredAnswers
from tasks.backlog import Backlog
from tasks.claimed import POLL_S, ClaimedWork
from tasks.jobs import Completed, JobFailure, StopCheck
from tasks.pool import PoolFactory, WorkerPool
from tasks.utilisation import Utilisation, WaitingLog, utilisation

logger = logging.getLogger(__name__)

_CANCEL_GRACE_S = 20.0


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
    `MAX_ATTEMPTS` times, except where it ran out of memory; then it is answered as failed. Later
    runs leave out what has failed so often, unless `retries_failed`.

    Before a worker begins with a request it is claimed, so that of several processes with one
    store one evaluates it and the others wait for its result; a claim ends with its process.

    Args:
        store: Where results are looked up and kept; this object is its only writer of results.
        start_pool: Starts the workers.
        run_id: The run that results are linked to.
        should_stop: Asked while waiting; true cancels.
        retries_failed: Whether requests that failed finally in an earlier run are tried again.
        clock: Seconds, the clock of the pool.
    """

    store: Store
    start_pool: PoolFactory
    run_id: str
    should_stop: StopCheck = lambda: False
    retries_failed: bool = False
    clock: Callable[[], float] = time.monotonic
    patient_s: float = 0.0
    """Seconds in workers of what was offered and not asked for."""
    answers: StoredAnswers = field(init=False)
    _pool: WorkerPool | None = None
    _asked: dict[str, _Asked] = field(default_factory=dict)
    _backlog: Backlog = field(default_factory=Backlog)
    _claimed: ClaimedWork = field(init=False)
    _waiting: WaitingLog = field(default_factory=WaitingLog)
    _ready: dict[str, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers = StoredAnswers(self.store, self.run_id, self.retries_failed)
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
    def has_room(self) -> bool:
        """Whether fewer evaluations are asked for than workers can do at once."""
        return sum(each.is_handed_out for each in self._asked.values()) < self.num_workers

    @property
    def is_idle(self) -> bool:
        """True when every request has been answered and handed out."""
        return not self._asked and not self._ready

    def submit(
        self,
        requests: Sequence[tuple[str, EvaluationRequest]],
        level: int | None = None,
        *,
        is_next: bool = False,
    ) -> None:
        """Ask for some evaluations, each in a role that is noted with the run.

        Those that need a worker are done by one, in this order, with `is_next` before all that
        waits. What was only offered before keeps its role and is handed out too.
        """
        missing = []
        for role, request in requests:
            if request.key in self._asked:
                self._asked[request.key].is_handed_out = True
            elif not self.recall(role, request, level):
                self._asked[request.key] = _Asked(role, level)
                missing.append(request)
        self._backlog.add(missing, is_next=is_next)
        self._feed()

    def recall(self, role: str, request: EvaluationRequest, level: int | None = None) -> bool:
        """Answer a request if the store can; return whether it did."""
        answer = self.answers.find(request)
        if answer is None:
            return False
        self.answers.link(request, role, level)
        self._ready[request.key] = answer
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
        summary = self.answers.put_whole(request, parts)
        self.answers.link(request, role, level)
        return summary

    def offer(self, requests: Sequence[tuple[str, EvaluationRequest]]) -> None:
        """Have some evaluations done that are certainly needed later; no answers are handed out.

        They fill the time in which a worker would have nothing to do, and are stored like others.
        """
        for role, request in requests:
            if request.key in self._asked:
                continue
            if self.answers.find(request) is not None:
                self.answers.link(request, role)
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
        answers, self._ready = list(self._ready.values()), {}
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
        answer = self.answers.find(request)
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
            answer = self.answers.find(request)
            if answer is not None:
                self._answer(answer)
            elif is_free:  # its process died or gave up
                self._backlog.add([request], is_next=True)

    def _workers(self) -> WorkerPool:
        if self._pool is None:
            self._pool = self.start_pool(self.should_stop)
        return self._pool

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
        stored = self.answers.put(request, result)
        if isinstance(stored, Answer):
            self._answer(stored)
        else:
            self._store_failure(request, stored)

    def _store_failure(self, request: EvaluationRequest, failure: JobFailure) -> None:
        asked = self._asked[request.key]
        asked.attempts += 1
        is_final = failure.kind == "memory" or asked.attempts >= MAX_ATTEMPTS
        self.answers.note_failure(request, failure, is_final=is_final)
        if is_final:
            self._answer(Answer(request, failure, "worker"))
        else:
            self._backlog.add([request], is_next=True)

    def _answer(self, answer: Answer) -> None:
        """Link a stored result to the run and hand it out."""
        asked = self._asked.pop(answer.request.key)
        self._claimed.release(answer.request.key)
        self.answers.link(answer.request, asked.role, asked.level)
        if asked.is_handed_out:
            self._ready[answer.request.key] = answer
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
