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

    As many groups are begun as there are workers. A group with timed requests runs alone: it
    waits until every other one has ended, and nothing begins beside it. Work that may wait begins
    only where a worker would rest otherwise.
    """

    _groups: deque[Group] = field(default_factory=deque)
    _patient: deque[EvaluationRequest] = field(default_factory=deque)
    _begun: dict[str, int] = field(default_factory=dict)
    _num_begun: int = 0
    _is_timed: bool = False

    @property
    def num_begun(self) -> int:
        """Requests in workers."""
        return len(self._begun)

    @property
    def waiting(self) -> Waiting:
        """What could not begin yet: jobs, a timed one or others behind it, or nothing."""
        if (self._is_timed and self._begun) or (self._groups and _is_timed(self._groups[0])):
            return "turn"
        return "jobs" if self._groups or self._patient else "nothing"

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

    def take(self, num_workers: int, *, fills: bool) -> Group:
        """Return and remove the group that a free worker begins now; empty where there is none.

        Args:
            num_workers: Workers that can be busy at once.
            fills: Whether work that may wait begins if nothing else can.
        """
        is_alone = not self._begun
        if len(set(self._begun.values())) >= num_workers or (self._is_timed and not is_alone):
            return ()
        if self._groups:
            return self._groups.popleft() if is_alone or not _is_timed(self._groups[0]) else ()
        return (self._patient.popleft(),) if fills and self._patient else ()

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
