"""Degeneration guards."""

import dataclasses

import pytest

from specdec_core.data.guards import (
    GuardThresholds,
    GuardValues,
    degeneration_warnings,
    distinct_2,
    guard_values,
    longest_repeat,
)
from specdec_core.errors import MeasurementError

DENSE = GuardValues(mean_output_tokens=40.0, stop_rate=0.9, distinct_2=0.8, longest_repeat=6.0)


def test_distinct_2_is_pooled_over_samples():
    # Bigrams 12, 21, 12 and 12: two distinct of four.
    assert distinct_2([[1, 2, 1, 2], [1, 2]]) == 0.5
    assert distinct_2([[5], []]) == 1.0


@pytest.mark.parametrize(
    ("tokens", "length"),
    [
        ([], 0),
        ([7], 0),
        ([1, 2, 3], 0),
        ([1, 2, 1], 1),
        ([4, 4], 1),
        ([4, 4, 4, 4], 3),
        ([2, 1, 3, 1, 3, 1], 3),
        ([1, 2, 3, 9, 1, 2, 3], 3),
        ([262_143, 0, 262_143, 0], 2),
    ],
)
def test_longest_repeat(tokens, length):
    assert longest_repeat(tokens) == length


def test_guard_values_of_two_samples():
    values = guard_values([[1, 2, 1, 2], [3, 3]], ["length", "stop_token"])
    assert values == GuardValues(3.0, 0.5, 3 / 4, (2 + 1) / 2)


def test_guards_need_a_reason_for_each_sample():
    for samples, reasons in (([], []), ([[1]], [])):
        with pytest.raises(MeasurementError, match="give at least one sample"):
            guard_values(samples, reasons)


def test_equal_figures_give_no_warning():
    assert degeneration_warnings(DENSE, DENSE) == []


@pytest.mark.parametrize(
    ("name", "within", "beyond", "sentence"),
    [
        ("mean_output_tokens", 60.0, 61.0, "mean output length went from 40.0 to 61.0"),
        ("mean_output_tokens", 20.0, 19.0, "mean output length went from 40.0 to 19.0"),
        ("stop_rate", 0.71, 0.69, "fell from 90% to 69%"),
        ("distinct_2", 0.69, 0.67, "distinct bigrams fell from 0.80 to 0.67"),
        ("longest_repeat", 9.9, 10.0, "grew from 6.0 to 10.0 tokens"),
    ],
)
def test_warning_begins_at_its_threshold(name, within, beyond, sentence):
    assert degeneration_warnings(DENSE, dataclasses.replace(DENSE, **{name: within})) == []
    (warning,) = degeneration_warnings(DENSE, dataclasses.replace(DENSE, **{name: beyond}))
    assert sentence in warning


def test_long_repeats_are_compared_by_ratio():
    dense = dataclasses.replace(DENSE, longest_repeat=20.0)
    assert degeneration_warnings(dense, dataclasses.replace(dense, longest_repeat=29.0)) == []
    assert degeneration_warnings(dense, dataclasses.replace(dense, longest_repeat=31.0))


def test_thresholds_can_be_set():
    sparse = dataclasses.replace(DENSE, distinct_2=0.79)
    assert degeneration_warnings(DENSE, sparse, GuardThresholds(max_distinct_drop=0.01))
