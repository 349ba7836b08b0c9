"""Model workers as long-lived Ray actors, scheduled by completion."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import (
    ActorUnschedulableError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
)

from specdec_core.config.settings import Settings
from specdec_core.errors import WorkerLostError
from tasks.jobs import Completed, EvaluatorFactory, Job, JobFailure, StopCheck
from tasks.ray_cluster import (
    check_resources,
    connect,
    end_actor,
    free_resources,
    worker_environment,
    worker_resources,
)
from tasks.utilisation import WorkerTimes
from tasks.worker import ModelWorker, Reply, WorkerInfo

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_GET_TIMEOUT_S = 60.0
# Jobs stay on one thread, so that OpenMP keeps one team of threads: with a second team it counts
# more threads than cores and stops spinning at all. `stop` is heard on a thread of its own.
_CONTROL = "control"
_MAX_START_FAILURES = 3


@dataclass(slots=True, eq=False)
class _Worker:
    actor: Any
    ref: Any  # what is awaited: the actor's first answer, then one job
    started: float = field(default_factory=time.monotonic)
    info: WorkerInfo | None = None
    times: WorkerTimes | None = None
    job: Job | None = None
    assigned: float = 0.0
    group: deque[Job] = field(default_factory=deque)


class RayPool:
    """Pool of Ray actors, one per device share; see `tasks.pool.WorkerPool`.

    Ray's own retries are off: a request that kills its worker would kill the restarted one too.
    A dead worker is replaced here and its job is reported as lost.

    Args:
        factory: Makes the evaluator inside each actor.
        settings: Ray address, workers, threads and device.
        should_stop: Once true, running jobs are asked to end as cancelled.
        start_timeout_s: How long an actor may take to come up.

    Raises:
        ConfigError: if the cluster can never hold the workers.
        WorkerLostError: if Ray cannot be reached or workers do not come up.
    """

    def __init__(
        self,
        factory: EvaluatorFactory,
        settings: Settings,
        *,
        should_stop: StopCheck = lambda: False,
        start_timeout_s: float = 180.0,
    ) -> None:
        self._factory = factory
        self._settings = settings
        self._should_stop = should_stop
        self._start_timeout_s = start_timeout_s
        self._queue: deque[deque[Job]] = deque()
        self._done: list[Completed] = []
        self._is_stopped = False
        self._start_failures = 0
        self.times: list[WorkerTimes] = []
        self._owns_ray = connect(settings)
        self._workers: list[_Worker] = []
        try:
            check_resources(settings)
            self._workers = [self._start_worker() for _ in range(settings.num_workers)]
        except BaseException:
            self.close()
            raise

    @property
    def num_workers(self) -> int:
        """Workers that can be busy at once."""
        return len(self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that have come up."""
        return [worker.info.pid for worker in self._workers if worker.info is not None]

    @property
    def is_idle(self) -> bool:
        """True when nothing is queued, running or unreported."""
        busy = any(worker.job is not None or worker.group for worker in self._workers)
        return not (self._queue or self._done or busy)

    def submit(self, *jobs: Job) -> None:
        """Queue one group of jobs, done in order by one worker."""
        if jobs:
            self._queue.append(deque(jobs))
            self._assign()

    def wait(self, timeout_s: float) -> list[Completed]:
        """Return attempts that ended, at least one unless idle or `timeout_s` passed."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._should_stop() and not self._is_stopped:
                self.stop()
            self._assign()
            left = max(0.0, min(_POLL_S, deadline - time.monotonic()))
            if not self._done:
                self._collect(left)
                self._assign()  # before the caller looks at what ended, which takes time
            if self._done or self.is_idle or time.monotonic() >= deadline:
                done, self._done = self._done, []
                return done

    def stop(self) -> None:
        """Drop what is queued and ask running jobs to end as cancelled."""
        self._is_stopped = True
        self._queue.clear()
        for worker in self._workers:
            worker.group.clear()
            if worker.job is not None:
                worker.actor.stop.options(concurrency_group=_CONTROL).remote()

    def close(self) -> None:
        """End every worker of this pool, and Ray if this pool started it."""
        self._queue.clear()
        for worker in self._workers:
            end_actor(worker.actor)
        self._workers = []
        if self._owns_ray:
            ray.shutdown()
            self._owns_ray = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start_worker(self) -> _Worker:
        actor: Any = (
            ray.remote(concurrency_groups={_CONTROL: 1})(ModelWorker)
            .options(
                **worker_resources(self._settings),
                max_restarts=0,
                max_task_retries=0,
                runtime_env={"env_vars": worker_environment(self._settings)},
            )
            .remote(self._factory, captures_log=True)
        )
        return _Worker(actor, actor.info.remote())

    def _assign(self) -> None:
        """Give every free worker its next job."""
        for worker in self._workers:
            if worker.ref is not None:
                continue
            if not worker.group and self._queue:
                worker.group = self._queue.popleft()
            if worker.group:
                worker.job, worker.assigned = worker.group.popleft(), time.monotonic()
                worker.ref = worker.actor.run.remote(worker.job)

    def _collect(self, timeout_s: float) -> None:
        waiting = {worker.ref: worker for worker in self._workers if worker.ref is not None}
        if not waiting:
            return
        try:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=timeout_s)
        except RayError as error:
            raise WorkerLostError(
                f"the Ray cluster at {self._settings.ray_address!r} is gone ({error}): results "
                "are stored, the same command continues"
            ) from error
        for ref in ready:
            self._finish(waiting[ref])
        for worker in waiting.values():
            late = time.monotonic() - worker.started > self._start_timeout_s
            if worker.info is None and late and worker.ref not in ready:
                needed = worker_resources(self._settings)
                raise WorkerLostError(
                    f"a model worker did not come up in {self._start_timeout_s:.0f} s: it needs "
                    f"{needed}, free in the cluster are {free_resources()}"
                )

    def _finish(self, worker: _Worker) -> None:
        """Take the answer of a worker whose reference is ready, or replace the worker."""
        try:
            answer = ray.get(worker.ref, timeout=_GET_TIMEOUT_S)
        except RayError as error:
            self._replace(worker, error)
            return
        worker.ref = None
        if isinstance(answer, WorkerInfo):
            worker.info, self._start_failures = answer, 0
            worker.times = WorkerTimes(time.monotonic())
            self.times.append(worker.times)
            logger.info("model worker up: pid %d on %s", answer.pid, answer.host)
            return
        self._report(worker, answer)

    def _report(self, worker: _Worker, reply: Reply) -> None:
        job, worker.job = worker.job, None
        assert job is not None
        assert worker.times is not None  # it was up before it had a job
        ended = min(worker.assigned + reply.seconds, time.monotonic())
        worker.times.jobs.append((worker.assigned, ended))
        for line in reply.log:
            logger.info("[%s] %s", job.key[:12], line)
        # The worker's own copy of the job is dropped for ours: the caller may hold its identity.
        self._done.append(Completed(job, reply.completed.result))

    def _replace(self, worker: _Worker, error: Exception) -> None:
        """Put a new worker in the place of a dead one; report its job, keep its group."""
        end_actor(worker.actor)
        if worker.times is not None:
            worker.times.down = time.monotonic()
            if worker.job is not None:
                worker.times.jobs.append((worker.assigned, worker.times.down))
        pid = worker.info.pid if worker.info else None
        if worker.job is None:
            self._start_failures += 1
            if self._start_failures >= _MAX_START_FAILURES or isinstance(
                error, ActorUnschedulableError | RayTaskError
            ):
                raise WorkerLostError(f"model workers do not start: {error}") from error
        else:
            logger.warning("model worker pid %s died during job %s", pid, worker.job.key[:12])
            self._done.append(Completed(worker.job, _loss(error, pid)))
        if worker.group:
            self._queue.appendleft(worker.group)
        self._workers[self._workers.index(worker)] = self._start_worker()


def _loss(error: Exception, pid: int | None) -> JobFailure:
    text = " ".join(str(error).split())[:500]
    # Ray lists the OOM killer among the possible causes of every death; this is its own monitor.
    if isinstance(error, OutOfMemoryError) or "node running low on memory" in text:
        return JobFailure(kind="memory", error_type="OutOfMemoryError", message=text)
    return JobFailure(
        kind="lost",
        error_type="WorkerLostError",
        message=f"the worker process (pid {pid}) died during this job: {text}",
    )
