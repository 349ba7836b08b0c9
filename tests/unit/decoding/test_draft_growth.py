"""Trees written with a draft model, against worked examples and an exhaustive reference."""

import itertools
import math

import numpy as np
import pytest
import torch

from specdec_core.config.model_drafters import DraftTree
from specdec_core.config.sampling import Sampling
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.draft_session import DraftSession
from specdec_core.decoding.drafter import DraftBudget
from tests.doubles import ScriptedView, path_tokens, random_view

AMPLE = DraftBudget(10_000, 100)


class TableView(ScriptedView):
    """A draft whose probabilities after each path are given, and who notes the nodes it runs.

    What is left of 1 is spread over the unlisted tokens; paths are those behind the sequence
    [0, 0].
    """

    def __init__(self, table, vocab_size, **options):
        self.passes = []

        def logits_after(context):
            chances = table.get(tuple(context[2:]), {})
            num_rest = max(1, vocab_size - len(chances))
            rest = max(1e-30, (1.0 - sum(chances.values())) / num_rest)
            return [math.log(chances.get(token, rest)) for token in range(vocab_size)]

        super().__init__(logits_after, vocab_size, **options)

    def forward(self, trees, cache):
        self.passes.append(len(trees[0]))
        return super().forward(trees, cache)

    def extend(self, trees, cache):
        logits = super().extend(trees, cache)
        self.passes.append(logits.shape[1])
        return logits


def write(view, growth, budget=AMPLE, *, choice="greedy", sampling=None, vocab_size=None, eos=()):
    writer = DraftWriter(
        DraftSession(view),
        growth,
        choice,
        sampling=sampling or Sampling(),
        vocab_size=vocab_size or view.vocab_size,
        eos_ids=eos,
    )
    writer.reset([0], 0)
    writer.session.reset([0])
    return writer.write([0, 0], budget)


def paths(proposal):
    tree = proposal.candidates
    return [tuple(path_tokens(tree, node)[1:]) for node in range(1, len(tree))]


STATIC = {
    (): {11: 0.6, 12: 0.4},
    (11,): {13: 0.9, 14: 0.1},
    (12,): {15: 0.5, 16: 0.5},
}


def test_the_static_tree_of_the_worked_example():
    """Scores 11 .6, 12 .4, 13 .54, 14 .06, 15 .2, 16 .2: the tie goes to the node made first."""
    view = TableView(STATIC, 17)
    found = write(view, Growth((2, 2), 4))
    assert paths(found) == [(11,), (12,), (11, 13), (12, 15)]
    assert not found.sampled
    assert view.passes == [2, 2]  # the lag of two, then the level of two
    assert paths(write(view, Growth((2, 2), 99))) == [
        (11,), (12,), (11, 13), (11, 14), (12, 15), (12, 16),
    ]  # fmt: skip


A, B, C, D, E, F, G, H, I, J = range(1, 11)  # noqa: E741 - the names of the example
DYNAMIC = {
    (): {A: 0.6, B: 0.3},
    (A,): {C: 0.7, D: 0.2},
    (B,): {E: 0.9, F: 0.05},
    (A, C): {G: 0.5, H: 0.4},
    (B, E): {I: 0.8, J: 0.1},
}


def test_the_dynamic_tree_of_the_worked_example():
    """Scores a .6, b .3, ac .42, ad .12, be .27, bf .015, acg .21, ach .168, bei .216, bej .027."""
    view = TableView(DYNAMIC, 100)
    found = write(view, Growth((2, 2, 2), 5, width=2))
    assert paths(found) == [(A,), (B,), (A, C), (B, E), (B, E, I)]
    assert view.passes == [2, 2, 2]
    every = write(view, Growth((2, 2, 2), 99, width=2))
    assert len(every.candidates) - 1 == 2 + 2 * 4  # K + D K^2


def test_what_cannot_be_offered_is_not_run():
    """Two nodes: b (.3) is run with a, but in the end ac (.42) takes its place."""
    view = TableView(DYNAMIC, 100)
    assert paths(write(view, Growth((2, 2, 2), 2, width=2))) == [(A,), (A, C)]
    assert view.passes == [2, 2]  # (a, b); then depth is cut to the two nodes there can be


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_nodes", [1, 3, 7, 30])
def test_a_static_tree_is_the_best_of_all_its_nodes(seed, num_nodes):
    view = random_view(seed, 6, order=3, has_ties=seed % 2 == 0)
    levels = (3, 2, 2)
    scored, level = {}, {(): 0.0}
    for num in levels:
        following = {}
        for path, score in level.items():
            log_probs = torch.tensor(view.logits_after([0, 0, *path])).double().log_softmax(-1)
            order = sorted(range(6), key=lambda token: (-float(log_probs[token]), token))
            following |= {(*path, t): score + float(log_probs[t]) for t in order[:num]}
        scored |= following
        level = following
    order = sorted(range(len(scored)), key=lambda i: (-round(list(scored.values())[i], 9), i))
    expected = [list(scored)[index] for index in sorted(order[:num_nodes])]
    assert paths(write(view, Growth(levels, num_nodes))) == expected


def test_the_paper_tree_loses_eight_of_its_nodes():
    """Flat likelihoods: nodes go in the order they were made, 4 + 12 + 24 * 5 = 136 in all."""
    table = {path: dict.fromkeys(range(4), 0.25) for d in range(7) for path in every_path(d)}
    view = TableView(table, 4)
    config = DraftTree(model="x")
    full = write(view, Growth(config.levels, 136))
    assert [full.candidates.depths.count(depth) for depth in range(1, 8)] == [4, 12, *[24] * 5]
    view.passes.clear()
    offered = write(view, Growth(config.levels, config.most_nodes))
    assert paths(offered) == paths(full)[:128]
    assert view.passes == [2, 4, 12, 24, 24, 24, 24]


def every_path(depth):
    return itertools.product(range(4), repeat=depth) if depth < 4 else flat_paths(depth)


def flat_paths(depth):
    """Paths below the third level only ever take the lowest id."""
    return [(*head, *[0] * (depth - 3)) for head in itertools.product(range(4), repeat=3)]


def test_a_sure_child_never_outlives_its_parent():
    """In bfloat16 a child's log-probability rounds to 0 and ties with the parent's score."""
    table = {(): {1: 0.5, 2: 0.5}, (1,): {3: 1.0}, (2,): {4: 1.0}, (1, 3): {5: 1.0}}
    view = TableView(table, 6, dtype=torch.bfloat16)
    for num_nodes in range(1, 6):
        tree = write(view, Growth((2, 1, 1), num_nodes)).candidates
        assert tree.num_drafted == num_nodes
    assert paths(write(view, Growth((2, 1, 1), 3))) == [(1,), (2,), (1, 3)]


@pytest.mark.parametrize(
    ("budget", "context", "depth"),
    [
        (DraftBudget(9, 2), 64, 2),
        (DraftBudget(3, 9), 64, 3),
        (DraftBudget(0, 9), 64, 0),
        (DraftBudget(9, 0), 64, 0),
        (DraftBudget(9, 9), 4, 3),  # positions 2 and 3 are left, and one token needs none
        (DraftBudget(9, 9), 2, 1),
        (DraftBudget(9, 9), 1, 0),
    ],
)
def test_a_chain_ends_with_budget_and_context(budget, context, depth):
    view = ScriptedView(lambda _: [0.0, 1.0], 2, max_positions=context)
    tree = write(view, Growth.chain(5), budget).candidates
    assert tree.tokens == (0, *[1] * depth)


def test_a_chain_ends_behind_an_unlikely_token_and_behind_the_end():
    table = {(): {1: 0.9}, (1,): {2: 0.3, 3: 0.25}, (1, 2): {4: 0.9}, (1, 2, 4): {5: 0.9}}
    view = TableView(table, 6)
    assert paths(write(view, Growth.chain(4)))[-1] == (1, 2, 4, 5)
    assert paths(write(view, Growth.chain(4, 0.29)))[-1] == (1, 2, 4, 5)
    assert paths(write(view, Growth.chain(4, 0.31)))[-1] == (1, 2)
    assert paths(write(view, Growth.chain(4), eos={4}))[-1] == (1, 2, 4)
    assert paths(write(view, Growth((2, 2), 9), eos={1}))[-1][0] != 1


def test_ids_that_the_target_lacks_are_never_drafted():
    table = {(): {5: 0.8, 1: 0.2}, (1,): {5: 0.9, 2: 0.1}}
    view = TableView(table, 6)
    assert paths(write(view, Growth.chain(2), vocab_size=5)) == [(1,), (1, 2)]
    assert paths(write(view, Growth.chain(2), vocab_size=9))[-1][0] == 5


WARM = Sampling(temperature=0.8, top_k=3)


def test_drawn_children_carry_the_distribution_they_were_drawn_from():
    view = random_view(3, 6, order=2)
    found = write(view, Growth((3, 2), 9), choice="sample", sampling=WARM)
    tree = found.candidates
    assert sorted(found.sampled) == [n for n in range(len(tree)) if tree.children(n)]
    for node, drawn in found.sampled.items():
        assert sorted(tree.children(node).values()) == list(drawn.order)
        row = np.asarray(view.logits_after([0, 0, *path_tokens(tree, node)[1:]])) / 0.8
        kept = np.where(row >= np.sort(row)[-3], np.exp(row), 0.0)
        np.testing.assert_allclose(drawn.distribution.numpy(), kept / kept.sum(), rtol=1e-12)
    again = write(view, Growth((3, 2), 9), choice="sample", sampling=WARM)
    assert again == found


def test_the_node_limit_of_drawn_trees_is_kept_before_drawing():
    """Six of 3 + 6 nodes: the three children left go to the likeliest of the first level."""
    view = random_view(3, 6, order=2)
    full = write(view, Growth((3, 2), 9), choice="sample", sampling=WARM)
    found = write(view, Growth((3, 2), 6), choice="sample", sampling=WARM)
    assert paths(found)[:3] == paths(full)[:3]
    chances = {
        node: full.sampled[0].distribution[full.candidates.tokens[node]] for node in (1, 2, 3)
    }
    first, second, third = sorted(chances, key=lambda node: -float(chances[node]))
    assert [len(found.candidates.children(node)) for node in (first, second, third)] == [2, 1, 0]
    assert found.sampled[second].order == tuple(found.candidates.children(second).values())


def test_draws_have_the_law_of_their_distribution():
    """First and second draw of the root's children, 4000 seeds, against exact probabilities."""
    chances = {1: 0.5, 2: 0.3, 3: 0.2}
    view = TableView({(): chances}, 4)
    writer = DraftWriter(
        DraftSession(view),
        Growth((2,), 2),
        "sample",
        sampling=Sampling(temperature=1.0),
        vocab_size=4,
        eos_ids=(),
    )
    counts = dict.fromkeys(itertools.permutations((1, 2, 3), 2), 0)
    for seed in range(4000):
        writer.reset([0], seed)
        writer.session.reset([0])
        counts[writer.write([0, 0], AMPLE).candidates.tokens[1:]] += 1
    statistic = 0.0
    for (first, second), count in counts.items():
        expected = 4000 * chances[first] * chances[second] / (1 - chances[first])
        statistic += (count - expected) ** 2 / expected
    assert statistic < 20.515  # 5 degrees of freedom, chance 0.001


def test_a_greedy_target_is_drafted_for_greedily():
    view = random_view(1, 6)
    expected = write(view, Growth((3, 2), 9))
    for choice in ("sample", "coupled"):
        assert write(view, Growth((3, 2), 9), choice=choice) == expected


def test_penalties_look_at_the_path_of_each_node():
    """The draft always likes token 1 best, but not again once it is on the path."""
    view = ScriptedView(lambda _: [0.0, 3.0, 2.0, 1.0], 4)
    sampling = Sampling(presence_penalty=2.5)
    found = write(view, Growth.chain(4), sampling=sampling)
    # 1 falls to 0.5, then 2 to -0.5, then 3 to -1.5; the second 0 was written already: -2.5.
    assert found.candidates.tokens[1:] == (1, 2, 3, 1)
