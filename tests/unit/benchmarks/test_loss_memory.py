"""How rounds of the loss benchmark become ratios."""

from __future__ import annotations

import pytest

from benchmarks.loss_memory import summarize


def _cell(eager: tuple[int, float], bounded: tuple[int, float], loss: float = -1.5) -> dict:
    def figures(peak: int, seconds: float, value: float) -> dict:
        return {"peak_bytes": peak, "seconds": seconds, "loss": value, "gradient_norm": 2.0}

    return {"eager": figures(*eager, -1.5), "bounded": figures(*bounded, loss)}


def test_ratios_are_of_the_bounded_form_over_the_eager_one() -> None:
    found = summarize([_cell((100, 4.0), (10, 3.0)), _cell((100, 6.0), (30, 5.0))])
    assert found["peak_memory_ratio"] == {
        "estimate": pytest.approx(0.2),
        "low": pytest.approx(0.1),
        "high": pytest.approx(0.3),
        "num_samples": 2,
    }
    assert found["seconds_ratio"]["estimate"] == pytest.approx(8.0 / 10.0)
    assert 0.75 - 1e-9 <= found["seconds_ratio"]["low"] <= found["seconds_ratio"]["high"] < 0.84


def test_forms_that_disagree_are_no_result() -> None:
    with pytest.raises(AssertionError, match="forms differ in loss"):
        summarize([_cell((1, 1.0), (1, 1.0), loss=-1.4)])
