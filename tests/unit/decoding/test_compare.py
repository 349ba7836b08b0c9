"""Where outputs part ways, and whether rounding explains it."""

import pytest

from specdec_core.config.drafters import NoDrafter
from specdec_core.decoding import (
    Generation,
    OutputDifference,
    compare_outputs,
    generate,
    make_drafter,
)
from specdec_core.errors import MeasurementError
from specdec_core.records import StepTrace
from tests.doubles import ScriptedView


def reference(token_ids=(4, 5, 6), gaps=(2.0, 1e-6, 2.0), top_k=()):
    return Generation(token_ids, "length", StepTrace(), top_k, gaps)


def test_equal_outputs_have_no_difference_and_need_no_gaps():
    assert compare_outputs(reference(gaps=()), [4, 5, 6], 0.1) is None


def test_a_gap_within_the_threshold_is_a_tie_and_a_wide_one_a_defect():
    assert compare_outputs(reference(), [4, 9, 6], 1e-5) == OutputDifference(1, 5, 9, 1e-6, "tie")
    assert compare_outputs(reference(), [4, 9, 6], 1e-7).kind == "defect"
    assert compare_outputs(reference(), [9, 5, 6], 1e-5) == OutputDifference(0, 4, 9, 2.0, "defect")


def test_only_the_first_difference_counts():
    assert compare_outputs(reference(), [4, 9, 9, 9], 1e-5).position == 1


def test_a_token_that_was_not_ranked_is_a_defect_however_small_the_gap():
    top_k = ((4, 5), (5, 9), (6, 4))
    assert compare_outputs(reference(top_k=top_k), [4, 9, 6], 1e-5).kind == "tie"
    assert compare_outputs(reference(top_k=top_k), [4, 8, 6], 1e-5).kind == "defect"


def test_an_early_end_and_an_overrun_are_defects():
    assert compare_outputs(reference(), [4], 1e-5) == OutputDifference(1, 5, None, 1e-6, "defect")
    overrun = OutputDifference(3, None, 7, None, "defect")
    assert compare_outputs(reference(), [4, 5, 6, 7], 1e-5) == overrun


def test_a_reference_without_gaps_cannot_judge():
    with pytest.raises(MeasurementError, match="3 tokens and 0 gaps: decode it with record_gaps"):
        compare_outputs(reference(gaps=()), [4, 9, 6], 0.1)


@pytest.mark.parametrize(("gap", "kind"), [(1e-6, "tie"), (2.0, "defect")])
def test_noise_on_a_real_decode_is_classified_by_the_targets_gap(gap, kind):
    def decode(lead):
        def logits_after(context):
            return [0.0, 5.0, 5.0 + lead] if len(context) == 3 else [7.0, 0.0, 0.0]

        view = ScriptedView(logits_after, 3)
        drafters = [make_drafter(NoDrafter())]
        options = {"max_new_tokens": 5, "eos_ids": (), "record_gaps": True}
        return generate(view, [[1]], drafters, **options)[0]

    noisy = decode(gap - max(1e-5, gap + 1))
    difference = compare_outputs(decode(gap), noisy.token_ids, 1e-5)
    assert (difference.position, difference.reference_token, difference.other_token) == (2, 2, 1)
    assert difference.gap == pytest.approx(gap)
    assert difference.kind == kind
