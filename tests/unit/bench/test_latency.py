"""Time per step and time per token are two figures."""

from __future__ import annotations

import pytest

from specdec_core.bench.latency import percentiles, step_milliseconds, token_milliseconds
from specdec_core.errors import MeasurementError
from specdec_core.records import SampleResult, StepTrace


def sample(num_tokens: int, seconds: float | None, step_seconds: tuple[float, ...]) -> SampleResult:
    return SampleResult(
        item_id="a",
        prompt_tokens=1,
        token_ids=(0,) * num_tokens,
        text="",
        answer="",
        useful_tokens=0,
        finish_reason="length",
        trace=StepTrace(),
        seconds=seconds,
        step_seconds=step_seconds,
    )


def test_bursts_of_five_tokens_in_50_ms_are_10_ms_per_token_and_gaps_of_50_ms() -> None:
    # The first token is the prefill's; three steps of five tokens follow.
    bursts = sample(16, 0.15, (0.05, 0.05, 0.05))
    assert step_milliseconds([bursts]) == pytest.approx([50.0] * 3)
    assert token_milliseconds([bursts]) == pytest.approx([10.0])


def test_what_was_not_timed_and_outputs_of_one_token_are_left_out() -> None:
    untimed, short = sample(5, None, ()), sample(1, 0.0, ())
    assert token_milliseconds([untimed, short]) == []
    assert step_milliseconds([untimed, short]) == []


def test_percentiles_lie_between_values() -> None:
    # Of 0, 1, .., 10 the p-th percentile is p / 10.
    assert percentiles([float(n) for n in range(11)]) == pytest.approx((5.0, 9.0, 9.9))
    assert percentiles([4.0]) == (4.0, 4.0, 4.0)
    with pytest.raises(MeasurementError, match="at least one step"):
        percentiles([])
