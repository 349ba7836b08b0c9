"""A pool whose workers take scripted seconds of a clock that nothing else moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from specdec_core.config.evaluation import EvaluationRequest
from tasks.jobs import Completed, Evaluator, Job
from tasks.utilisation import WorkerTimes


@dataclass
class Clock:
    """Seconds that move when a scripted job ends."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class _Running:
    job: Job
    ends: float
    group: deque[Job]
    times: WorkerTimes


@dataclass
class ScriptedPool:
    """Does jobs in the order in which they end by the script; notes when each began and ended."""

    num_workers: int
    evaluator: Evaluator
    clock: Clock
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By label of the skip set; 1 where it is not named."""
    events: list[tuple[str, str]] = field(default_factory=list)
    times: list[WorkerTimes] = field(default_factory=list)
    _running: list[_Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.times = [WorkerTimes(self.clock.now) for _ in range(self.num_workers)]

    @property
    def is_idle(self) -> bool:
        return not self._running

    def submit(self, *jobs: Job) -> None:
        busy = [id(each.times) for each in self._running]
        free = [times for times in self.times if id(times) not in busy]
        assert free, "a group was handed out with no worker free"
        self._begin(deque(jobs), free[0])

    def wait(self, timeout_s: float) -> list[Completed]:
        if not self._running:
            return []
        first = min(self._running, key=lambda each: each.ends)
        self._running.remove(first)
        self.clock.now = first.ends
        self.events.append(("end", name_of(first.job)))
        completed = Completed(first.job, self.evaluator.run(first.job, lambda: False))
        if first.group:
            self._begin(first.group, first.times)
        return [completed]

    def _begin(self, group: deque[Job], times: WorkerTimes) -> None:
        job = group.popleft()
        ends = self.clock.now + self.seconds.get(name_of(job), 1.0)
        self.events.append(("begin", name_of(job)))
        times.jobs.append((self.clock.now, ends))
        self._running.append(_Running(job, ends, group, times))

    def stop(self) -> None:
        self._running.clear()

    def close(self) -> None:
        self._running.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def name_of(job: Job) -> str:
    """The skip set of a job, as tests call it."""
    assert isinstance(job, EvaluationRequest)
    return job.skip or "dense"
