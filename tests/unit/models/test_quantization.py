"""Weights of 8 bits: numbers found by hand, and the products that are made of them."""

import pytest
import torch
from torch.nn import functional

from specdec_core.models.linear import Linear, Storage
from specdec_core.models.native import build
from specdec_core.models.native.build import Kernels, find_kernels
from specdec_core.models.native.weights import Packer
from specdec_core.models.quantization import GROUP, Int8Weight


def test_the_largest_of_a_group_becomes_127_and_the_rest_is_rounded_to_even():
    # 254 is 127 steps of 2; 1 is half a step and goes to 0, 3 is one and a half and goes to 2.
    found = Int8Weight.of(torch.tensor([[254.0, 1.0, 3.0, -3.0, -7.9, 0.0]]))
    assert found.scales.tolist() == [[2.0]]
    assert found.values.tolist() == [[127, 0, 2, -2, -4, 0]]
    assert found.values.dtype is torch.int8
    assert found.dequantized(torch.float64).tolist() == [[254.0, 0.0, 4.0, -4.0, -8.0, 0.0]]


def test_every_group_of_inputs_has_its_own_scale_the_last_may_be_short():
    weight = torch.zeros(2, GROUP + 2)
    weight[0, GROUP - 1], weight[0, GROUP] = -127.0, 12.7
    weight[1, 3] = 381.0
    found = Int8Weight.of(weight)
    torch.testing.assert_close(found.scales, torch.tensor([[1.0, 0.1], [3.0, 0.0]]))
    assert found.values.shape == weight.shape
    assert found.values[0, GROUP - 1 :].tolist() == [-127, 127, 0]
    assert found.values[1].count_nonzero() == 1
    torch.testing.assert_close(found.dequantized(torch.float32), weight)


def test_other_groups_share_their_scale_too():
    # In groups of two: 254 is 127 steps of 2, and 3 of them 1.5 steps, to even 2; the rest exact.
    found = Int8Weight.of(torch.tensor([[254.0, 3.0, 127.0, -1.0, 12.7]]), 2)
    torch.testing.assert_close(found.scales, torch.tensor([[2.0, 1.0, 0.1]]))
    assert found.values.tolist() == [[127, 2, 127, -1, 127]]
    expected = torch.tensor([[254.0, 4.0, 127.0, -1.0, 12.7]])
    torch.testing.assert_close(found.dequantized(torch.float32), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_zeros_stay_zeros_in_every_type(dtype):
    found = Int8Weight.of(torch.zeros(3, 5, dtype=dtype)).dequantized(dtype)
    assert found.dtype is dtype
    assert torch.equal(found, torch.zeros(3, 5, dtype=dtype))


def test_numbers_next_to_nothing_stay_finite_and_within_a_step():
    weight = torch.tensor([[1e-40, -1e-40, 3e-41]])
    found = Int8Weight.of(weight)
    assert found.values.abs().max() <= 127
    assert (found.dequantized(torch.float32) - weight).abs().max() <= 2e-42


def test_rounding_errs_by_half_a_step_at_most_and_is_the_same_from_every_type():
    weight = torch.randn(40, 200, generator=torch.Generator().manual_seed(3)).bfloat16()
    found = Int8Weight.of(weight)
    error = (found.dequantized(torch.float64) - weight.double()).abs()
    steps = found.scales.double().repeat_interleave(GROUP, dim=1)[:, :200]
    assert (error <= steps * 0.5001).all()
    for dtype in (torch.float32, torch.float64):
        other = Int8Weight.of(weight.to(dtype))
        assert torch.equal(other.values, found.values)
        assert torch.equal(other.scales, found.scales)


def all_kernels(tmp_path):
    """The library for this processor, and the one for those that cannot look bytes up."""
    if find_kernels() is None:
        pytest.skip("this machine cannot run the compiled kernels")
    compiler = build._compiler()
    yield find_kernels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_processor_flags", lambda: ())
        yield Kernels(build._compiled(compiler, tmp_path))


def test_compiled_products_are_those_of_the_stored_numbers(tmp_path):
    """Against float64; every byte occurs, rows fill one register tile and more than one."""
    generator = torch.Generator().manual_seed(5)
    weight = torch.randint(-127, 128, (50, 160), generator=generator).bfloat16()
    weight[:2, :127], weight[0, 127] = torch.arange(1.0, 128.0), -127.0
    weight *= torch.logspace(-3, 1, 50).bfloat16().unsqueeze(1)
    bias = torch.randn(50, generator=generator).bfloat16()
    stored = Int8Weight.of(weight)
    assert len(stored.values.unique()) == 255
    rows = torch.randn(15, 160, generator=generator).bfloat16()
    expected = functional.linear(rows.double(), stored.dequantized(torch.float64), bias.double())
    size = functional.linear(rows.double().abs(), stored.dequantized(torch.float64).abs())
    alike = []
    for kernels in all_kernels(tmp_path):
        product = Linear(weight, bias, Storage(Packer(kernels), is_int8=True))
        for number in (1, 3, 12, 15):
            found = product(rows[:number])
            error = (found.double() - expected[:number]).abs()
            # One rounding to bfloat16, and sums of float32.
            assert (error <= expected[:number].abs() * 2**-8 + size[:number] * 1e-6).all()
            assert torch.equal(found, product(rows)[:number])
        alike.append(product(rows))
    assert torch.equal(*alike)


def test_without_compiled_kernels_products_are_those_of_the_stored_numbers():
    generator = torch.Generator().manual_seed(6)
    weight = torch.randn(7, 70, generator=generator, dtype=torch.float64)
    rows = torch.randn(2, 3, 70, generator=generator, dtype=torch.float64)
    stored = Int8Weight.of(weight).dequantized(torch.float64)
    found = Linear(weight, storage=Storage(is_int8=True))(rows)
    torch.testing.assert_close(found, rows @ stored.T)
    assert not torch.allclose(found, rows @ weight.T, atol=1e-4)
