"""A draft cache in step with its sequence: what is kept, what is run, and when it is refused."""

import random

import pytest
import torch

from specdec_core.decoding.draft_session import DraftSession
from specdec_core.errors import CacheDesyncError
from specdec_core.models.tiny import FAMILIES, tiny_target
from tests.doubles import ScriptedView, random_view

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


class Watched:
    """A view that notes how many nodes each pass runs, and keeps the last cache it made."""

    def __init__(self, view):
        self._view = view
        self.vocab_size, self.max_positions = view.vocab_size, view.max_positions
        self.passes = []
        self.cache = None

    def new_cache(self, batch_size, capacity):
        self.cache = self._view.new_cache(batch_size, capacity)
        return self.cache

    def prefill(self, prompts, cache):
        self.passes.append(len(prompts[0]))
        return self._view.prefill(prompts, cache)

    def forward(self, trees, cache):
        self.passes.append(len(trees[0]))
        return self._view.forward(trees, cache)

    def extend(self, trees, cache):
        logits = self._view.extend(trees, cache)
        self.passes.append(logits.shape[1])
        return logits


def test_each_token_is_run_once_and_accepted_nodes_are_not_run_again():
    view = Watched(random_view(1))
    session = DraftSession(view)
    session.reset([1, 2, 3])
    session.begin([1, 2, 3, 4])
    session.extend([5], [0])
    session.extend([6], [1])
    assert view.passes == [2, 2, 1, 1]  # all but the last prompt token; it and the first output
    # 5 and 6 were accepted, and 7, drafted after 6 but never run; 0 is the bonus.
    session.begin([1, 2, 3, 4, 5, 6, 7, 0])
    assert view.passes[4:] == [2]
    session.extend([1, 2], [0, 0])
    # Nothing was accepted: 3 is the bonus.
    session.begin([1, 2, 3, 4, 5, 6, 7, 0, 3])
    assert view.passes[5:] == [2, 1]


def test_the_second_sibling_may_be_the_accepted_one():
    view = Watched(random_view(2))
    session = DraftSession(view)
    session.reset([1])
    session.begin([1, 2])
    session.extend([3, 4], [0, 0])
    session.extend([5, 6], [1, 2])
    found = session.begin([1, 2, 4, 6, 0])
    assert view.passes == [2, 2, 2, 1]
    assert found.tolist() == list(random_view(2).logits_after([6, 0]))
    assert view.cache.rows == [[1, 2, 4, 6]]


def test_asking_twice_returns_the_same_and_forgets_what_was_drafted():
    view = Watched(random_view(3))
    session = DraftSession(view)
    session.reset([1])
    first = session.begin([1, 2])
    drafted = session.extend([3, 4], [0, 1])
    assert session.begin([1, 2]) is first
    assert torch.equal(session.extend([3], [0])[0], drafted[0])
    assert view.passes == [2, 2, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_stays_that_of_a_fresh_run(family):
    """Random trees and random acceptance: rows and logits are those of the sequence alone."""
    rng = random.Random(4)
    view = Watched(tiny_target(family, seed=4, vocab_size=16).view())
    session = DraftSession(view)
    sequence = [3, 1, 4]
    session.reset(sequence)
    sequence.append(1)
    for _ in range(12):
        fresh = view._view.new_cache(1, 256)
        expected = view._view.prefill([sequence], fresh)[0]
        torch.testing.assert_close(session.begin(sequence), expected, **CLOSE)
        kept = view.cache.lengths[0]
        torch.testing.assert_close(view.cache.rows(0), fresh.rows(0)[..., :kept, :], **CLOSE)
        nodes = [(None, -1)]
        for _ in range(rng.randint(0, 3)):
            size = rng.randint(1, 4)
            parents = [rng.randrange(len(nodes)) for _ in range(size)]
            tokens = rng.sample(range(8), size)
            pairs = {(p, t) for t, p in nodes}
            new = [(t, p) for t, p in zip(tokens, parents, strict=True) if (p, t) not in pairs]
            if new:
                session.extend([t for t, _ in new], [p for _, p in new])
                nodes.extend(new)
        node = rng.randrange(len(nodes))
        path = []
        while node:
            path.insert(0, nodes[node][0])
            node = nodes[node][1]
        sequence.extend([*path, 8 + rng.randrange(8)])
    assert view.cache.capacity >= len(sequence)


def test_tokens_without_a_row_are_run_as_the_first():
    view = Watched(random_view(5, vocab_size=6))
    session = DraftSession(view)
    session.reset([1, 7, 2])
    session.begin([1, 7, 2, 6])
    session.extend([0], [0])
    session.begin([1, 7, 2, 6, 0, 3])
    assert view.cache.rows == [[1, 0, 2, 0, 0]]


def test_depth_ends_with_the_draft_context():
    """The last drafted token is never run: 5 tokens fill a context of 8 up to position 7."""
    session = DraftSession(ScriptedView(lambda _: [0.0], 1, max_positions=8))
    assert [session.max_depth([0] * size) for size in (5, 7, 8, 9, 20)] == [4, 2, 1, 0, 0]
    session.reset([0] * 9)  # longer than the draft can read: not run, and never asked for
    with pytest.raises(CacheDesyncError, match="without a cache"):
        session.begin([0] * 9)


def test_a_sequence_that_does_not_go_on_is_refused():
    session = DraftSession(random_view(6))
    with pytest.raises(CacheDesyncError, match="without a cache: reset its drafter"):
        session.begin([1])
    session.reset([1, 2])
    session.begin([1, 2, 3])
    with pytest.raises(CacheDesyncError, match="sequence only grows between resets"):
        session.begin([1, 4, 3, 5])
    session.reset([1, 2, 3])
    with pytest.raises(CacheDesyncError, match="2 rows for a sequence of 1 tokens"):
        session.begin([1])


def test_memory_is_given_up_before_more_is_taken():
    view = Watched(random_view(7))
    session = DraftSession(view)
    alive = []

    def new_cache(batch_size, capacity):
        alive.append(session._cache)
        return view._view.new_cache(batch_size, capacity)

    view.new_cache = new_cache
    session.reset([1, 2])
    session.reset([1, 2])
    assert alive == [None, None]
