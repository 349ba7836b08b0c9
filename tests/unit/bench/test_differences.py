"""Where outputs part ways without a generation at hand, and what rounding may explain."""

import pytest

from specdec_core.bench.differences import TIE_GAPS, first_difference
from specdec_core.errors import MeasurementError


def test_without_known_gaps_the_position_is_found_and_the_kind_is_unknown():
    found = first_difference([4, 5, 6], [4, 9, 6], None, 0.25)
    assert found is not None
    assert (found.position, found.reference_token, found.other_token) == (1, 5, 9)
    assert (found.gap, found.kind) == (None, "unknown")
    assert first_difference([4, 5], (4, 5), None, 0.25) is None


def test_a_gap_missing_for_a_position_is_refused():
    with pytest.raises(MeasurementError, match="2 tokens and 1 gaps"):
        first_difference([4, 5], [4, 9], [0.1], 0.25)


def test_bfloat16_may_turn_over_two_steps_of_its_eight_bits_at_logits_from_16_on():
    step = 16 * 2.0**-7  # 7 stored bits of fraction
    assert TIE_GAPS["bfloat16"] == 2 * step
    assert TIE_GAPS["float16"] == 2 * 16 * 2.0**-10
    assert sorted(TIE_GAPS, key=TIE_GAPS.__getitem__) == [
        "float64", "float32", "float16", "bfloat16",
    ]  # fmt: skip
