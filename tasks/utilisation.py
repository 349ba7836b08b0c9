"""How much of the time of workers was work, and why they rested for the remainder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from pydantic import Field

from specdec_core.config.base import Record

Waiting = Literal["nothing", "jobs", "turn"]
"""What the driver knew to do that no worker had begun: nothing; jobs; or a job that must run alone
or behind such a one, so that the others rest on purpose."""


class Utilisation(Record):
    """Time of workers between the start of the first job and the end of the last one, seconds.

    Every worker counts from when it was up; loading a model is part of its first job.
    """

    num_workers: int = Field(description="workers that were up, replaced ones included")
    span_s: float = Field(description="first start to last end")
    present_s: float = Field(description="summed over workers")
    busy_s: float = Field(description="in jobs, summed over workers")
    busy_shares: tuple[float, ...] = Field(description="by worker, busy / present")
    idle_nothing_s: float = Field(description="idle with nothing known to do, as between levels")
    idle_alone_s: float = Field(description="idle since a timed job runs alone or waits for that")
    idle_queued_s: float = Field(description="idle although jobs were queued; 0 but for handing on")

    @property
    def busy_share(self) -> float:
        """Share of the workers' time spent in jobs."""
        return self.busy_s / self.present_s if self.present_s else 0.0

    @property
    def text(self) -> str:
        """The figures in words."""
        by_worker = ", ".join(f"{share:.0%}" for share in self.busy_shares)
        return (
            f"{self.num_workers} busy {self.busy_share:.0%} of {self.present_s:.1f} s "
            f"(each {by_worker}); idle {self.idle_nothing_s:.1f} s with nothing known to do, "
            f"{self.idle_alone_s:.1f} s beside timed jobs, "
            f"{self.idle_queued_s:.1f} s with jobs queued"
        )


@dataclass(slots=True)
class WorkerTimes:
    """Clock readings of one worker, all of the driver's clock."""

    up: float
    jobs: list[tuple[float, float]] = field(default_factory=list)
    down: float | None = None
    """When it was lost; None while it lives."""


@dataclass(slots=True)
class WaitingLog:
    """What was waiting, from each clock reading to the next."""

    _marks: list[tuple[float, Waiting]] = field(default_factory=list)

    def note(self, now: float, waiting: Waiting) -> None:
        """Note what waits from `now` on."""
        if not self._marks or self._marks[-1][1] != waiting:
            self._marks.append((now, waiting))

    def seconds(self, start: float, stop: float) -> dict[Waiting, float]:
        """Return how long each waited between two readings; before the first note nothing did."""
        found: dict[Waiting, float] = {"nothing": 0.0, "jobs": 0.0, "turn": 0.0}
        marks: list[tuple[float, Waiting]] = [(float("-inf"), "nothing"), *self._marks]
        for (begin, waiting), (end, _) in pairwise([*marks, (float("inf"), "nothing")]):
            found[waiting] += max(0.0, min(stop, end) - max(start, begin))
        return found


def utilisation(workers: Sequence[WorkerTimes], waiting: WaitingLog) -> Utilisation | None:
    """Return how the workers spent their time; None where they did no job."""
    jobs = [job for worker in workers for job in worker.jobs]
    if not jobs:
        return None
    first, last = min(start for start, _ in jobs), max(end for _, end in jobs)
    busy, present = [], []
    idle: dict[Waiting, float] = {"nothing": 0.0, "jobs": 0.0, "turn": 0.0}
    for worker in workers:
        begin = min(max(worker.up, first), last)
        end = last if worker.down is None else min(max(worker.down, begin), last)
        ordered = sorted(worker.jobs)
        busy.append(sum(stop - start for start, stop in ordered))
        present.append(end - begin)
        rests = pairwise([(begin, begin), *ordered, (end, end)])
        for (_, stopped), (started, _) in rests:
            for name, seconds in waiting.seconds(stopped, started).items():
                idle[name] += seconds
    return Utilisation(
        num_workers=len(workers),
        span_s=last - first,
        present_s=sum(present),
        busy_s=sum(busy),
        busy_shares=tuple(b / p if p else 0.0 for b, p in zip(busy, present, strict=True)),
        idle_nothing_s=idle["nothing"],
        idle_alone_s=idle["turn"],
        idle_queued_s=idle["jobs"],
    )
