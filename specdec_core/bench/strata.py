"""Speedups averaged over domains, each domain weighing the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specdec_core.bench.statistics import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    IntervalEstimate,
    RequestTimes,
    percentiles,
    resampled_sums,
    speedup_of_totals,
)
from specdec_core.errors import MeasurementError
from specdec_core.randomness import resampling_generator


def mean_domain_speedup(
    domains: Sequence[tuple[RequestTimes, RequestTimes]],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> IntervalEstimate:
    """Return the mean over domains of `speedup_of_totals`, with its interval.

    Requests are drawn in pairs inside their domain: the interval describes the spread over
    prompts of these domains, not over domains.

    Args:
        domains: Method and baseline of each domain, paired by request.
        bootstrap: How resamples are drawn.

    Raises:
        MeasurementError: if there are no domains, or requests are not paired.
    """
    if not domains:
        raise MeasurementError("no domains to average over: give at least one")
    estimates = [speedup_of_totals(method, baseline) for method, baseline in domains]
    rng = resampling_generator(bootstrap.seed)
    shared = Bootstrap(bootstrap.confidence, bootstrap.num_resamples, rng)
    drawn = []
    for method, baseline in domains:
        columns = (method.tokens, method.seconds, baseline.tokens, baseline.seconds)
        sums = resampled_sums(np.asarray(columns, dtype=np.float64), shared)
        drawn.append((sums[0] / sums[1]) / (sums[2] / sums[3]))
    low, high = percentiles(np.mean(drawn, axis=0), bootstrap.confidence)
    num_samples = sum(len(method.tokens) for method, _ in domains)
    return IntervalEstimate(float(np.mean(estimates)), low, high, bootstrap.confidence, num_samples)
