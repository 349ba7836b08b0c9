"""Signs of degenerate output: repetition is easy to draft, so acceptance alone cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specdec_core.errors import MeasurementError


class GuardFigures(Protocol):
    """The four figures that are compared; `GuardValues` and `EvaluationSummary` have them."""

    @property
    def mean_output_tokens(self) -> float:
        """Mean output length, tokens."""
        ...

    @property
    def stop_rate(self) -> float:
        """Share of samples that ended before the length limit."""
        ...

    @property
    def distinct_2(self) -> float:
        """Distinct over all token bigrams, pooled."""
        ...

    @property
    def longest_repeat(self) -> float:
        """Mean over samples of the longest token n-gram that occurs twice, tokens."""
        ...


@dataclass(frozen=True, slots=True)
class GuardValues:
    """Guard figures of one set of outputs."""

    mean_output_tokens: float
    stop_rate: float
    distinct_2: float
    longest_repeat: float


@dataclass(frozen=True, slots=True)
class GuardThresholds:
    """When the sparse outputs are reported as worse than the dense ones.

    Attributes:
        min_length_ratio: Mean output length, sparse over dense, warned about below.
        max_length_ratio: The same, warned about above.
        max_stop_rate_drop: Absolute fall of the share of outputs that end by themselves.
        max_distinct_drop: Relative fall of distinct-2.
        max_repeat_ratio: Longest repeat, sparse over dense, warned about above ...
        min_repeat_growth: ... if it also grew by at least this many tokens.
    """

    min_length_ratio: float = 0.5
    max_length_ratio: float = 1.5
    max_stop_rate_drop: float = 0.2
    max_distinct_drop: float = 0.15
    max_repeat_ratio: float = 1.5
    min_repeat_growth: float = 4.0


def distinct_2(samples: Sequence[Sequence[int]]) -> float:
    """Distinct over all token bigrams, pooled over the samples; 1 where there are no bigrams.

    Source: Li et al. 2016 (distinct-n), on token ids and pooled.
    """
    bigrams = [pair for tokens in samples for pair in pairwise(tokens)]
    return len(set(bigrams)) / len(bigrams) if bigrams else 1.0


def longest_repeat(tokens: Sequence[int]) -> int:
    """Length of the longest token n-gram that occurs at least twice; occurrences may overlap.

    Windows of length 1, 2, 4, ... get ranks such that equal ranks mean equal windows. A window
    of any other length is two overlapping ones of these, and an n-gram that repeats contains
    shorter ones that do, so the length is found by bisection. Takes O(n log^2 n) steps.
    """
    ranks = [_rank(np.asarray(tokens, dtype=np.int64))] if len(tokens) else []
    while ranks and _repeats(ranks[-1]) and 2 ** len(ranks) < len(tokens):
        half = 2 ** (len(ranks) - 1)
        ranks.append(_join(ranks[-1], half))
    low, high = 0, min(2 ** len(ranks), len(tokens)) - 1
    while low < high:
        length = (low + high + 1) // 2
        power = length.bit_length() - 1
        if _repeats(_join(ranks[power], length - 2**power)):
            low = length
        else:
            high = length - 1
    return low


def guard_values(samples: Sequence[Sequence[int]], finish_reasons: Sequence[str]) -> GuardValues:
    """Return the guard figures of generated outputs.

    Args:
        samples: Generated token ids of each sample, stop token included.
        finish_reasons: Why each one ended; ``length`` means at the limit.

    Raises:
        MeasurementError: if there are no samples, or not one reason for each.
    """
    if not samples or len(samples) != len(finish_reasons):
        raise MeasurementError(
            f"guards of {len(samples)} samples with {len(finish_reasons)} finish reasons: give at "
            "least one sample, and one reason for each"
        )
    return GuardValues(
        mean_output_tokens=sum(map(len, samples)) / len(samples),
        stop_rate=sum(reason != "length" for reason in finish_reasons) / len(samples),
        distinct_2=distinct_2(samples),
        longest_repeat=sum(map(longest_repeat, samples)) / len(samples),
    )


def degeneration_warnings(
    dense: GuardFigures, sparse: GuardFigures, thresholds: GuardThresholds | None = None
) -> list[str]:
    """Return one sentence for each sign that skipping made the outputs degenerate.

    Args:
        dense: Figures of the dense target.
        sparse: Figures of the sparse target on the same items.
        thresholds: Limits; the defaults are judgements, not taken from a paper.
    """
    limits = thresholds or GuardThresholds()
    warnings = []
    ratio = sparse.mean_output_tokens / max(dense.mean_output_tokens, 1.0)
    if not limits.min_length_ratio <= ratio <= limits.max_length_ratio:
        warnings.append(
            f"mean output length went from {dense.mean_output_tokens:.1f} to "
            f"{sparse.mean_output_tokens:.1f} tokens (x{ratio:.2f})"
        )
    if dense.stop_rate - sparse.stop_rate > limits.max_stop_rate_drop:
        warnings.append(
            f"outputs that end by themselves fell from {dense.stop_rate:.0%} to "
            f"{sparse.stop_rate:.0%}"
        )
    if sparse.distinct_2 < (1 - limits.max_distinct_drop) * dense.distinct_2:
        warnings.append(
            f"distinct bigrams fell from {dense.distinct_2:.2f} to {sparse.distinct_2:.2f}"
        )
    growth = sparse.longest_repeat - dense.longest_repeat
    is_longer = sparse.longest_repeat > limits.max_repeat_ratio * dense.longest_repeat
    if growth >= limits.min_repeat_growth and is_longer:
        warnings.append(
            f"longest repeated passage grew from {dense.longest_repeat:.1f} to "
            f"{sparse.longest_repeat:.1f} tokens"
        )
    return warnings


def _rank(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _repeats(ranks: NDArray[np.int64]) -> bool:
    return len(np.unique(ranks)) < len(ranks)


def _join(ranks: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """Ranks of windows made of one window and the one `shift` tokens later."""
    if shift == 0:
        return ranks
    return _rank(ranks[:-shift] * len(ranks) + ranks[shift:])
