"""Typical acceptance: thresholds and paths by hand, and what it must never do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from specdec_core.config.sampling import Sampling, parse_sampling
from specdec_core.decoding import DraftBudget, Proposal, generate
from specdec_core.decoding.verification import Match, TreeRows, Typical
from specdec_core.randomness import Noise
from specdec_core.tree import TokenTree
from tests.doubles import GarbageDrafter, random_view

SAMPLING = Sampling(temperature=1.0, verification="typical")
DEFAULTS = (0.09, 0.3)


def rows_of(tree: TokenTree, *laws: tuple[float, ...]) -> TreeRows:
    logits = torch.tensor(laws, dtype=torch.float64).log()
    return TreeRows(logits, tree, (9, tree.tokens[0]), 1, SAMPLING)


def accepted(law, tokens=None):
    """Return which tokens are accepted as the only child."""
    found = []
    for token in tokens or range(len(law)):
        tree = TokenTree.chain(0, [token])
        verdict = Typical(*DEFAULTS).verify(Proposal(tree), rows_of(tree, law, law), Noise(0))
        if len(verdict.path) == 2:
            found.append(token)
    return found


def test_thresholds_by_hand():
    rule = Typical(*DEFAULTS)
    law = torch.tensor([0.6, 0.25, 0.1, 0.05], dtype=torch.float64)
    entropy = -sum(p * math.log(p) for p in law.tolist())
    assert entropy == pytest.approx(1.03311, abs=1e-5)
    assert 0.3 * math.exp(-entropy) == pytest.approx(0.10677, abs=1e-5)
    assert rule.threshold(law) == 0.09
    uniform = torch.full((100,), 0.01, dtype=torch.float64)
    assert rule.threshold(uniform) == pytest.approx(0.003)
    certain = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert rule.threshold(certain) == 0.09


def test_tokens_above_the_threshold_are_accepted():
    assert accepted((0.6, 0.25, 0.1, 0.05)) == [0, 1, 2]
    assert accepted((0.97, 0.01, 0.01, 0.01)) == [0]
    assert accepted((0.01,) * 100, tokens=[0, 50, 99]) == [0, 50, 99]


def test_the_longest_path_wins_and_then_the_likelier_one():
    #      0 -> 1 (.3) -> 3 (.5)
    #        -> 2 (.6) -> 4 (.01)
    tree = TokenTree((0, 1, 2, 3, 4), (-1, 0, 0, 1, 2))
    root = (0.05, 0.3, 0.6, 0.03, 0.02)
    below_1 = (0.1, 0.1, 0.1, 0.5, 0.2)
    below_2 = (0.95, 0.01, 0.02, 0.01, 0.01)
    rows = rows_of(tree, root, below_1, below_2, root, root)
    assert Typical(*DEFAULTS).verify(Proposal(tree), rows, Noise(1)).path == (0, 1, 3)
    # With both long, .3 * .5 against .6 * .2.
    below_2 = (0.5, 0.1, 0.1, 0.1, 0.2)
    rows = rows_of(tree, root, below_1, below_2, root, root)
    assert Typical(*DEFAULTS).verify(Proposal(tree), rows, Noise(1)).path == (0, 1, 3)
    below_2 = (0.4, 0.1, 0.1, 0.1, 0.3)
    rows = rows_of(tree, root, below_1, below_2, root, root)
    assert Typical(*DEFAULTS).verify(Proposal(tree), rows, Noise(1)).path == (0, 2, 4)


def test_nothing_is_reached_through_a_token_that_is_not_accepted():
    tree = TokenTree.chain(0, [1, 0])
    rows = rows_of(tree, (0.99, 0.01), (0.9, 0.1), (0.5, 0.5))
    assert Typical(*DEFAULTS).verify(Proposal(tree), rows, Noise(1)).path == (0,)


def test_without_drafts_it_draws_like_plain_sampling():
    tree = TokenTree.root_only(0)
    for seed in range(50):
        rows = rows_of(tree, (0.2, 0.3, 0.5))
        mine = Typical(*DEFAULTS).verify(Proposal(tree), rows, Noise(seed))
        assert mine == Match().verify(Proposal(tree), rows, Noise(seed))


@pytest.mark.parametrize("seed", range(20))
def test_raising_a_threshold_never_lengthens_the_path(seed):
    rng = np.random.default_rng(seed)
    drafter = GarbageDrafter(seed, 5)
    drafter.reset([0])
    tree = drafter.propose([0], DraftBudget(20, 6)).candidates
    laws = [tuple(rng.dirichlet(np.ones(5))) for _ in range(len(tree))]
    rows = rows_of(tree, *laws)

    def length(epsilon, delta):
        return len(Typical(epsilon, delta).verify(Proposal(tree), rows, Noise(seed)).path)

    values = (0.01, 0.05, 0.1, 0.3, 0.6, 1.0)
    by_epsilon = [length(value, 0.4) for value in values]
    by_delta = [length(0.4, value) for value in values]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert by_delta == sorted(by_delta, reverse=True)


def test_it_says_that_it_is_lossy_and_is_bypassed_at_temperature_zero():
    assert not SAMPLING.is_lossless
    greedy = parse_sampling("verification=typical")
    view = random_view(3, 6)
    (typical,) = generate(
        view, [[1]], [GarbageDrafter(1, 6)], max_new_tokens=20, eos_ids=(), sampling=greedy
    )
    (plain,) = generate(view, [[1]], [GarbageDrafter(1, 6)], max_new_tokens=20, eos_ids=())
    assert (typical.token_ids, typical.trace) == (plain.token_ids, plain.trace)
