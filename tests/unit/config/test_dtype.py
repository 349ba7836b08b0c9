"""Types of targets: what they compute in, and how they are called."""

from typing import get_args

from specdec_core.config.dtype import ComputeType, DType, compute_type, has_int8_weights, type_label


def test_every_computing_type_comes_with_stored_and_with_rounded_weights():
    plain = get_args(ComputeType)
    assert sorted(get_args(DType)) == sorted([*plain, *(f"{name}-int8" for name in plain)])
    for name in plain:
        assert compute_type(name) == compute_type(f"{name}-int8") == name
        assert has_int8_weights(f"{name}-int8")
        assert not has_int8_weights(name)


def test_rounded_weights_are_called_lossy():
    assert type_label("bfloat16") == "bfloat16"
    assert type_label("bfloat16-int8") == "bfloat16, int8 weights (lossy)"
    assert type_label("auto") == "auto"
