"""Acceptance by draft depth: what steps realised beside what was to be expected of them.

A trial is one draft token that was verified because all before it in its step were accepted.
Under a lossless rule its chance of acceptance, given the output in front of it, is known from
both models' distributions there. Trials happen at places that the decode itself chose, but the
choice never looks ahead; so the accepted trials minus the sum of their chances is zero on
average, whatever was decoded, with the summed variances of single trials. Under greedy decoding
chances are 0 or 1 and the two are equal but for rounding. Windows that begin everywhere, as
validation in training has them, are other trials, with legitimately another mean: steps begin
more often where drafts go wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from specdec_core.records import StepTrace

Chances = Sequence[Sequence[float]]
"""By depth, then by place in the output, the chance that a draft token there is accepted; the
last depth stands for all deeper ones."""


@dataclass(frozen=True, slots=True)
class DepthCounts:
    """Sums over the trials of one depth; those of several outputs add up.

    Attributes:
        num_trials: Draft tokens verified.
        num_accepted: Of these, accepted.
        expected: Sum of their chances.
        variance: Sum of ``chance * (1 - chance)``.
    """

    num_trials: int = 0
    num_accepted: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def __add__(self, other: DepthCounts) -> DepthCounts:
        return DepthCounts(
            self.num_trials + other.num_trials,
            self.num_accepted + other.num_accepted,
            self.expected + other.expected,
            self.variance + other.variance,
        )

    @property
    def realised_rate(self) -> float:
        """Share of trials accepted; 0 without trials."""
        return self.num_accepted / self.num_trials if self.num_trials else 0.0

    @property
    def expected_rate(self) -> float:
        """Mean chance of the trials; 0 without trials."""
        return self.expected / self.num_trials if self.num_trials else 0.0

    @property
    def standard_error(self) -> float:
        """Of the realised rate, if the chances are right; 0 without trials."""
        return math.sqrt(self.variance) / self.num_trials if self.num_trials else 0.0


def count_depths(trace: StepTrace, chances: Chances) -> tuple[DepthCounts, ...]:
    """Return the trials of one output by depth, depth 1 first.

    A step that a stop cut inside its accepted tokens says nothing about the token behind them.

    Args:
        trace: Steps of the output.
        chances: At every place of the output; place 0 is the prefill's and never asked for.
    """
    found: list[DepthCounts] = []
    place = 1
    for depth, accepted, committed in zip(
        trace.depth, trace.accepted, trace.committed, strict=True
    ):
        num_trials = accepted + (accepted < depth and committed > accepted)
        trials = []
        for index in range(num_trials):
            chance = chances[min(index, len(chances) - 1)][place + index]
            is_accepted = index < accepted
            trials.append(DepthCounts(1, int(is_accepted), chance, chance * (1.0 - chance)))
        found = add_depths((found, trials))
        place += committed
    return tuple(found)


def add_depths(counts: Iterable[Sequence[DepthCounts]]) -> list[DepthCounts]:
    """Return the sums by depth of several counts."""
    total: list[DepthCounts] = []
    for each in counts:
        total = [a + b for a, b in zip_longest(total, each, fillvalue=DepthCounts())]
    return total


def expected_anywhere(chances: Chances, gamma: int) -> tuple[float, int]:
    """Return the accepted tokens expected of windows of `gamma` tokens at every place, summed.

    Windows begin behind the first output token and end inside the output.

    Returns:
        The sum over windows, and their number.

    Source: EAL (arXiv 2609.24150), expected acceptance length.
    """
    last = len(chances) - 1
    starts = range(1, len(chances[0]) - gamma + 1)
    total = 0.0
    for start in starts:
        reached = 1.0
        for index in range(gamma):
            reached *= chances[min(index, last)][start + index]
            total += reached
    return total, len(starts)
