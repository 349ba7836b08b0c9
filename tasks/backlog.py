"""Requests that wait for a worker: which one goes next, and what may run beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specdec_core.config.evaluation import EvaluationRequest
from tasks.utilisation import Waiting

Group = tuple[EvaluationRequest, ...]


@dataclass(slots=True)
class Backlog:
    """Groups of requests in the order asked, and certain work that may wait.

    As many groups are handed out as there are workers, and some ahead, so that a worker has its
    next one at hand. As many as there are workers are never handed out ahead: whoever is free
    first begins those, in this process or another with the same requests. A group with timed
    requests runs alone: it waits until every other one has ended, and nothing begins beside it.
    Work that may wait begins only where a worker would rest otherwise.
    """

    _groups: deque[Group] = field(default_factory=deque)
    _patient: deque[EvaluationRequest] = field(default_factory=deque)
    _begun: dict[str, int] = field(default_factory=dict)
    _num_begun: int = 0
    _num_workers: int = 1
    _is_timed: bool = False

    @property
    def num_begun(self) -> int:
        """Requests handed out."""
        return len(self._begun)

    @property
    def num_groups_begun(self) -> int:
        """Groups handed out, those ahead included."""
        return len(set(self._begun.values()))

    @property
    def waiting(self) -> Waiting:
        """What could not begin yet: jobs, a timed one or others behind it, or nothing."""
        if (self._is_timed and self._begun) or (self._groups and _is_timed(self._groups[0])):
            return "turn"
        is_ahead = self.num_groups_begun > self._num_workers
        return "jobs" if self._groups or self._patient or is_ahead else "nothing"

    def add(self, requests: Iterable[EvaluationRequest], *, is_next: bool = False) -> None:
        """Queue one group, done in order by one worker; `is_next` puts it in front."""
        group = tuple(requests)
        if group and is_next:
            self._groups.appendleft(group)
        elif group:
            self._groups.append(group)

    def add_patient(self, request: EvaluationRequest) -> None:
        """Queue work that is certainly needed but not before everything else."""
        self._patient.append(request)

    def take(self, num_workers: int, *, num_ahead: int = 0, fills: bool) -> Group:
        """Return and remove the group that is handed out now; empty where there is none.

        Args:
            num_workers: Workers that can be busy at once.
            num_ahead: Groups that can be handed out beside those.
            fills: Whether work that may wait begins if nothing else can.
        """
        self._num_workers = num_workers
        is_alone, num_begun = not self._begun, self.num_groups_begun
        if self._is_timed and not is_alone:
            return ()
        if num_begun >= num_workers:
            is_ahead = num_begun < num_workers + num_ahead and len(self._groups) > num_workers
            return self._next(is_alone=False) if is_ahead else ()
        if self._groups:
            return self._next(is_alone=is_alone)
        return (self._patient.popleft(),) if fills and self._patient else ()

    def _next(self, *, is_alone: bool) -> Group:
        is_held_up = _is_timed(self._groups[0]) and not is_alone
        return () if is_held_up else self._groups.popleft()

    def begin(self, group: Sequence[EvaluationRequest]) -> None:
        """Note that a worker has these now."""
        self._num_begun += 1
        self._is_timed = _is_timed(group)
        self._begun |= {request.key: self._num_begun for request in group}

    def end(self, key: str) -> None:
        """Note that one attempt has ended."""
        self._begun.pop(key, None)


def _is_timed(group: Sequence[EvaluationRequest]) -> bool:
    return any(request.is_timed for request in group)
