"""One Ray actor as its driver sees it: what it has been handed, and when it was at work."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tasks.jobs import Job
from tasks.utilisation import WorkerTimes
from tasks.worker import Reply, WorkerInfo

# Jobs stay on one thread, so that OpenMP keeps one team of threads: with a second team it counts
# more threads than cores and stops spinning at all. What else is asked has a thread of its own.
CONTROL = "control"

MAX_HANDED = 2
"""Jobs in one actor: the one at work, and one with which it goes straight on."""


@dataclass(frozen=True, slots=True)
class Handed:
    """One job in an actor."""

    job: Job
    ref: Any
    at: float
    """Clock reading of the driver when it was handed over."""
    ticket: int
    begins_group: bool


@dataclass(slots=True, eq=False)
class RayWorker:
    """An actor, the jobs in it and the rest of their group.

    Args:
        actor: A `ModelWorker` with a concurrency group `CONTROL`.
        is_up: Reference to its first answer.
    """

    actor: Any
    is_up: Any
    started: float = field(default_factory=time.monotonic)
    info: WorkerInfo | None = None
    times: WorkerTimes | None = None
    handed: deque[Handed] = field(default_factory=deque)
    """The one at work first."""
    group: deque[Job] = field(default_factory=deque)
    """What follows the last one that was handed over."""
    withdrawal: Any = None
    """Reference to whether the job that waits in the actor has been given back."""
    _num_handed: int = 0

    @property
    def awaited(self) -> list[Any]:
        """References whose answers are due next."""
        if self.info is None:
            return [self.is_up]
        first = [self.handed[0].ref] if self.handed else []
        return first if self.withdrawal is None else [*first, self.withdrawal]

    @property
    def has_room(self) -> bool:
        """Whether it can be handed a further job."""
        return self.info is not None and self.withdrawal is None and len(self.handed) < MAX_HANDED

    @property
    def can_give_back(self) -> bool:
        """Whether a group waits in the actor that another worker could begin."""
        is_full = len(self.handed) == MAX_HANDED
        return is_full and self.withdrawal is None and self.handed[-1].begins_group

    def hand(self, job: Job, *, begins_group: bool) -> None:
        """Give the actor a job."""
        ref = self.actor.run_unless_withdrawn.remote(job, self._num_handed)
        self.handed.append(Handed(job, ref, time.monotonic(), self._num_handed, begins_group))
        self._num_handed += 1

    def ask_back(self) -> None:
        """Ask for the job that waits in the actor."""
        withdraw = self.actor.withdraw.options(concurrency_group=CONTROL)
        self.withdrawal = withdraw.remote(self.handed[-1].ticket)

    def stop(self) -> None:
        """Forget the rest of the group; what the actor has ends as cancelled."""
        self.group.clear()
        if self.handed:
            self.actor.stop.options(concurrency_group=CONTROL).remote()

    def take_back(self) -> deque[Job]:
        """Return the group whose first job the actor has left undone."""
        self.withdrawal = None
        taken = deque([self.handed.pop().job, *self.group])
        self.group.clear()
        return taken

    def end(self, reply: Reply) -> Job:
        """Note that the job at work has ended, and when it was at work; return it.

        An actor's clock is not the driver's, so that only its differences count.
        """
        assert self.times is not None  # it was up before it had a job
        handed, now = self.handed.popleft(), time.monotonic()
        began = handed.at
        if self.times.jobs and reply.rested_s is not None:
            began = max(began, self.times.jobs[-1][1] + reply.rested_s)
        ended = min(began + reply.seconds, now)
        self.times.jobs.append((min(began, ended), ended))
        return handed.job

    def lose(self) -> tuple[Job | None, deque[Job]]:
        """Note that the actor is dead; return the job that it was at, and those not begun."""
        unfinished = deque([*(each.job for each in self.handed), *self.group])
        lost = unfinished.popleft() if self.handed else None
        if self.times is not None:
            self.times.down = time.monotonic()
            if self.handed:
                last = self.times.jobs[-1][1] if self.times.jobs else 0.0
                self.times.jobs.append((max(self.handed[0].at, last), self.times.down))
        return lost, unfinished
