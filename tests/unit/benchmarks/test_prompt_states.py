"""Which skip sets the benchmark of shared prompt states asks, and how seconds become a ratio."""

from __future__ import annotations

import pytest

from benchmarks.prompt_states import _predecessor, _ratio, measured_sets


def test_sets_are_spread_single_layers_and_a_run_of_pairs_in_the_order_of_a_search() -> None:
    assert measured_sets(30) == ("5", "10", "15", "20", "25", "7,15", "7,16", "7,17")
    assert measured_sets(18)[:5] == ("3", "6", "9", "12", "15")
    assert _predecessor("7,15") == "7,14"


def test_the_ratio_is_of_summed_seconds() -> None:
    found = _ratio([[1.0, 2.0, 1.0], [2.0, 3.0, 3.0]])
    assert found["estimate"] == pytest.approx(8 / 4)
    assert found["low"] <= 2.0 <= found["high"]
