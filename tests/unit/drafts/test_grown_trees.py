"""Trees that the options of trained drafters ask for, against worked examples."""

from __future__ import annotations

import math

import pytest
import torch

from specdec_core.config.learned_drafters import Eagle
from specdec_core.decoding import DraftBudget, DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from tests.doubles import path_tokens, random_view

VOCAB_SIZE = 30
A, B, C, D, E, F, G, H, I, J = range(1, 11)  # noqa: E741 - the names of the example
DYNAMIC = {
    (): {A: 0.6, B: 0.3},
    (A,): {C: 0.7, D: 0.2},
    (B,): {E: 0.9, F: 0.05},
    (A, C): {G: 0.5, H: 0.4},
    (B, E): {I: 0.8, J: 0.1},
}
STATIC = {
    (): {11: 0.6, 12: 0.4},
    (11,): {13: 0.9, 14: 0.1},
    (12,): {15: 0.5, 16: 0.5},
}


class TableSession:
    """A session whose probabilities behind each path are given; it notes what it runs."""

    def __init__(self, table):
        self._table = table
        self.levels = []

    def max_depth(self, sequence):
        return 99

    def begin(self, sequence):
        self._paths = [()]
        self.levels = [1]
        return self._row(())

    def extend(self, tokens, parents):
        paths = [
            (*self._paths[parent], token) for parent, token in zip(parents, tokens, strict=True)
        ]
        self._paths += paths
        self.levels.append(len(paths))
        return torch.stack([self._row(path) for path in paths])

    def _row(self, path):
        chances = self._table.get(path, {})
        rest = max(1e-30, (1.0 - sum(chances.values())) / (VOCAB_SIZE - len(chances)))
        row = [math.log(chances.get(token, rest)) for token in range(VOCAB_SIZE)]
        return torch.tensor(row, dtype=torch.float64)


def written(table, **options):
    """Return the paths of the proposal for one root, and the number of nodes run per level."""
    config, session = Eagle(model="x", **options), TableSession(table)
    context = DrafterContext(view=random_view(0, VOCAB_SIZE))
    writer = DraftWriter.over(session, Growth.learned(config), config, context)
    writer.reset([0], 0)
    tree = writer.write([0, 0], DraftBudget(1000, 100)).candidates
    return [tuple(path_tokens(tree, node)[1:]) for node in range(1, len(tree))], session.levels


def test_the_dynamic_tree_of_the_worked_example():
    """Scores a .6, b .3, ac .42, ad .12, be .27, bf .015, acg .21, ach .168, bei .216, bej .027."""
    found, levels = written(DYNAMIC, top_k=2, depth=2, num_nodes=5)
    assert found == [(A,), (B,), (A, C), (B, E), (B, E, I)]
    assert levels == [1, 2, 2]


def test_the_static_tree_of_the_worked_example():
    """Scores 11 .6, 12 .4, 13 .54, 14 .06, 15 .2, 16 .2: the tie goes to the node made first."""
    found, _ = written(STATIC, shape="static", branching=(2, 2), num_nodes=4)
    assert found == [(11,), (12,), (11, 13), (12, 15)]


@pytest.mark.parametrize(("least", "longest"), [(0.0, 3), (0.55, 3), (0.65, 1)])
def test_a_chain_goes_on_behind_likely_tokens_alone(least, longest):
    """a .6, then c .7, then g .5: what is less likely than asked for gets no children."""
    found, _ = written(DYNAMIC, shape="chain", gamma=3, min_confidence=least)
    assert found == [(A,), (A, C), (A, C, G)][:longest]
