"""Coverage of the intervals on simulated data, and invariants of the estimates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.bench.statistics import (
    Bootstrap,
    difference_of_means,
    pooled_ratio,
    relative_change_of_means,
    relative_change_of_pooled_ratios,
)

NUM_SETS = 2000
NUM_SAMPLES = 64

positive = st.floats(0.01, 100.0)
pairs = st.lists(st.tuples(positive, positive), min_size=1, max_size=8)


def _scores(rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Paired scores in [0, 1] with means 0.5 and 0.45, correlated."""
    before = rng.beta(2, 2, NUM_SAMPLES)
    return list(before), list(0.9 * (0.7 * before + 0.3 * rng.beta(2, 2, NUM_SAMPLES)))


def _counts(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Tokens and steps; tokens are the steps and as many Poisson(1.5) draws: ratio 2.5."""
    steps = rng.integers(10, 40, NUM_SAMPLES)
    return list(steps + rng.poisson(1.5 * steps)), list(steps)


@pytest.mark.parametrize("statistic", ["means", "ratio", "ratio change"])
def test_intervals_cover_the_truth_as_often_as_they_say(statistic):
    rng = np.random.default_rng(20)
    num_covered = 0
    for _ in range(NUM_SETS):
        options = Bootstrap(num_resamples=500, seed=rng)
        if statistic == "means":
            interval, truth = relative_change_of_means(*_scores(rng), options), -0.1
        elif statistic == "ratio":
            interval, truth = pooled_ratio(*_counts(rng), options), 2.5
        else:
            interval = relative_change_of_pooled_ratios(_counts(rng), _counts(rng), options)
            truth = 0.0
        num_covered += interval.low <= truth <= interval.high
    assert 0.93 <= num_covered / NUM_SETS <= 0.97


@given(pairs)
def test_interval_lies_within_the_extremes_of_the_samples(rows):
    tokens, steps = zip(*rows, strict=True)
    interval = pooled_ratio(tokens, steps, Bootstrap(num_resamples=50))
    ratios = [token / step for token, step in rows]
    slack = 1e-9 * max(ratios)
    assert min(ratios) - slack <= interval.low <= interval.high <= max(ratios) + slack


@given(pairs, st.floats(0.5, 2.0))
def test_relative_change_has_no_unit(rows, factor):
    before, after = zip(*rows, strict=True)
    options = Bootstrap(num_resamples=50)
    plain = relative_change_of_means(before, after, options)
    scaled = relative_change_of_means(
        [factor * x for x in before], [factor * x for x in after], options
    )
    for name in ("estimate", "low", "high"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-6, abs=1e-9)


@given(pairs)
def test_swapping_the_sides_turns_the_difference_around(rows):
    before, after = zip(*rows, strict=True)
    options = Bootstrap(num_resamples=40)
    there, back = (
        difference_of_means(before, after, options),
        difference_of_means(after, before, options),
    )
    assert back.estimate == pytest.approx(-there.estimate)
    assert (back.low, back.high) == (pytest.approx(-there.high), pytest.approx(-there.low))
