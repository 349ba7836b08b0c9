"""Acceptance figures from step traces: counts first, ratios of sums afterwards.

Glossary: a step is one verify forward after the prefill; a hit is a step that offered at least
one draft token; accepted tokens are draft tokens that entered the output; committed tokens are
all tokens a step added to it. The first output token comes from the prefill and belongs to no
step. Every ratio is pooled over all steps of all requests unless its name says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np

from specdec_core.errors import MeasurementError
from specdec_core.records import StepTrace


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """Sums over verify steps; two of them add up to the counts of both.

    Attributes:
        num_requests: Generations counted.
        num_drafted: Draft nodes offered.
        num_committed: Tokens that entered the output in steps.
        num_rejections: Steps whose tree was deeper than what they accepted, and that were not
            ended by a stop or length cut inside the accepted tokens.
        steps_by_depth: Index d counts the steps whose longest drafted path has d tokens; index 0
            counts the steps that offered nothing.
        hits_by_accepted: Index a counts the hits that accepted a draft tokens.
        num_drafting: Nodes that rode along in a forward to draft, never verified.
    """

    num_requests: int = 0
    num_drafted: int = 0
    num_committed: int = 0
    num_rejections: int = 0
    steps_by_depth: tuple[int, ...] = ()
    hits_by_accepted: tuple[int, ...] = ()
    num_drafting: int = 0

    def __add__(self, other: AcceptanceCounts) -> AcceptanceCounts:
        return AcceptanceCounts(
            self.num_requests + other.num_requests,
            self.num_drafted + other.num_drafted,
            self.num_committed + other.num_committed,
            self.num_rejections + other.num_rejections,
            _add(self.steps_by_depth, other.steps_by_depth),
            _add(self.hits_by_accepted, other.hits_by_accepted),
            self.num_drafting + other.num_drafting,
        )

    @property
    def num_steps(self) -> int:
        """Verify steps."""
        return sum(self.steps_by_depth)

    @property
    def num_hits(self) -> int:
        """Steps that offered a draft."""
        return sum(self.steps_by_depth[1:])

    @property
    def num_accepted(self) -> int:
        """Draft tokens that entered the output."""
        return _weighted(self.hits_by_accepted)

    @property
    def acceptance_length(self) -> float:
        """Committed tokens per step: the pooled headline, after stop and length cuts."""
        return self.num_committed / self._steps()

    @property
    def acceptance_length_without_bonus(self) -> float:
        """Mean accepted tokens per step (AL0)."""
        return self.num_accepted / self._steps()

    @property
    def mean_accepted_tokens(self) -> float:
        """Mean of accepted tokens plus one per step (MAT).

        Above `acceptance_length` by the share of steps that a cut left without their bonus.
        """
        return self.acceptance_length_without_bonus + 1

    @property
    def hit_rate(self) -> float:
        """Share of steps that offered a draft (HR)."""
        return self.num_hits / self._steps()

    @property
    def acceptance_length_on_hits(self) -> float | None:
        """Mean of accepted tokens plus one over the hits; None without hits."""
        return self.num_accepted / self.num_hits + 1 if self.num_hits else None

    @property
    def decoding_efficiency(self) -> float:
        """Hit rate times length on hits, plus one token per miss (DE); equals MAT.

        Source: Progressive Tree Drafting.
        """
        on_hits = self.acceptance_length_on_hits or 0.0
        return self.hit_rate * on_hits + (1 - self.hit_rate)

    @property
    def mean_drafted_nodes(self) -> float:
        """Candidate nodes verified per step (Ver)."""
        return self.num_drafted / self._steps()

    @property
    def mean_drafting_nodes(self) -> float:
        """Nodes per step that rode along in the target's forward only to draft (Dft).

        Source: Progressive Tree Drafting, overhead of drafting and of verification.
        """
        return self.num_drafting / self._steps()

    @property
    def token_acceptance_rate(self) -> float | None:
        """Accepted tokens over accepted tokens and rejections; None if nothing was tried.

        Source: estimate of alpha in Leviathan et al. 2023, on chains.
        """
        tried = self.num_accepted + self.num_rejections
        return self.num_accepted / tried if tried else None

    @property
    def offered_depth_acceptance(self) -> float | None:
        """Accepted tokens over the sum of drafted depths; None if nothing was drafted.

        The offered ratio of chains. Depends on the draft budget: never compare across budgets.
        """
        offered = _weighted(self.steps_by_depth)
        return self.num_accepted / offered if offered else None

    @property
    def offered_node_acceptance(self) -> float | None:
        """Accepted tokens over drafted nodes; None if nothing was drafted.

        The offered ratio of trees. Depends on the draft budget: never compare across budgets.
        """
        return self.num_accepted / self.num_drafted if self.num_drafted else None

    @property
    def num_target_forwards(self) -> int:
        """Forwards a request needs on its own: its prefill and its steps, over all requests."""
        return self.num_steps + self.num_requests

    @property
    def tokens_per_forward(self) -> float:
        """Output tokens, the prefill's included, per target forward."""
        if not self.num_requests:
            raise MeasurementError("no request was counted: give at least one trace")
        return (self.num_committed + self.num_requests) / self.num_target_forwards

    def position_acceptance(self) -> tuple[float, ...]:
        """Return for k = 1, 2, .. the share of all hits that accepted at least k tokens.

        Ends at the deepest draft offered; its sum is the accepted tokens per hit.
        """
        reached = self._hits_accepting()
        return tuple(count / self.num_hits for count in reached[1:])

    def position_acceptance_where_drafted(self) -> tuple[float, ...]:
        """Return for k = 1, 2, .. the share that accepted k tokens of the steps that drafted k.

        Differs from `position_acceptance` where drafts are of unequal depth.
        """
        reached = self._hits_accepting()
        return tuple(reached[k] / sum(self.steps_by_depth[k:]) for k in range(1, len(reached)))

    def conditional_position_acceptance(self) -> tuple[float, ...]:
        """Return for k = 1, 2, .. the share that accepted k tokens of the hits that had k - 1.

        Ends where no hit had k - 1.
        """
        pairs = pairwise(self._hits_accepting())
        return tuple(count / before for before, count in pairs if before)

    def accepted_quantile(self, q: float) -> float:
        """Return the q-quantile, q in [0, 1], of accepted tokens per step, linear interpolation."""
        self._steps()
        num_misses = self.num_steps - self.num_hits
        values = np.repeat(np.arange(len(self.hits_by_accepted)), self.hits_by_accepted)
        return float(np.quantile(np.concatenate([np.zeros(num_misses), values]), q))

    def _hits_accepting(self) -> list[int]:
        """Return the number of hits that accepted at least k tokens, k = 0 to the deepest draft."""
        deepest = max((d for d, count in enumerate(self.steps_by_depth) if count), default=0)
        return [sum(self.hits_by_accepted[k:]) for k in range(deepest + 1)]

    def _steps(self) -> int:
        if not self.num_steps:
            raise MeasurementError(
                f"{self.num_requests} generations have no verify step, so nothing about acceptance "
                "was measured: decode outputs longer than one token"
            )
        return self.num_steps


def count_acceptance(traces: Iterable[StepTrace]) -> AcceptanceCounts:
    """Return the summed counts of all steps of all traces, one trace per request."""
    drafted = drafting = committed = rejections = requests = 0
    depths: list[int] = []
    accepted_on_hits: list[int] = []
    for trace in traces:
        requests += 1
        drafted += sum(trace.drafted)
        drafting += sum(trace.drafting)
        committed += sum(trace.committed)
        depths.extend(trace.depth)
        for depth, accepted, num in zip(trace.depth, trace.accepted, trace.committed, strict=True):
            if depth:
                accepted_on_hits.append(accepted)
                rejections += depth > accepted and num > accepted
    return AcceptanceCounts(
        requests,
        drafted,
        committed,
        rejections,
        _histogram(depths),
        _histogram(accepted_on_hits),
        drafting,
    )


def mean_request_acceptance_length(traces: Sequence[StepTrace]) -> float:
    """Return the mean over requests of their own acceptance length; not the pooled headline.

    Requests without a verify step are left out.

    Raises:
        MeasurementError: if no request has a step.
    """
    lengths = [sum(t.committed) / len(t.committed) for t in traces if t.committed]
    if not lengths:
        raise MeasurementError(
            f"{len(traces)} generations have no verify step: decode outputs longer than one token"
        )
    return sum(lengths) / len(lengths)


def acceptance_by_output_position(
    traces: Iterable[StepTrace], width: int
) -> tuple[float | None, ...]:
    """Return the acceptance length of the steps that begin in each run of `width` output tokens.

    The first run holds output positions 0 to `width` - 1; the token of the prefill is position 0.
    Steps are pooled over requests; None where no step begins.

    Args:
        traces: One per request.
        width: Tokens per run, at least 1.
    """
    steps: list[int] = []
    committed: list[int] = []
    for trace in traces:
        position = 1
        for num in trace.committed:
            index = position // width
            missing = index + 1 - len(steps)
            steps += [0] * missing
            committed += [0] * missing
            steps[index] += 1
            committed[index] += num
            position += num
    pairs = zip(committed, steps, strict=True)
    return tuple(tokens / num if num else None for tokens, num in pairs)


def _histogram(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.bincount(np.array(values, dtype=np.int64)).tolist())


def _weighted(histogram: Sequence[int]) -> int:
    return sum(value * count for value, count in enumerate(histogram))


def _add(mine: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(mine, other, fillvalue=0))
