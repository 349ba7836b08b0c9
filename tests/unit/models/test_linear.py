"""The linear map equals the plain product, whatever layout its weight has."""

import pytest
import torch

from specdec_core.models.linear import Linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(12,), (1, 12), (2, 5, 12), (3, 17, 12)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_it_is_the_plain_product_on_the_last_dimension(dtype, shape, has_bias):
    generator = torch.Generator().manual_seed(1)
    # Small whole numbers: products and their sums are exact in every dtype.
    x, weight, bias = (
        torch.randint(-3, 4, size, generator=generator).to(dtype) for size in (shape, (7, 12), (7,))
    )
    found = Linear(weight, bias if has_bias else None)(x)
    expected = x.double() @ weight.double().T + (bias.double() if has_bias else 0.0)
    assert found.dtype is dtype
    assert torch.equal(found.double(), expected)
