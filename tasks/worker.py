"""The model worker: one process that holds a loaded target and does one job after another."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from specdec_core.errors import SearchCancelledError
from tasks.jobs import Completed, Evaluator, EvaluatorFactory, Job, JobFailure, StopCheck
from tasks.runtime import attached

logger = logging.getLogger(__name__)

_CAPTURED = ("specdec_core", "tasks")
_MAX_LINES = 200


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Where a worker runs."""

    pid: int
    host: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished attempt and the log lines the worker wrote meanwhile."""

    completed: Completed
    log: tuple[str, ...] = ()
    seconds: float = 0.0
    """What the attempt took here."""


class ModelWorker:
    """Runs jobs with one evaluator; writes nothing, returns records.

    As a Ray actor it needs two threads: one for every `run`, one so that `stop` is heard meanwhile.

    Args:
        factory: Makes the evaluator, in this process, at the first job.
        captures_log: Whether log lines of a job are returned with its result instead of being
            left to this process's own handlers.
        should_stop: A second reason to end jobs as cancelled, beside `stop`; for workers that
            live in the process of their driver.
    """

    def __init__(
        self,
        factory: EvaluatorFactory,
        *,
        captures_log: bool = False,
        should_stop: StopCheck | None = None,
    ) -> None:
        self._factory = factory
        self._captures_log = captures_log
        self._should_stop = should_stop
        self._evaluator: Evaluator | None = None
        self._stopped = threading.Event()

    def info(self) -> WorkerInfo:
        """Return process id and host; answers as soon as the process is up."""
        return WorkerInfo(os.getpid(), socket.gethostname())

    def stop(self) -> None:
        """Ask the job in progress, and every later one, to end as cancelled."""
        self._stopped.set()

    def run(self, job: Job) -> Reply:
        """Do one job; every exception becomes a failure record."""
        started = time.monotonic()
        if not self._captures_log:
            completed = self._attempt(job)
            return Reply(completed, seconds=time.monotonic() - started)
        with _captured_log() as lines:
            completed = self._attempt(job)
        return Reply(completed, tuple(lines[-_MAX_LINES:]), time.monotonic() - started)

    def _must_stop(self) -> bool:
        return self._stopped.is_set() or (self._should_stop is not None and self._should_stop())

    def _attempt(self, job: Job) -> Completed:
        try:
            if self._must_stop():
                raise SearchCancelledError("the worker was told to stop before this job began")
            if self._evaluator is None:
                self._evaluator = self._factory()
            return Completed(job, self._evaluator.run(job, self._must_stop))
        except Exception as error:
            failure = JobFailure.of(error)
            if failure.kind == "error":
                logger.exception("job %s failed", job.key[:12])
            return Completed(job, failure)


class _ListHandler(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.INFO)
        self._lines = lines
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@contextmanager
def _captured_log() -> Iterator[list[str]]:
    """Collect what our own loggers say on info level and above."""
    lines: list[str] = []
    with attached(_ListHandler(lines), _CAPTURED):
        yield lines
