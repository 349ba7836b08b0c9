"""Which level of proof which evidence reaches."""

import pytest

from specdec_core.bench.proof import level_reached


@pytest.mark.parametrize(
    ("kinds", "dtype", "options", "expected"),
    [
        ([], "float64", {}, "exact"),
        ([], "bfloat16", {}, "up-to-ties"),
        ([], "float64-int8", {}, "exact"),
        ([], "bfloat16-int8", {}, "up-to-ties"),
        (["tie"], "float64", {}, "up-to-ties"),
        (["tie", "tie"], "bfloat16", {}, "up-to-ties"),
        (["tie", "defect", "unknown"], "bfloat16", {}, "defect"),
        (["tie", "unknown"], "bfloat16", {}, "unproven"),
        ([], "float64", {"is_lossless": False}, "lossy"),
        (["defect"], "float64", {"is_lossless": False}, "lossy"),
        ([], "float64", {"is_coupled": False}, "unproven"),
        ([], "float64", {"is_coupled": False, "is_law_kept": True}, "same-distribution"),
        ([], "float64", {"is_coupled": False, "is_law_kept": False}, "defect"),
        ([], "float64", {"is_law_kept": True}, "exact"),
        ([], "float64", {"is_law_kept": False}, "defect"),
        (["defect"], "float64", {"is_law_kept": True}, "defect"),
    ],
)
def test_level_by_evidence(kinds, dtype, options, expected):
    assert level_reached(kinds, dtype=dtype, **options) == expected
