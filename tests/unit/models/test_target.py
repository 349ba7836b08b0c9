"""The engine's forward against the library's own modules, on tiny random models in float64."""

import copy
import random

import pytest
import torch

from specdec_core.errors import CacheDesyncError, ConfigError
from specdec_core.models.tiny import FAMILIES, tiny_library_model, tiny_target
from specdec_core.skip import SkipConfig
from specdec_core.tree.token_tree import TokenTree

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}  # the library computes rotary tables and norms in float32


def library_logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def random_tokens(seed, length, vocab_size=32):
    return random.Random(seed).choices(range(vocab_size), k=length)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_equals_library_across_sliding_windows(family):
    target, model = tiny_target(family), tiny_library_model(family)
    for length in (1, 2, 7, 8, 9, 30):
        tokens = random_tokens(length, length)
        view = target.view()
        logits = view.prefill([tokens], view.new_cache(1, 64))
        torch.testing.assert_close(logits[0], library_logits(model, tokens)[-1], **TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batch_of_trees_equals_separate_sequences(family):
    """Every node's logits equal those of its own path written out as a plain sequence."""
    target, model = tiny_target(family, seed=3), tiny_library_model(family, seed=3)
    view = target.view()
    prompts = [random_tokens(1, 5), random_tokens(2, 12), random_tokens(4, 7)]
    trees = [
        TokenTree((3, 4, 5, 6, 7, 8, 9), (-1, 0, 0, 1, 1, 2, 3)),
        TokenTree.root_only(11),
        TokenTree((1, 2, 3, 4), (-1, 0, 1, 0)),
    ]
    cache = view.new_cache(3, 40)
    view.prefill(prompts, cache)
    logits = view.forward(trees, cache)
    for row, (prompt, tree) in enumerate(zip(prompts, trees, strict=True)):
        for node in range(len(tree)):
            path, at = [], node
            while at >= 0:
                path.insert(0, tree.tokens[at])
                at = tree.parents[at]
            expected = library_logits(model, prompt + path)[-1]
            torch.testing.assert_close(logits[row, node], expected, **TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
def test_cache_after_random_commits_equals_plain_prefill(family):
    """INV-4: whatever is accepted, committed rows are those of the committed tokens."""
    target = tiny_target(family, seed=1)
    view = target.view(SkipConfig.parse("a0,m2"))
    rng = random.Random(7)
    sequences = [random_tokens(1, 4), random_tokens(2, 9)]
    cache = view.new_cache(2, 60)
    view.prefill(sequences, cache)
    for _ in range(8):
        trees = []
        for _sequence in sequences:
            size = rng.randint(1, 7)
            parents = (-1, *(rng.randrange(node) for node in range(1, size)))
            trees.append(TokenTree(tuple(rng.sample(range(32), size)), parents))
        view.forward(trees, cache)
        paths = []
        for sequence, tree in zip(sequences, trees, strict=True):
            path = [0]
            while (nodes := [i for i, p in enumerate(tree.parents) if p == path[-1]]) and (
                rng.random() < 0.7
            ):
                path.append(rng.choice(nodes))
            paths.append(path)
            sequence.extend(tree.tokens[node] for node in path)
        cache.commit(paths)
        assert cache.lengths == [len(sequence) for sequence in sequences]
    for row, sequence in enumerate(sequences):
        plain = view.new_cache(1, 60)
        view.prefill([sequence], plain)
        torch.testing.assert_close(cache.rows(row), plain.rows(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_skipped_block_equals_library_model_without_it(family, layer):
    model = tiny_library_model(family, seed=5)
    shorter = copy.deepcopy(model)
    del shorter.model.layers[layer]
    shorter.config.num_hidden_layers = 2
    if getattr(shorter.config, "layer_types", None):
        types = list(shorter.config.layer_types)
        del types[layer]
        shorter.config.layer_types = types
    for index, block in enumerate(shorter.model.layers):
        block.self_attn.layer_idx = index
    view = tiny_target(family, seed=5).view(SkipConfig.parse(str(layer)))
    tokens = random_tokens(3, 20)
    cache = view.new_cache(1, 40)
    logits = view.prefill([tokens], cache)
    torch.testing.assert_close(logits[0], library_logits(shorter, tokens)[-1], **TOLERANCE)
    step = view.forward([TokenTree.root_only(9)], cache)
    expected = library_logits(shorter, [*tokens, 9])[-1]
    torch.testing.assert_close(step[0, 0], expected, **TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("skip", "silenced"),
    [
        ("a1", [(1, "self_attn.o_proj")]),
        ("m0", [(0, "mlp.down_proj")]),
        ("a0,m2", [(0, "self_attn.o_proj"), (2, "mlp.down_proj")]),
    ],
)
def test_skipped_half_equals_library_model_with_silenced_output(family, skip, silenced):
    """A half whose output projection is zero adds nothing to the residual stream."""
    model = tiny_library_model(family, seed=6)
    for layer, name in silenced:
        projection = model.model.layers[layer].get_submodule(name)
        torch.nn.init.zeros_(projection.weight)
        if projection.bias is not None:
            torch.nn.init.zeros_(projection.bias)
    view = tiny_target(family, seed=6).view(SkipConfig.parse(skip))
    tokens = random_tokens(8, 15)
    logits = view.prefill([tokens], view.new_cache(1, 40))
    torch.testing.assert_close(logits[0], library_logits(model, tokens)[-1], **TOLERANCE)


def test_skipped_attention_keeps_no_cache():
    target = tiny_target("llama")
    assert target.view(SkipConfig.parse("a1")).new_cache(1, 10).num_bytes * 3 == (
        target.view().new_cache(1, 10).num_bytes * 2
    )


def test_view_of_every_attention_half_skipped_still_decodes():
    view = tiny_target("llama").view(SkipConfig.parse("a0,a1,a2"))
    cache = view.new_cache(1, 10)
    view.prefill([[1, 2, 3]], cache)
    assert cache.lengths == [3]


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_prefix_changes_nothing(family):
    view = tiny_target(family, seed=2).view(SkipConfig.parse("1"))
    header = random_tokens(1, 10)
    prompts = [header + random_tokens(2, 3), header + random_tokens(3, 6)]
    plain, shared = view.new_cache(2, 40), view.new_cache(2, 40)
    expected = view.prefill(prompts, plain)
    logits = view.prefill(prompts, shared, prefix=view.build_prefix(header))
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    assert shared.lengths == plain.lengths == [13, 16]


def test_prefix_of_another_view_or_text_is_refused():
    target = tiny_target("llama")
    dense, sparse = target.view(), target.view(SkipConfig.parse("1"))
    prefix = dense.build_prefix([1, 2])
    with pytest.raises(ConfigError, match="build one per view"):
        sparse.prefill([[1, 2, 3]], sparse.new_cache(1, 9), prefix)
    with pytest.raises(ConfigError, match="does not continue the shared prefix"):
        dense.prefill([[1, 3, 3]], dense.new_cache(1, 9), prefix)
    with pytest.raises(ConfigError, match="does not continue the shared prefix"):
        dense.prefill([[1, 2]], dense.new_cache(1, 9), prefix)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_too_long_for_one_pass_takes_several(family, monkeypatch):
    view = tiny_target(family).view()
    header = random_tokens(5, 11)
    prompts = [header + random_tokens(6, 23), header + random_tokens(7, 2)]
    expected = [view.prefill([prompt], view.new_cache(1, 40))[0] for prompt in prompts]
    monkeypatch.setattr("specdec_core.models.view._PREFILL_TOKENS", 4)
    for prefix in (None, view.build_prefix(header)):
        cache = view.new_cache(2, 40)
        logits = view.prefill(prompts, cache, prefix)
        assert cache.lengths == [34, 13]
        torch.testing.assert_close(logits, torch.stack(expected), rtol=1e-9, atol=1e-9)


def test_large_prefill_in_groups_equals_one_by_one(monkeypatch):
    monkeypatch.setattr("specdec_core.models.view._PREFILL_TOKENS", 16)
    view = tiny_target("qwen3").view()
    prompts = [random_tokens(i, 6 + i) for i in range(5)]
    together = view.prefill(prompts, view.new_cache(5, 20))
    for row, prompt in enumerate(prompts):
        alone = view.prefill([prompt], view.new_cache(1, 20))
        torch.testing.assert_close(together[row], alone[0], rtol=1e-9, atol=1e-9)


def test_forward_before_commit_and_overflow_are_refused():
    view = tiny_target("llama").view()
    cache = view.new_cache(1, 5)
    view.prefill([[1, 2, 3]], cache)
    view.forward([TokenTree.root_only(4)], cache)
    with pytest.raises(CacheDesyncError, match="still pending"):
        view.forward([TokenTree.root_only(4)], cache)
    cache.commit([[0]])
    with pytest.raises(CacheDesyncError, match="allocate a larger one"):
        view.forward([TokenTree.chain(4, [1])], cache)


def test_unknown_layer_is_refused():
    with pytest.raises(ConfigError, match="target has layers 0 to 2"):
        tiny_target("llama").view(SkipConfig.parse("3"))
