"""The chi-square test against tables of its law and against cells counted by hand."""

import math

import numpy as np
import pytest

from specdec_core.bench.distribution import chi_square_tail, distribution_test
from specdec_core.errors import MeasurementError


@pytest.mark.parametrize(
    ("statistic", "num_degrees", "tail"),
    [
        (10.828, 1, 0.001),
        (13.816, 2, 0.001),
        (16.266, 3, 0.001),
        (3.841, 1, 0.05),
        (18.307, 10, 0.05),
        (124.342, 100, 0.05),
        (1118.95, 1000, 0.005),
    ],
)
def test_tails_agree_with_the_printed_tables(statistic, num_degrees, tail):
    assert chi_square_tail(statistic, num_degrees) == pytest.approx(tail, rel=2e-3)


def test_tails_at_the_ends():
    assert chi_square_tail(0.0, 4) == 1.0
    assert chi_square_tail(math.inf, 4) == 0.0
    # Two degrees are an exponential law.
    assert chi_square_tail(5.0, 2) == pytest.approx(math.exp(-2.5), rel=1e-14)


def test_the_statistic_is_that_of_the_cells():
    found = distribution_test({"a": 30, "b": 50, "c": 20}, {"a": 0.25, "b": 0.25, "c": 0.5})
    # Expected 25, 25, 50: 25/25 + 625/25 + 900/50.
    assert found.statistic == pytest.approx(44.0)
    assert (found.num_degrees, found.num_draws) == (2, 100)
    assert found.p_value == pytest.approx(math.exp(-22.0))
    assert found.total_variation == pytest.approx(0.3)
    assert not found.is_passed()


def test_rare_outcomes_are_pooled_rarest_first():
    law = {0: 0.94, 1: 0.01, 2: 0.02, 3: 0.03}
    found = distribution_test({0: 92, 1: 4, 3: 4}, law)
    # Expected 1 + 2 + 3 and 94, seen 8 and 92.
    assert found.statistic == pytest.approx(4 / 6 + 4 / 94)
    assert found.num_degrees == 1


def test_rare_outcomes_left_over_join_the_last_cell():
    found = distribution_test({0: 60, 1: 33, 2: 7}, {0: 0.64, 1: 0.32, 2: 0.04}, min_expected=33.0)
    # Expected 4 + 32 reach 33, and 64.
    assert found.statistic == pytest.approx(16 / 36 + 16 / 64)


def test_one_impossible_outcome_settles_it():
    law = {0: 0.5, 1: 0.5, 2: 0.0}
    for impossible in (2, 3):
        found = distribution_test({0: 500, 1: 499, impossible: 1}, law)
        assert (found.statistic, found.p_value) == (math.inf, 0.0)
    assert distribution_test({0: 500, 1: 500}, law).num_degrees == 1


@pytest.mark.parametrize(
    ("counts", "law", "message"),
    [
        ({}, {0: 0.5, 1: 0.5}, "at least one draw"),
        ({0: 9}, {0: 0.5, 1: 0.4}, "sums to 0.9"),
        ({0: 9}, {0: 0.5, 1: 0.5}, "draw more"),
        ({0: 9}, {0: 1.0}, "draw more"),
    ],
)
def test_what_cannot_be_tested_is_refused(counts, law, message):
    with pytest.raises(MeasurementError, match=message):
        distribution_test(counts, law)


def test_right_draws_fail_as_often_as_the_level_says():
    rng = np.random.default_rng(5)
    law = np.array([0.4, 0.3, 0.2, 0.06, 0.04])
    failed = 0
    for _ in range(2000):
        counts = rng.multinomial(300, law)
        found = distribution_test(dict(enumerate(counts.tolist())), dict(enumerate(law)))
        failed += not found.is_passed(0.05)
    # 100 expected with a standard deviation of 9.7.
    assert 60 < failed < 140
