"""Bytes of weights and cache, by hand and against a loaded target."""

from __future__ import annotations

import pytest

from specdec_core.models.tiny import tiny_library_model, tiny_target
from specdec_core.profiling.memory import cache_bytes_per_token, weight_bytes
from specdec_core.skip import SkipConfig

# Width 16, feed-forward 24, 4 query and 2 key-value heads of 8, 3 layers, 32 tokens.
ATTENTION = 16 * 8 * (4 + 4 + 2 + 2)
MLP = 3 * 16 * 24


@pytest.mark.parametrize(
    ("skip", "kept"),
    [
        ("", 3 * ATTENTION + 3 * MLP),
        ("a1", 2 * ATTENTION + 3 * MLP),
        ("m1", 3 * ATTENTION + 2 * MLP),
        ("0,2", ATTENTION + MLP),
    ],
)
def test_weights_of_what_is_kept(skip: str, kept: int) -> None:
    arch = tiny_target("llama").arch
    head_and_embedding = 2 * 32 * 16
    expected = kept + head_and_embedding
    assert weight_bytes(arch, "float32", SkipConfig.parse(skip)) == 4 * expected
    assert weight_bytes(arch, "bfloat16", SkipConfig.parse(skip)) == 2 * expected


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
def test_they_are_the_matrices_of_the_checkpoint(family: str) -> None:
    model = tiny_library_model(family)
    matrices = {p.data_ptr(): p.numel() for p in model.parameters() if p.ndim == 2}
    found = weight_bytes(tiny_target(family).arch, "float64", SkipConfig())
    assert found == 8 * sum(matrices.values())


@pytest.mark.parametrize("skip", ["", "a1", "m1", "0,a2"])
def test_the_cache_is_that_of_the_engine(skip: str) -> None:
    target = tiny_target("gemma3", dtype="float32")
    config = SkipConfig.parse(skip)
    cache = target.view(config).new_cache(1, 5)
    assert 5 * cache_bytes_per_token(target.arch, "float32", config) == cache.num_bytes
