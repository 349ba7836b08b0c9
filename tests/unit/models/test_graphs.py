"""Captured passes against passes run anew; here capturing means remembering what to call."""

import gc
import random

import pytest
import torch

from specdec_core.models import graphs
from specdec_core.models.tiny import FAMILIES, tiny_target
from specdec_core.skip import SkipConfig
from specdec_core.tree.token_tree import TokenTree

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2]]


class Recorder:
    """Captures by keeping the work, and counts."""

    def __init__(self):
        self.num_captured = self.num_replayed = 0

    def __call__(self, work):
        self.num_captured += 1

        def again():
            self.num_replayed += 1
            work()

        return again


def random_tree(rng, size):
    parents = (-1, *(rng.randrange(node) for node in range(1, size)))
    return TokenTree(tuple(rng.sample(range(32), size)), parents)


def filled(view, capacity=256):
    cache = view.new_cache(2, capacity)
    view.prefill(PROMPTS, cache)
    return cache


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("skip", ["", "0,a1"])
def test_logits_are_those_of_passes_run_anew(family, skip):
    """Ragged trees of every width up to 9 behind ragged prompts, across windows of 8 tokens."""
    rng, recorder = random.Random(7), Recorder()
    plain, captured = (
        tiny_target(family, capture=capture).view(SkipConfig.parse(skip))
        for capture in (None, recorder)
    )
    expected_in, found_in = filled(plain), filled(captured)
    for step in range(18):
        trees = [random_tree(rng, rng.randint(1, 1 + step % 9)) for _ in PROMPTS]
        expected = plain.forward(trees, expected_in)
        found = captured.forward(trees, found_in)
        assert found.shape == expected.shape
        for row, tree in enumerate(trees):
            torch.testing.assert_close(found[row, : len(tree)], expected[row, : len(tree)], **CLOSE)
        paths = [[0]] * 2
        for cache in (expected_in, found_in):
            cache.commit(paths)
    # Widths 1, 2, 4, 8 and 16, each anew when first seen.
    assert recorder.num_captured <= 5
    assert recorder.num_replayed >= 18 - 5


def test_a_shape_is_captured_when_it_comes_again():
    recorder = Recorder()
    view = tiny_target("llama", capture=recorder).view()
    cache, tree = filled(view), TokenTree((5,), (-1,))
    counts = []
    for _ in range(3):
        view.forward([tree, tree], cache)
        cache.commit([[0], [0]])
        counts.append((recorder.num_captured, recorder.num_replayed))
    assert counts == [(0, 0), (1, 1), (1, 2)]


def test_a_tree_run_in_parts_and_a_view_on_foreign_caches():
    plain, captured = (tiny_target("gemma3", capture=c).view() for c in (None, Recorder()))
    tree = random_tree(random.Random(3), 12)
    first = TokenTree(tree.tokens[:5], tree.parents[:5])
    found = []
    for view in (plain, captured):
        sparse, cache = view.sparser(SkipConfig.parse("1")), filled(view)
        for _ in range(2):
            logits = [view.forward([first] * 2, cache), view.extend([tree] * 2, cache)]
            cache.rollback([5, 12])
            logits.append(sparse.forward([first] * 2, cache))
            cache.rollback([5, 12])
        found.append(torch.cat(logits, 1))
    torch.testing.assert_close(*found, **CLOSE)


def test_the_buffer_of_a_cache_that_is_gone_is_used_again_and_clean():
    recorder = Recorder()
    view = tiny_target("llama", capture=recorder).view()
    tree = TokenTree((5, 6), (-1, 0))
    addresses, logits = [], []
    for _ in range(3):
        cache = filled(view, 100)
        addresses.append(cache.buffer.data_ptr())
        logits.append(view.forward([tree, tree], cache))
        cache.buffer.fill_(float("nan"))
        del cache
        gc.collect()
    assert len(set(addresses)) == 1
    assert recorder.num_captured == 1
    torch.testing.assert_close(logits[1], logits[0], **CLOSE)
    assert torch.equal(logits[2], logits[1])


def test_two_caches_at_once_do_not_share_a_buffer():
    view = tiny_target("llama", capture=Recorder()).view()
    caches = [filled(view, 100), filled(view, 100)]
    assert caches[0].buffer.data_ptr() != caches[1].buffer.data_ptr()


def test_a_pass_whose_padding_does_not_fit_is_run_anew():
    """Capacity 256: five nodes behind 249 rows fit, their padding to eight does not."""
    recorder = Recorder()
    view = tiny_target("llama", capture=recorder).view()
    cache = view.new_cache(1, 256)
    view.prefill([[token % 32 for token in range(249)]], cache)
    tree = TokenTree(tuple(range(5)), (-1, 0, 1, 2, 3))
    for _ in range(2):
        assert view.forward([tree], cache).shape[:2] == (1, 5)
        cache.rollback([249])
    assert recorder.num_captured == 0


def test_passes_on_buffers_long_unused_are_dropped(monkeypatch):
    monkeypatch.setattr(graphs, "_MAX_FREE", 1)
    recorder = Recorder()
    view = tiny_target("llama", capture=recorder).view()
    tree = TokenTree((5,), (-1,))

    def use(capacity):
        cache = view.new_cache(1, capacity)
        view.prefill([[1, 2]], cache)
        for _ in range(2):
            view.forward([tree], cache)
            cache.rollback([2])

    for capacity, expected in ((256, 1), (512, 2), (256, 3)):
        use(capacity)
        gc.collect()
        assert recorder.num_captured == expected
