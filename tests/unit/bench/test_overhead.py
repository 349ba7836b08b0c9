"""Methods at equal overhead: fronts read by hand, ratios of counts that are easy to divide."""

from __future__ import annotations

import math

import pytest

from specdec_core.bench.overhead import StepCounts, best_within, mean_points, ratios_within
from specdec_core.bench.statistics import Bootstrap
from specdec_core.errors import MeasurementError
from specdec_core.records import StepTrace

QUICK = Bootstrap(num_resamples=200)


def counts(accepted: int, drafting: int, candidates: int, num_requests: int = 2) -> StepCounts:
    """Requests of ten steps each, all alike."""
    columns = (10, 8, accepted, drafting, candidates)
    return StepCounts(*((value,) * num_requests for value in columns))


def test_between_points_of_the_front_efficiency_is_interpolated() -> None:
    points = [(40.0, 2.0), (20.0, 1.5)]
    assert best_within(points, 20.0) == 1.5
    assert best_within(points, 30.0) == 1.75
    assert best_within(points, 40.0) == 2.0


def test_a_setting_that_a_cheaper_one_equals_is_not_held_against_the_method() -> None:
    points = [(20.0, 1.5), (25.0, 1.2), (30.0, 1.5), (40.0, 2.0)]
    # (25, 1.2) and (30, 1.5) are off the front, which runs straight from 20 to 40.
    assert best_within(points, 30.0) == 1.75


def test_of_settings_of_one_cost_the_better_counts() -> None:
    assert best_within([(20.0, 1.4), (20.0, 1.6)], 20.0) == 1.6


def test_beyond_the_last_point_the_budget_is_left_over_and_below_the_first_nothing_fits() -> None:
    assert best_within([(20.0, 1.5), (40.0, 2.0)], 90.0) == 2.0
    assert best_within([(20.0, 1.5)], 19.9) is None
    assert best_within([], 50.0) is None


def test_counts_of_a_trace() -> None:
    trace = StepTrace(
        drafted=(4, 0, 6),
        depth=(2, 0, 3),
        drafting=(5, 5, 2),
        accepted=(2, 0, 1),
        committed=(3, 1, 2),
    )
    found = StepCounts.of([trace, trace])
    assert found == StepCounts((3, 3), (2, 2), (3, 3), (12, 12), (10, 10))


def test_counts_need_steps() -> None:
    with pytest.raises(MeasurementError, match="no verify step"):
        StepCounts.of([])
    with pytest.raises(MeasurementError, match="longer than one token"):
        StepCounts.of([StepTrace()])


def test_points_are_means_over_benchmarks_of_pooled_figures() -> None:
    # Ten steps of 2 drafting and 1 candidate nodes at 1 + 5/10, and of 4 and 3 at 1 + 15/10.
    setting = [counts(5, 20, 10), counts(15, 40, 30)]
    assert mean_points([setting], "total") == [(5.0, 2.0)]
    assert mean_points([setting], "drafting") == [(3.0, 2.0)]


def test_requests_of_one_benchmark_are_pooled_not_averaged() -> None:
    # 0 of 10 steps and 30 of 10: 30 accepted in 40 steps, not the mean of 0 and 1.
    uneven = StepCounts((10, 30), (5, 5), (0, 30), (40, 40), (0, 0))
    assert mean_points([[uneven]], "drafting") == [(2.0, 1.75)]


def test_ratio_at_equal_overhead_of_requests_that_are_all_alike() -> None:
    # 20 nodes: 2.0 and 40 nodes: 3.0, against 1.5 at 30 nodes.
    mine = [[counts(10, 100, 100)], [counts(20, 200, 200)]]
    other = [[counts(5, 200, 100)]]
    at_30, at_50, mean = ratios_within(mine, other, [30.0, 50.0], "total", QUICK)
    assert at_30.estimate == pytest.approx(2.5 / 1.5)
    assert at_50.estimate == pytest.approx(3.0 / 1.5)
    assert mean.estimate == pytest.approx((2.5 / 1.5 + 2.0) / 2)
    # Requests that do not differ leave no spread.
    assert at_30.low == pytest.approx(at_30.high)
    assert mean.num_samples == 2


def test_the_interval_is_over_requests_drawn_in_pairs() -> None:
    # Both methods do twice as well on the second request: the ratio is 2 in every resample.
    mine = [[StepCounts((10, 10), (5, 5), (10, 30), (100, 100), (0, 0))]]
    half = [[StepCounts((20, 20), (5, 5), (0, 20), (200, 200), (0, 0))]]
    (at_10, _) = ratios_within(mine, half, [10.0], "drafting", QUICK)
    # 2 and 4 tokens per step against 1 and 2.
    assert at_10.estimate == pytest.approx(3.0 / 1.5)
    assert (at_10.low, at_10.high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_a_resample_without_a_setting_inside_the_budget_widens_the_interval() -> None:
    # 15 nodes on average, but 20 where the second request is drawn twice: above a budget of 16.
    mine = [[StepCounts((10, 10), (5, 5), (10, 10), (100, 200), (0, 0))]]
    at_16 = ratios_within(mine, mine, [16.0], "drafting", QUICK)[0]
    assert at_16.estimate == 1.0
    assert (at_16.low, at_16.high) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("mine", "other", "budgets", "reason"),
    [
        ([[counts(1, 1, 1)]], [[counts(1, 1, 1, 3)]], [5.0], "cannot be paired"),
        ([[counts(1, 1, 1)]], [], [5.0], "nothing to compare"),
        ([[counts(1, 1, 1)]], [[counts(1, 1, 1)]], [], "nothing to compare"),
        ([[counts(1, 100, 1)]], [[counts(1, 1, 1)]], [5.0], "no setting within 5 nodes"),
    ],
)
def test_what_cannot_be_compared_is_refused(mine, other, budgets, reason: str) -> None:
    with pytest.raises(MeasurementError, match=reason):
        ratios_within(mine, other, budgets, "total", QUICK)
