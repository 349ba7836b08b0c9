"""Counters of what the runtime controller decided, readable at any moment."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from specdec_core.bench.metrics import AcceptanceCounts, count_acceptance
from specdec_core.config.base import Record
from specdec_core.records import StepTrace
from specdec_core.serving.profile import FaultKind

DenseReason = Literal[
    "no-domain", "no-profile", "no-gain", "refused", "source-away", "kill-switch", "abstained"
]
"""Why a request runs on the dense target: no domain was named, none is known for it, its profile
says that nothing is gained, its profile was refused, profiles cannot be read, an operator switched
to dense, or the router was not sure of the domain."""


class GroupCounts(Record):
    """What requests of one skip set came to."""

    num_requests: int = 0
    num_tokens: int = Field(0, description="output tokens")
    num_steps: int = Field(0, description="verify steps")
    num_drafted: int = 0
    num_accepted: int = 0
    acceptance_length: float | None = Field(
        None, description="committed tokens per verify step, pooled; null before the first step"
    )


class AuditSnapshot(Record):
    """The counters of one controller at one moment."""

    num_requests: int = Field(description="leases given")
    num_active: int = Field(description="leases not ended yet")
    num_aborted: int = Field(description="leases that ended without an output")
    dense: dict[str, int] = Field(description="requests on the dense target, by reason")
    refused: dict[str, int] = Field(description="profiles refused, by fault, per request")
    groups: dict[str, GroupCounts] = Field(description="by skip set, 'dense' for none")
    is_killed: bool = Field(description="whether all domains are switched to dense")
    killed_domains: tuple[str, ...]


@dataclass(slots=True)
class _Group:
    num_requests: int = 0
    num_tokens: int = 0
    counts: AcceptanceCounts = field(default_factory=AcceptanceCounts)

    def to_record(self) -> GroupCounts:
        counts = self.counts
        return GroupCounts(
            num_requests=self.num_requests,
            num_tokens=self.num_tokens,
            num_steps=counts.num_steps,
            num_drafted=counts.num_drafted,
            num_accepted=counts.num_accepted,
            acceptance_length=counts.acceptance_length if counts.num_steps else None,
        )


class Audit:
    """Thread-safe counters; sums are kept, ratios are made when they are read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_requests = self._num_ended = self._num_aborted = 0
        self._dense: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)

    def begin(self, group: str, reason: DenseReason | None, fault: FaultKind | None) -> None:
        """Count a request of a skip set, why it is dense if it is, and a profile refused for it."""
        with self._lock:
            self._num_requests += 1
            self._groups[group].num_requests += 1
            if reason is not None:
                self._dense[reason] += 1
            if fault is not None:
                self._refused[fault] += 1

    def end(self, group: str, trace: StepTrace | None, num_tokens: int) -> None:
        """Count what a request came to; None for one without an output."""
        with self._lock:
            self._num_ended += 1
            if trace is None:
                self._num_aborted += 1
                return
            mine = self._groups[group]
            mine.num_tokens += num_tokens
            mine.counts += count_acceptance([trace])

    def snapshot(self, *, is_killed: bool, killed_domains: tuple[str, ...]) -> AuditSnapshot:
        """Return all counters as they are now."""
        with self._lock:
            return AuditSnapshot(
                num_requests=self._num_requests,
                num_active=self._num_requests - self._num_ended,
                num_aborted=self._num_aborted,
                dense=dict(self._dense),
                refused=dict(self._refused),
                groups={name or "dense": one.to_record() for name, one in self._groups.items()},
                is_killed=is_killed,
                killed_domains=killed_domains,
            )
