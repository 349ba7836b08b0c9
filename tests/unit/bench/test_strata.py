"""Averages over domains."""

import pytest

from specdec_core.bench.statistics import Bootstrap, RequestTimes
from specdec_core.bench.strata import mean_domain_speedup
from specdec_core.errors import MeasurementError


def test_every_domain_weighs_the_same_however_many_requests_it_has():
    fast = (RequestTimes([10], [1.0]), RequestTimes([10], [3.0]))  # 3x
    even = (RequestTimes([10] * 9, [1.0] * 9), RequestTimes([10] * 9, [1.0] * 9))  # 1x
    found = mean_domain_speedup([fast, even])
    # Equal requests inside a domain leave nothing to vary.
    assert (found.estimate, found.low, found.high, found.num_samples) == (2.0, 2.0, 2.0, 10)


def test_requests_are_drawn_in_pairs_inside_their_domain():
    # Ratios of the pairs are 2 whatever is drawn, although the requests differ tenfold.
    method = RequestTimes([10, 100], [1.0, 10.0])
    baseline = RequestTimes([10, 100], [2.0, 20.0])
    found = mean_domain_speedup([(method, baseline)] * 3)
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0)


def test_the_interval_narrows_with_the_number_of_domains():
    method = RequestTimes([10, 10, 10, 10], [1.0, 2.0, 1.0, 2.0])
    baseline = RequestTimes([10, 10, 10, 10], [2.0, 2.0, 2.0, 2.0])
    one, many = (
        mean_domain_speedup([(method, baseline)] * num, Bootstrap(num_resamples=2000))
        for num in (1, 16)
    )
    assert one.estimate == pytest.approx(many.estimate)
    assert many.high - many.low < (one.high - one.low) / 2


def test_nothing_to_average_is_refused():
    with pytest.raises(MeasurementError, match="no domains"):
        mean_domain_speedup([])
