"""Speedups under their four definitions, and bootstrap intervals paired by sample.

All intervals are percentile bootstrap intervals: samples are drawn with replacement, both sides
of a pair together, and the statistic is computed on pooled sums. They describe the spread over
prompts, not over repeated measurements of one prompt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specdec_core.errors import MeasurementError
from specdec_core.randomness import resampling_generator

Floats = NDArray[np.float64]

# Drawn indices held in memory at once.
_MAX_DRAWN = 1 << 21


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How resamples are drawn.

    Attributes:
        confidence: Share of resamples inside the interval, in (0, 1).
        num_resamples: Resamples drawn, at least 1.
        seed: Seed, at least 0, or the generator to draw from.

    Raises:
        MeasurementError: if a value is outside its range.
    """

    confidence: float = 0.95
    num_resamples: int = 10_000
    seed: int | np.random.Generator = 0

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1 or self.num_resamples < 1:
            raise MeasurementError(
                f"bootstrap of {self.num_resamples} resamples at confidence {self.confidence}: "
                "needs at least 1 resample and a confidence between 0 and 1"
            )


DEFAULT_BOOTSTRAP = Bootstrap()


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A statistic of all samples, its interval, and how many samples it is of."""

    estimate: float
    low: float
    high: float
    confidence: float
    num_samples: int


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Committed tokens and decode seconds of each request, in one order for all methods.

    Raises:
        MeasurementError: if there are no requests, the lengths differ, or a value is not above 0.
    """

    tokens: Sequence[float]
    seconds: Sequence[float]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.seconds):
            raise MeasurementError(
                f"{len(self.tokens)} token counts and {len(self.seconds)} times: give one of each "
                "per request, and at least one request"
            )
        smallest = min(*self.tokens, *self.seconds)
        if not smallest > 0:
            raise MeasurementError(
                f"a request has {smallest} tokens or seconds: leave failed requests out"
            )

    @property
    def rates(self) -> Floats:
        """Tokens per second of each request."""
        rates: Floats = np.asarray(self.tokens, np.float64) / np.asarray(self.seconds, np.float64)
        return rates


def speedup_of_totals(method: RequestTimes, baseline: RequestTimes) -> float:
    """Ratio of total tokens over total seconds, method over baseline: the headline speedup.

    With equal token counts it is the ratio of total seconds.
    """
    _check_pairs(len(method.tokens), len(baseline.tokens))
    return _total_rate(method) / _total_rate(baseline)


def speedup_of_mean_rates(method: RequestTimes, baseline: RequestTimes) -> float:
    """Mean tokens per second over requests, method over baseline.

    Source: Spec-Bench (Xia et al. 2024), speed script; for comparison with published figures.
    """
    _check_pairs(len(method.tokens), len(baseline.tokens))
    return float(method.rates.mean() / baseline.rates.mean())


def mean_request_speedup(method: RequestTimes, baseline: RequestTimes) -> float:
    """Arithmetic mean over requests of the ratio of tokens per second."""
    _check_pairs(len(method.tokens), len(baseline.tokens))
    return float((method.rates / baseline.rates).mean())


def geometric_mean_request_speedup(method: RequestTimes, baseline: RequestTimes) -> float:
    """Geometric mean over requests of the ratio of tokens per second."""
    _check_pairs(len(method.tokens), len(baseline.tokens))
    return float(np.exp(np.log(method.rates / baseline.rates).mean()))


def speedup_interval(
    method: RequestTimes,
    baseline: RequestTimes,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> IntervalEstimate:
    """Return `speedup_of_totals` with its interval, requests drawn in pairs.

    Raises:
        MeasurementError: if the requests are not paired.
    """
    columns = (method.tokens, method.seconds, baseline.tokens, baseline.seconds)
    return _interval(
        columns,
        lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]),
        bootstrap,
    )


def relative_change_of_means(
    before: Sequence[float],
    after: Sequence[float],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> IntervalEstimate:
    """Return mean(after) / mean(before) - 1 of paired scores with its interval.

    Raises:
        MeasurementError: if the scores are not paired, there are none, or the mean of `before` is
            0 in so many resamples that the interval has no end; use `difference_of_means` then.
    """
    return _interval(
        (before, after),
        lambda sums: sums[1] / sums[0] - 1,
        bootstrap,
    )


def difference_of_means(
    before: Sequence[float],
    after: Sequence[float],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> IntervalEstimate:
    """Return mean(after) - mean(before) of paired scores with its interval.

    Raises:
        MeasurementError: if the scores are not paired, or there are none.
    """
    num_samples = max(len(before), 1)
    return _interval(
        (before, after),
        lambda sums: (sums[1] - sums[0]) / num_samples,
        bootstrap,
    )


def pooled_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> IntervalEstimate:
    """Return sum(numerators) / sum(denominators) with its interval, such as acceptance length.

    Args:
        numerators: One value per sample, such as committed tokens.
        denominators: One value per sample, such as verify steps.
        bootstrap: How resamples are drawn.

    Raises:
        MeasurementError: if the lengths differ, there are no samples, or the denominators are 0.
    """
    return _interval(
        (numerators, denominators),
        lambda sums: sums[0] / sums[1],
        bootstrap,
    )


def relative_change_of_pooled_ratios(
    before: tuple[Sequence[float], Sequence[float]],
    after: tuple[Sequence[float], Sequence[float]],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> IntervalEstimate:
    """Return the relative change of a pooled ratio with its interval, samples drawn in pairs.

    Args:
        before: Numerators and denominators, one of each per sample.
        after: The same for the same samples in the same order.
        bootstrap: How resamples are drawn.

    Raises:
        MeasurementError: if the samples are not paired, there are none, or a ratio is 0 or
            undefined before the change.
    """
    return _interval(
        (*before, *after),
        lambda sums: (sums[2] / sums[3]) / (sums[0] / sums[1]) - 1,
        bootstrap,
    )


def _interval(
    columns: Sequence[ArrayLike],
    statistic: Callable[[Floats], Floats],
    bootstrap: Bootstrap,
) -> IntervalEstimate:
    """Percentile interval of a statistic of column sums.

    Args:
        columns: K columns of N values, aligned by sample.
        statistic: Maps column sums [K, ...] to values [...].
        bootstrap: How resamples are drawn.
    """
    lengths = [np.size(column) for column in columns]
    for length in lengths[1:]:
        _check_pairs(lengths[0], length)
    if lengths[0] == 0:
        raise MeasurementError("no samples to compute an interval of: give at least one")
    values = np.asarray(columns, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = float(statistic(values.sum(axis=1)))
        drawn = statistic(resampled_sums(values, bootstrap))
    low, high = percentiles(drawn, bootstrap.confidence)
    if not all(map(math.isfinite, (estimate, low, high))):
        raise MeasurementError(
            f"a ratio over {lengths[0]} samples has no finite interval ({estimate:.4g}, "
            f"{low:.4g} to {high:.4g}): its base is 0 in too many resamples, so use more samples "
            "or an absolute difference"
        )
    return IntervalEstimate(estimate, low, high, bootstrap.confidence, lengths[0])


def resampled_sums(values: Floats, bootstrap: Bootstrap) -> Floats:
    """Column sums [K, R] of R samples drawn with replacement from values [K, N]."""
    rng = resampling_generator(bootstrap.seed)
    num_samples, num_resamples = values.shape[1], bootstrap.num_resamples
    chunk = max(1, _MAX_DRAWN // num_samples)
    sums = np.empty((len(values), num_resamples))
    for start in range(0, num_resamples, chunk):
        size = min(chunk, num_resamples - start)
        indices = rng.integers(num_samples, size=(size, num_samples))
        for row, column in enumerate(values):
            sums[row, start : start + size] = column[indices].sum(axis=1)
    return sums


def percentiles(drawn: Floats, confidence: float) -> tuple[float, float]:
    """Ends that leave at most (1 - confidence) / 2 of the values beyond each.

    Undefined values (0 / 0) say nothing about the direction and count at both ends.
    """
    outside = math.floor((1 - confidence) / 2 * len(drawn))
    lowest = np.sort(np.where(np.isnan(drawn), -np.inf, drawn))
    highest = np.sort(np.where(np.isnan(drawn), np.inf, drawn))
    return float(lowest[outside]), float(highest[len(drawn) - 1 - outside])


def _total_rate(times: RequestTimes) -> float:
    return math.fsum(times.tokens) / math.fsum(times.seconds)


def _check_pairs(first: int, second: int) -> None:
    if first != second:
        raise MeasurementError(
            f"{first} samples cannot be paired with {second}: give both sides for the same "
            "samples, in the same order"
        )
