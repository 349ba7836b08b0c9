"""Speedup definitions and bootstrap intervals on numbers small enough to check by hand."""

import itertools

import numpy as np
import pytest

from specdec_core.bench.statistics import (
    Bootstrap,
    RequestTimes,
    difference_of_means,
    geometric_mean_request_speedup,
    mean_request_speedup,
    pooled_ratio,
    relative_change_of_means,
    relative_change_of_pooled_ratios,
    speedup_interval,
    speedup_of_mean_rates,
    speedup_of_totals,
)
from specdec_core.errors import MeasurementError

METHOD = RequestTimes((100, 30), (2.0, 1.0))
BASELINE = RequestTimes((100, 30), (4.0, 1.0))


def test_four_definitions_of_speedup_differ():
    # Rates 50 and 30 against 25 and 30 tokens per second.
    assert mean_request_speedup(METHOD, BASELINE) == pytest.approx((2 + 1) / 2)
    assert speedup_of_mean_rates(METHOD, BASELINE) == pytest.approx(80 / 55)
    assert speedup_of_totals(METHOD, BASELINE) == pytest.approx(5 / 3)
    assert geometric_mean_request_speedup(METHOD, BASELINE) == pytest.approx(2**0.5)


def test_slow_long_request_weighs_in_the_headline_only():
    method, baseline = RequestTimes((10, 90), (1.0, 9.0)), RequestTimes((10, 90), (2.0, 4.5))
    assert speedup_of_totals(method, baseline) == pytest.approx(0.65)
    assert mean_request_speedup(method, baseline) == pytest.approx(1.25)


def test_totals_with_unequal_token_counts():
    # 60 tokens in 3 s against 40 tokens in 4 s.
    speedup = speedup_of_totals(RequestTimes((60,), (3.0,)), RequestTimes((40,), (4.0,)))
    assert speedup == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("tokens", "seconds", "reason"),
    [
        ((), (), "0 token counts and 0 times"),
        ((1,), (1.0, 2.0), "1 token counts and 2 times"),
        ((1, 2), (1.0, 0.0), "a request has 0.0 tokens or seconds"),
        ((0, 2), (1.0, 1.0), "a request has 0 tokens or seconds"),
    ],
)
def test_times_without_meaning_are_refused(tokens, seconds, reason):
    with pytest.raises(MeasurementError, match=reason):
        RequestTimes(tokens, seconds)


def test_unpaired_requests_are_refused():
    one = RequestTimes((1,), (1.0,))
    definitions = (
        speedup_of_totals,
        speedup_of_mean_rates,
        mean_request_speedup,
        geometric_mean_request_speedup,
        speedup_interval,
    )
    for definition in definitions:
        with pytest.raises(MeasurementError, match="1 samples cannot be paired with 2"):
            definition(one, METHOD)


def test_equal_sides_have_an_interval_of_no_width():
    scores = [0.1, 0.4, 0.9, 0.2]
    change = relative_change_of_means(scores, scores)
    assert (change.estimate, change.low, change.high) == (0.0, 0.0, 0.0)
    assert (change.num_samples, change.confidence) == (4, 0.95)


def test_constant_factor_has_an_interval_of_no_width():
    scores = np.array([0.1, 0.4, 0.9, 0.2])
    change = relative_change_of_means(list(scores), list(0.9 * scores))
    for value in (change.estimate, change.low, change.high):
        assert value == pytest.approx(-0.1)


def test_interval_equals_the_quantiles_of_all_resamples():
    # Three samples have 27 equally likely resamples: list them all and compare.
    before, after = [1.0, 2.0, 4.0], [1.5, 1.0, 5.0]
    exact = sorted(
        sum(after[i] for i in draw) / sum(before[i] for i in draw) - 1
        for draw in itertools.product(range(3), repeat=3)
    )
    # 10 % on each side is 2.7 of 27 values: the third smallest and the third largest remain.
    change = relative_change_of_means(before, after, Bootstrap(confidence=0.8))
    assert change.estimate == pytest.approx(7.5 / 7 - 1)
    assert change.low == pytest.approx(exact[2])
    assert change.high == pytest.approx(exact[-3])


def test_difference_is_absolute():
    change = difference_of_means([0.0, 0.0, 0.0], [0.25, 0.25, 0.25])
    assert (change.estimate, change.low, change.high) == (0.25, 0.25, 0.25)


def test_pooled_ratio_sums_before_it_divides():
    # Ten steps of 6 tokens and thirty steps of 2: 120 / 40, not the mean 4 of the two ratios.
    ratio = pooled_ratio([60, 60], [10, 30])
    assert ratio.estimate == pytest.approx(3.0)
    # Half of the resamples are mixed, a quarter each is one request twice: 6 and 2.
    assert (ratio.low, ratio.high) == (2.0, 6.0)


def test_change_of_a_pooled_ratio():
    before, after = ([30, 10], [10, 10]), ([30, 30], [10, 10])
    change = relative_change_of_pooled_ratios(before, after)
    # 60 / 20 against 40 / 20; one request alone gives 0, the other 3 / 1 - 1.
    assert change.estimate == pytest.approx(0.5)
    assert (change.low, change.high) == (pytest.approx(0.0), pytest.approx(2.0))


def test_speedup_interval_holds_the_headline():
    interval = speedup_interval(METHOD, BASELINE)
    assert interval.estimate == speedup_of_totals(METHOD, BASELINE)
    # The requests alone have speedups 2 and 1.
    assert (interval.low, interval.high) == (pytest.approx(1.0), pytest.approx(2.0))


def test_pairing_makes_the_interval_narrower():
    rng = np.random.default_rng(3)
    before = rng.uniform(0.0, 1.0, 64)
    after = before * rng.uniform(0.9, 1.0, 64)
    paired = relative_change_of_means(list(before), list(after))
    unpaired = relative_change_of_means(list(before), list(rng.permutation(after)))
    assert (paired.high - paired.low) * 5 < unpaired.high - unpaired.low


def test_seed_decides_and_a_generator_goes_on():
    before, after = [0.1, 0.5, 0.9, 0.3, 0.7], [0.2, 0.4, 0.8, 0.1, 0.9]
    few = [
        relative_change_of_means(before, after, Bootstrap(num_resamples=50, seed=s))
        for s in (1, 1, 2)
    ]
    assert few[0] == few[1]
    assert few[0] != few[2]
    rng = np.random.default_rng(1)
    first = relative_change_of_means(before, after, Bootstrap(num_resamples=50, seed=rng))
    second = relative_change_of_means(before, after, Bootstrap(num_resamples=50, seed=rng))
    assert first == few[0]
    assert second != first


def test_chunks_do_not_change_the_draws(monkeypatch):
    scores = [0.1, 0.5, 0.9, 0.3, 0.7]
    whole = pooled_ratio(scores, [1.0] * 5, Bootstrap(num_resamples=100))
    monkeypatch.setattr("specdec_core.bench.statistics._MAX_DRAWN", 35)
    assert pooled_ratio(scores, [1.0] * 5, Bootstrap(num_resamples=100)) == whole


def test_base_of_zero_has_no_relative_interval():
    with pytest.raises(MeasurementError, match="over 3 samples has no finite interval"):
        relative_change_of_means([0.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    # One non-zero of three: 8 of 27 resamples have a base of 0.
    with pytest.raises(MeasurementError, match="its base is 0 in too many resamples"):
        relative_change_of_means([0.0, 0.0, 1.0], [1.0, 1.0, 1.0])
    # Few such resamples do not matter: (2 / 3)**12 is below 1 %.
    assert relative_change_of_means([0.0, 0.0, 1.0] * 4, [1.0] * 12).estimate == pytest.approx(2)


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"num_resamples": 0}])
def test_bootstrap_without_meaning_is_refused(options):
    with pytest.raises(MeasurementError, match="needs at least 1 resample"):
        Bootstrap(**options)


def test_no_samples_are_refused():
    with pytest.raises(MeasurementError, match="no samples"):
        pooled_ratio([], [])
