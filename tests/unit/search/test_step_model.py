"""Predicted step times: interpolation, and the bytes that units save."""

from __future__ import annotations

import pytest

from specdec_core.errors import ConfigError
from specdec_core.search.step_model import StepTimeModel, half_bytes
from specdec_core.skip import SkipConfig


def test_step_model_interpolates_and_saves_by_unit() -> None:
    # Attention 2 bytes and MLP 6 in each of 2 layers, 4 of head: 20 in all.
    model = StepTimeModel((1, 4, 8), (1.0, 1.6, 4.0), (2.0, 2.0), (6.0, 6.0), 4.0)
    assert model.dense_seconds(1) == 1.0
    assert model.dense_seconds(2.5) == pytest.approx(1.3)
    assert model.dense_seconds(6) == pytest.approx(2.8)
    assert (model.dense_seconds(0.5), model.dense_seconds(100)) == (1.0, 4.0)
    savings = {"": 0.0, "a1": 0.1, "m1": 0.3, "1": 0.4, "a0,1": 0.5}
    for text, saving in savings.items():
        assert model.saving(SkipConfig.parse(text)) == pytest.approx(saving)
        assert model.seconds(SkipConfig.parse(text), 4) == pytest.approx(1.6 * (1 - saving))


@pytest.mark.parametrize(
    ("nodes", "seconds"), [((), ()), ((1, 1), (1.0, 1.0)), ((1, 2), (1.0,)), ((1,), (0.0,))]
)
def test_a_curve_that_is_none_is_refused(nodes: tuple[int, ...], seconds: tuple[float]) -> None:
    with pytest.raises(ConfigError, match="are no curve"):
        StepTimeModel(nodes, seconds, (1.0,), (1.0,))


def test_bytes_of_halves_by_hand() -> None:
    # Projections: 8 hidden x (2 x 4 query + 2 x 2 key heads) x 3 wide = 288 weights of 2 bytes.
    # Cache at 10 tokens: 2 x 2 heads x 3 wide x 10 (or a window of 4) numbers of 4 bytes.
    attention, mlp = half_bytes(
        hidden_size=8,
        intermediate_size=5,
        num_heads=4,
        num_kv_heads=2,
        head_dim=3,
        windows=(None, 4),
        context=10,
        bytes_per_weight=2,
        bytes_per_cached=4,
    )
    assert attention == (576 + 480, 576 + 192)
    assert mlp == (240, 240)
