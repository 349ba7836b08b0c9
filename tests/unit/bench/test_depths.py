"""Trials by depth, by hand."""

from __future__ import annotations

import pytest

from specdec_core.bench.depths import DepthCounts, add_depths, count_depths, expected_anywhere
from specdec_core.records import StepTrace


def trace(*steps: tuple[int, int, int]) -> StepTrace:
    """Return the trace of steps given as depth, accepted and committed."""
    depth, accepted, committed = zip(*steps, strict=True)
    return StepTrace(drafted=depth, depth=depth, accepted=accepted, committed=committed)


def test_a_trial_is_a_token_behind_accepted_ones_with_the_chance_of_its_place() -> None:
    # Places of the trials: 1 and 2; then 3, 4 and 5, after which nothing is left; then 7.
    chances = [[0.0, 0.5, 0.25, 1.0, 0.5, 0.75, 0.9, 0.2]]
    one, two, three = count_depths(trace((3, 1, 2), (3, 3, 4), (2, 0, 1)), chances)
    assert (one.num_trials, one.num_accepted) == (3, 2)
    assert one.expected == pytest.approx(0.5 + 1.0 + 0.2)
    assert one.variance == pytest.approx(0.25 + 0.0 + 0.16)
    assert (two.num_trials, two.num_accepted, two.expected) == (2, 1, 0.75)
    assert (three.num_trials, three.num_accepted, three.expected) == (1, 1, 0.75)
    assert one.realised_rate == pytest.approx(2 / 3)
    assert one.expected_rate == pytest.approx(1.7 / 3)
    assert one.standard_error == pytest.approx(0.41**0.5 / 3)


def test_every_depth_has_its_own_chances_and_the_last_stands_for_deeper_ones() -> None:
    chances = [[0.0, 0.1, 0.2, 0.3], [0.0, 0.4, 0.5, 0.6]]
    counts = count_depths(trace((3, 3, 3)), chances)
    assert [each.expected for each in counts] == [0.1, 0.5, 0.6]


@pytest.mark.parametrize(
    ("step", "num_trials"),
    [
        ((3, 2, 2), 2),  # cut by a stop: whether the third was right is not known
        ((3, 2, 3), 3),
        ((2, 2, 2), 2),
        ((0, 0, 1), 0),
    ],
)
def test_what_was_not_looked_at_is_no_trial(step: tuple[int, int, int], num_trials: int) -> None:
    counts = count_depths(trace(step), [[0.5] * 5])
    assert sum(each.num_trials for each in counts) == num_trials


def test_counts_of_unequal_depth_add_up() -> None:
    first = [DepthCounts(2, 1, 1.5, 0.25)]
    second = [DepthCounts(1, 1, 0.5, 0.25), DepthCounts(1, 0, 0.5, 0.25)]
    assert add_depths([first, second]) == [DepthCounts(3, 2, 2.0, 0.5), second[1]]
    empty = DepthCounts()
    assert (empty.realised_rate, empty.expected_rate, empty.standard_error) == (0.0, 0.0, 0.0)


def test_windows_anywhere_begin_behind_the_first_token_and_end_inside() -> None:
    # Windows at places 1 and 2: 1/2 + 1/4, and 1/2 + 1/2.
    assert expected_anywhere([[0.0, 0.5, 0.5, 1.0]], 2) == (1.75, 2)
    assert expected_anywhere([[0.0, 0.5]], 2) == (0.0, 0)
