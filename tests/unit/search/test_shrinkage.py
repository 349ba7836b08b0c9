"""Selection gains shrunk towards dense by the width of their interval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_core.search.advice import advice, shrunk_gain
from tests.unit.search.test_tss_example import CONTEXT, outcome_at


@pytest.mark.parametrize(
    ("gain", "low", "high", "expected"),
    [
        # Standard error 0.1: a quarter of the gain of 0.2 is taken off.
        (0.2, 0.004, 0.396, 0.15),
        (-0.2, -0.396, -0.004, -0.15),
        # Standard error 0.1 beside a gain of 0.05: nothing is left.
        (0.05, -0.146, 0.246, 0.0),
        (0.1, 0.1, 0.1, 0.1),
        (0.0, -0.1, 0.1, 0.0),
    ],
)
def test_shrinking(gain: float, low: float, high: float, expected: float) -> None:
    assert shrunk_gain(gain, low, high) == pytest.approx(expected)


def test_the_advice_names_what_is_left_of_a_gain_that_is_not_told_apart_from_none() -> None:
    outcome = outcome_at(-0.05)[0]  # {2,3}: metric +2 %
    wide = replace(CONTEXT, metric_interval=(-0.1, 0.14))
    (sentence,) = [line for line in advice(outcome, wide) if "Shrunk" in line]
    assert "the metric change of 2,3 is +0.0% instead of +2.0%" in sentence
    narrow = replace(CONTEXT, metric_interval=(0.01, 0.03))
    assert not [line for line in advice(outcome, narrow) if "Shrunk" in line]
