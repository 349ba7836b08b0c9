"""Model workers as long-lived Ray actors, scheduled by completion."""

from __future__ import annotations

import logging
import time
from collections import deque
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
from tasks.ray_worker import CONTROL, MAX_HANDED, RayWorker
from tasks.utilisation import WorkerTimes
from tasks.worker import ModelWorker, Reply, WorkerInfo

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_GET_TIMEOUT_S = 60.0
_MAX_START_FAILURES = 3


class RayPool:
    """Pool of Ray actors, one per device share; see `tasks.pool.WorkerPool`.

    Ray's own retries are off: a request that kills its worker would kill the restarted one too.
    A dead worker is replaced here and its job is reported as lost. A worker is given its next job
    while it is at one, so that it need not wait for the driver; if another one is free before it
    has begun, that one gets it.

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
        self._workers: list[RayWorker] = []
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
    def num_ahead(self) -> int:
        """Groups that can be handed out before a worker is free for them: one for each."""
        return len(self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that have come up."""
        return [worker.info.pid for worker in self._workers if worker.info is not None]

    @property
    def is_idle(self) -> bool:
        """True when nothing is queued, running or unreported."""
        busy = any(worker.handed or worker.group for worker in self._workers)
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
            worker.stop()

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

    def _start_worker(self) -> RayWorker:
        actor: Any = (
            ray.remote(concurrency_groups={CONTROL: 1})(ModelWorker)
            .options(
                **worker_resources(self._settings),
                max_restarts=0,
                max_task_retries=0,
                runtime_env={"env_vars": worker_environment(self._settings)},
            )
            .remote(self._factory, captures_log=True)
        )
        return RayWorker(actor, actor.info.remote())

    def _assign(self) -> None:
        """Give every free worker its next job, then every other one the job after its own."""
        for limit in range(1, MAX_HANDED + 1):
            for worker in self._workers:
                if worker.has_room and len(worker.handed) < limit:
                    self._give(worker)
        free = [each for each in self._workers if each.has_room and not each.handed]
        full = [worker for worker in self._workers if worker.can_give_back]
        num_asked = sum(worker.withdrawal is not None for worker in self._workers)
        for worker in full[: max(0, len(free) - num_asked)]:
            worker.ask_back()

    def _give(self, worker: RayWorker) -> None:
        begins_group = not worker.group
        if begins_group and self._queue:
            worker.group = self._queue.popleft()
        if worker.group:
            worker.hand(worker.group.popleft(), begins_group=begins_group)

    def _collect(self, timeout_s: float) -> None:
        waiting = {ref: worker for worker in self._workers for ref in worker.awaited}
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
            self._take(waiting[ref], ref)
        for worker in self._workers:
            late = time.monotonic() - worker.started > self._start_timeout_s
            if worker.info is None and late:
                needed = worker_resources(self._settings)
                raise WorkerLostError(
                    f"a model worker did not come up in {self._start_timeout_s:.0f} s: it needs "
                    f"{needed}, free in the cluster are {free_resources()}"
                )

    def _take(self, worker: RayWorker, ref: Any) -> None:
        """Take the answer of a worker that is ready, or replace the worker."""
        try:
            answer = ray.get(ref, timeout=_GET_TIMEOUT_S)
        except RayError as error:
            if ref is worker.withdrawal:
                worker.withdrawal = None  # what became of its jobs is said by these themselves
            else:
                self._replace(worker, error)
            return
        if isinstance(answer, WorkerInfo):
            worker.info, self._start_failures = answer, 0
            worker.times = WorkerTimes(time.monotonic())
            self.times.append(worker.times)
            logger.info("model worker up: pid %d on %s", answer.pid, answer.host)
        elif isinstance(answer, Reply):
            self._report(worker, answer)
        elif answer is False:
            worker.withdrawal = None  # the job has begun
        else:  # it is withdrawn: said by `withdraw`, or by the job where that is heard first
            self._put_back(worker.take_back())

    def _report(self, worker: RayWorker, reply: Reply) -> None:
        job = worker.end(reply)
        for line in reply.log:
            logger.info("[%s] %s", job.key[:12], line)
        # The worker's own copy of the job is dropped for ours: the caller may hold its identity.
        self._done.append(Completed(job, reply.completed.result))

    def _put_back(self, group: deque[Job]) -> None:
        if group and not self._is_stopped:
            self._queue.appendleft(group)

    def _replace(self, worker: RayWorker, error: Exception) -> None:
        """Put a new worker in the place of a dead one; report its job, keep what had not begun."""
        end_actor(worker.actor)
        pid = worker.info.pid if worker.info else None
        job, unfinished = worker.lose()
        if job is None:
            self._start_failures += 1
            if self._start_failures >= _MAX_START_FAILURES or isinstance(
                error, ActorUnschedulableError | RayTaskError
            ):
                raise WorkerLostError(f"model workers do not start: {error}") from error
        else:
            logger.warning("model worker pid %s died during job %s", pid, job.key[:12])
            self._done.append(Completed(job, _loss(error, pid)))
        self._put_back(unfinished)
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
