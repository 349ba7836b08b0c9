"""Trees run part by part, and sparse views on the dense view's cache."""

import random

import pytest
import torch

from specdec_core.errors import CacheDesyncError, ConfigError
from specdec_core.models.tiny import FAMILIES, tiny_target
from specdec_core.skip import SkipConfig
from specdec_core.tree.token_tree import TokenTree

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2]]


def random_tree(rng, size):
    parents = (-1, *(rng.randrange(node) for node in range(1, size)))
    return TokenTree(tuple(rng.sample(range(32), size)), parents)


def part(tree, size):
    return TokenTree(tree.tokens[:size], tree.parents[:size])


def filled(view, capacity=64):
    cache = view.new_cache(2, capacity)
    view.prefill(PROMPTS, cache)
    return cache


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_tree_run_in_parts_has_the_logits_of_the_whole(family, seed):
    """Sequences and parts of unequal size; paths cross the sliding windows of 8 tokens."""
    rng = random.Random(seed)
    view = tiny_target(family, seed=seed).view()
    trees = [random_tree(rng, 14), random_tree(rng, 11)]
    whole, parted = filled(view), filled(view)
    expected = view.forward(trees, whole)
    sizes = [rng.randint(1, 5), rng.randint(1, 5)]
    found = view.forward(
        [part(tree, size) for tree, size in zip(trees, sizes, strict=True)], parted
    )
    rows = [list(found[row, :size]) for row, size in enumerate(sizes)]
    while any(size < len(tree) for size, tree in zip(sizes, trees, strict=True)):
        before = list(sizes)
        sizes = [min(s + rng.randint(0, 4), len(t)) for s, t in zip(sizes, trees, strict=True)]
        if sizes == before:
            continue
        found = view.extend(
            [part(tree, size) for tree, size in zip(trees, sizes, strict=True)], parted
        )
        for row, (old, new) in enumerate(zip(before, sizes, strict=True)):
            rows[row].extend(found[row, : new - old])
    for row, tree in enumerate(trees):
        torch.testing.assert_close(torch.stack(rows[row]), expected[row, : len(tree)], **CLOSE)
    paths = [[0], [0]]
    for tree, path in zip(trees, paths, strict=True):
        while children := tree.children(path[-1]):
            path.append(max(children.values()))
    whole.commit(paths)
    parted.commit(paths)
    for row in range(2):
        torch.testing.assert_close(parted.rows(row), whole.rows(row), **CLOSE)


def test_pending_rows_can_be_dropped_from_behind_and_replaced():
    view = tiny_target("gemma3").view()
    cache, other = filled(view), filled(view)
    first, second = TokenTree.chain(7, [8, 9]), TokenTree((7, 10, 11), (-1, 0, 1))
    view.forward([first, first], cache)
    cache.truncate([1, 1])
    assert cache.pending == [1, 1]
    found = view.extend([second, second], cache)
    torch.testing.assert_close(found, view.forward([second, second], other)[:, 1:], **CLOSE)
    with pytest.raises(CacheDesyncError, match="truncation of sequence 1 from 3 to 4 nodes"):
        cache.truncate([3, 4])


def test_a_forward_does_not_go_on_by_mistake():
    view = tiny_target("llama").view()
    cache = filled(view)
    view.forward([TokenTree.root_only(1)] * 2, cache)
    with pytest.raises(CacheDesyncError, match="forward before commit"):
        view.forward([TokenTree.root_only(1)] * 2, cache)


def test_more_room_keeps_every_row_committed_or_pending():
    view = tiny_target("qwen3").view()
    tight, roomy = filled(view, 13), filled(view)
    tree = TokenTree.chain(7, [8, 9])
    view.forward([part(tree, 1)] * 2, tight)
    with pytest.raises(CacheDesyncError, match="13 rows cannot take 2 nodes"):
        view.extend([tree] * 2, tight)
    tight.reserve(14)
    assert tight.capacity == 26
    tight.reserve(20)
    assert tight.capacity == 26
    found = view.extend([tree] * 2, tight)
    torch.testing.assert_close(found, view.forward([tree] * 2, roomy)[:, 1:], **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("skip", ["", "1", "a0", "m2", "a0,m2,1"])
def test_a_sparser_view_reads_the_dense_rows_of_the_layers_it_keeps(family, skip):
    """The same as the sparse view alone, once its cache is filled with the dense rows by hand."""
    target = tiny_target(family, seed=2)
    config = SkipConfig.parse(skip)
    dense, sparse = target.view(), target.view(config)
    cache = dense.new_cache(1, 40)
    dense.prefill(PROMPTS[:1], cache)
    kept = [layer for layer in range(3) if not config.skips_attention(layer)]
    own = sparse.new_cache(1, 40)
    own.load_prefix(cache.export_prefix()[:, kept])
    rows = cache.rows(0).clone()
    tree = TokenTree((7, 8, 9, 10), (-1, 0, 0, 2))
    lent = cache.narrow(0, 1)
    found = dense.sparser(config).forward([tree], lent)
    torch.testing.assert_close(found, sparse.forward([tree], own), **CLOSE)
    assert torch.equal(cache.rows(0), rows)
    # What was written behind them is overwritten by the dense view's next pass.
    fresh = dense.new_cache(1, 40)
    dense.prefill(PROMPTS[:1], fresh)
    assert torch.equal(dense.forward([tree], cache), dense.forward([tree], fresh))


def test_a_sparse_view_is_skipped_further():
    target = tiny_target("llama")
    view = target.view(SkipConfig.parse("a0,m1"))
    assert str(view.sparser(SkipConfig.parse("m0,m1")).skip) == "0,m1"
    with pytest.raises(ConfigError, match="layers 0 to 2"):
        view.sparser(SkipConfig.parse("3"))
    with pytest.raises(ConfigError, match="leaves out every layer"):
        view.sparser(SkipConfig.parse("m0,1,2"))
