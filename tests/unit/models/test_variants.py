"""Options that checkpoints of the supported families use, against the library's own modules."""

import random

import pytest
import torch

from specdec_core.errors import UnsupportedModelError
from specdec_core.models.architecture import architecture_of
from specdec_core.models.tiny import FAMILIES, tiny_library_model, tiny_target
from specdec_core.tree.token_tree import TokenTree

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}  # the library computes rotary tables and norms in float32
TOKENS = random.Random(5).choices(range(32), k=30)

LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
    "rope_theta": 1e4,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "rope_theta": 1e4,
}
LOCAL = {"rope_type": "default", "rope_theta": 100.0}
ROTARY = {
    "linear": ("llama", LINEAR),
    "llama3": ("llama", LLAMA3),
    "yarn": ("qwen2", YARN),
    "yarn with query and key norms": ("qwen3", YARN),
    "scaled in full layers only": (
        "gemma3",
        {"sliding_attention": LOCAL, "full_attention": {**LINEAR, "factor": 8.0}},
    ),
}
OPTIONS = {
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama without biases": ("llama", {"attention_bias": False, "mlp_bias": False}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "one key head": ("mistral", {"num_key_value_heads": 1}),
    "as many key heads as heads": ("qwen2", {"num_key_value_heads": 4}),
    "head size from the hidden size": ("llama", {"head_dim": None}),
    "qwen2 with windows from layer 1 on": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen2 untied": ("qwen2", {"tie_word_embeddings": False}),
    "qwen3 with biases": ("qwen3", {"attention_bias": True}),
    "qwen3 tied": ("qwen3", {"tie_word_embeddings": True}),
    "gemma3 untied": ("gemma3", {"tie_word_embeddings": False}),
    "gemma3 with biases": ("gemma3", {"attention_bias": True}),
}


def engine_logits(target, tokens=TOKENS):
    view = target.view()
    return view.prefill([tokens], view.new_cache(1, 64))[0]


def library_logits(model, tokens=TOKENS):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_checkpoints_equal_the_library(name):
    family, changes = OPTIONS[name]
    expected = library_logits(tiny_library_model(family, seed=9, **changes))
    torch.testing.assert_close(
        engine_logits(tiny_target(family, seed=9, **changes)), expected, **TOLERANCE
    )


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_variants_equal_the_library_and_matter(name):
    family, parameters = ROTARY[name]
    target = tiny_target(family, seed=9, rope_parameters=parameters)
    expected = library_logits(tiny_library_model(family, seed=9, rope_parameters=parameters))
    torch.testing.assert_close(engine_logits(target), expected, **TOLERANCE)
    assert not torch.allclose(expected, engine_logits(tiny_target(family, seed=9)), rtol=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("dtype", "error"), [("float32", 1e-4), ("bfloat16", 0.2), ("float16", 0.03)]
)
def test_every_dtype_is_near_float64_in_ragged_batches_of_trees(family, dtype, error):
    prompts = [TOKENS[:3], TOKENS[:20]]
    trees = [TokenTree.root_only(1), TokenTree((1, 2, 3, 4), (-1, 0, 0, 1))]

    def logits(dtype):
        view = tiny_target(family, seed=9, dtype=dtype, initializer_range=0.1).view()
        cache = view.new_cache(2, 40)
        view.prefill(prompts, cache)
        found = view.forward(trees, cache)
        assert found.dtype == getattr(torch, dtype)
        return torch.cat((found[0, :1], found[1])).double()

    exact = logits("float64")
    torch.testing.assert_close(logits(dtype), exact, rtol=0, atol=error * float(exact.abs().max()))


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {"hidden_act": "relu"}, r"activation 'relu' \(known: silu, gelu_pytorch_tanh\)"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping: not supported"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: not supported"),
        ("gemma3", {"use_bidirectional_attention": True}, "bidirectional attention"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            r"rotary embedding type 'dynamic' \(known: default, linear, llama3, yarn\)",
        ),
    ],
)
def test_features_the_engine_lacks_are_named(family, changes, message):
    config = tiny_library_model(family).config
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(UnsupportedModelError, match=message):
        architecture_of(config)
