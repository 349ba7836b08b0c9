"""Pools of model workers: one interface, in this process or on Ray."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from specdec_core.config.settings import Settings
from tasks.jobs import Completed, EvaluatorFactory, Job, StopCheck
from tasks.utilisation import WorkerTimes
from tasks.worker import ModelWorker


class WorkerPool(Protocol):
    """Does jobs somewhere and reports every attempt once.

    A group of jobs is done in order by one worker; different groups are done in any order, by
    whichever worker is free. A dead worker is replaced and its job reported as lost; whether to
    submit it again is the caller's decision. The rest of its group goes on.
    """

    @property
    def num_workers(self) -> int:
        """Workers that can be busy at once."""
        ...

    @property
    def is_idle(self) -> bool:
        """True when nothing is queued, running or unreported."""
        ...

    @property
    def times(self) -> list[WorkerTimes]:
        """When each worker was up and at work, lost ones included."""
        ...

    def submit(self, *jobs: Job) -> None:
        """Queue one group of jobs."""
        ...

    def wait(self, timeout_s: float) -> list[Completed]:
        """Return attempts that ended, at least one unless idle or `timeout_s` passed."""
        ...

    def stop(self) -> None:
        """Drop what is queued and ask running jobs to end as cancelled."""
        ...

    def close(self) -> None:
        """End every worker of this pool and release what it started."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


PoolFactory = Callable[[StopCheck], WorkerPool]
"""Starts a pool; the argument tells running jobs when to stop."""


class InlinePool:
    """One worker in this process: `wait` does the next job before it returns.

    Args:
        factory: Makes the evaluator at the first job.
        should_stop: Asked during every job; true ends it as cancelled.
        clock: Seconds, for the times of the worker.
    """

    num_workers = 1

    def __init__(
        self,
        factory: EvaluatorFactory,
        should_stop: StopCheck = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = ModelWorker(factory, should_stop=should_stop)
        self._queue: deque[Job] = deque()
        self._clock = clock
        self.times = [WorkerTimes(clock())]

    @property
    def is_idle(self) -> bool:
        """True when nothing is queued."""
        return not self._queue

    def submit(self, *jobs: Job) -> None:
        """Queue one group of jobs."""
        self._queue.extend(jobs)

    def wait(self, timeout_s: float) -> list[Completed]:  # noqa: ARG002 - a job cannot be left
        """Do the next job and return how it ended."""
        if not self._queue:
            return []
        started = self._clock()
        completed = self._worker.run(self._queue.popleft()).completed
        self.times[0].jobs.append((started, self._clock()))
        return [completed]

    def stop(self) -> None:
        """Drop what is queued."""
        self._queue.clear()
        self._worker.stop()

    def close(self) -> None:
        """Drop what is queued; the model is freed with the pool."""
        self._queue.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def pool_factory(
    settings: Settings, evaluator_factory: EvaluatorFactory, *, is_inline: bool = False
) -> PoolFactory:
    """Return what starts the pool that `settings` asks for.

    Args:
        settings: Ray address, number of workers, threads and device.
        evaluator_factory: Makes the evaluator inside each worker.
        is_inline: Whether to work in this process, without Ray.
    """
    if is_inline:
        return lambda should_stop: InlinePool(evaluator_factory, should_stop)

    def start(should_stop: StopCheck) -> WorkerPool:
        from tasks.ray_pool import RayPool  # importing Ray takes a second that a memo hit saves

        return RayPool(evaluator_factory, settings, should_stop=should_stop)

    return start
