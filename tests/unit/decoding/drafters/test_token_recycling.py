"""Token Recycling: the worked look-up, what is learned, and the shapes."""

import pytest

from specdec_core.config.drafters import TokenRecycling
from specdec_core.decoding import DraftBudget, DrafterContext, StepOutcome, make_drafter
from specdec_core.decoding.drafters.token_recycling import TokenRecyclingDrafter, recycling_tree
from specdec_core.tree import StaticTree, TokenTree

WIDE = DraftBudget(1024, 64)
ROWS = {7: [3, 5, 9], 3: [5, 7, 2], 5: [2, 3, 7]}


class Shaped(TokenRecyclingDrafter):
    """The drafter with a shape written by hand."""

    def __init__(self, config, shape):
        super().__init__(config, DrafterContext())
        self._shape = shape


def learned(rows=ROWS, **options):
    shape = StaticTree.of([(0,), (1,), (0, 0), (0, 1), (0, 0, 0)])
    drafter = Shaped(TokenRecycling(**options), shape)
    drafter.reset([1])
    drafter.observe(StepOutcome(None, (), (0,), tuple(rows), list(rows.values())))
    return drafter


def depth_counts(tree):
    return tuple(tree.depths.count(depth) for depth in range(1, max(tree.depths) + 1))


def test_successors_are_looked_up_breadth_first():
    tree = learned().propose([1, 7], WIDE).candidates
    assert tree == TokenTree((7, 3, 5, 5, 7, 2), (-1, 0, 0, 1, 1, 3))


def test_tokens_never_seen_have_no_children():
    assert learned().propose([8], WIDE).candidates == TokenTree.root_only(8)
    partly = learned({7: [3, 5]}).propose([7], WIDE).candidates
    assert partly == TokenTree((7, 3, 5), (-1, 0, 0))
    # The second child hangs below a node that has moved up.
    shifted = learned({7: [4, 3], 3: [9]})
    shifted._shape = StaticTree.of([(0,), (1,), (0, 0), (1, 0)])
    assert shifted.propose([7], WIDE).candidates == TokenTree((7, 4, 3, 9), (-1, 0, 0, 2))


def test_ranks_beyond_a_short_row_are_left_out():
    assert learned({7: [3]}).propose([7], WIDE).candidates == TokenTree.chain(7, [3])


def test_the_budget_cuts_by_depth_and_by_nodes():
    drafter = learned()
    assert drafter.propose([7], DraftBudget(9, 1)).candidates == TokenTree((7, 3, 5), (-1, 0, 0))
    assert drafter.propose([7], DraftBudget(3, 9)).candidates == TokenTree(
        (7, 3, 5, 5), (-1, 0, 0, 1)
    )
    assert drafter.propose([7], DraftBudget(0, 0)).candidates == TokenTree.root_only(7)


def test_the_last_row_of_a_token_counts():
    drafter = learned()
    drafter.observe(StepOutcome(None, (), (0,), (7, 3, 7), [[1], [2], [4]]))
    assert drafter.propose([7], WIDE).candidates == TokenTree.chain(7, [4])
    drafter.observe(StepOutcome(None, (), (0,), (4,), [[6]]))
    assert drafter.propose([7], WIDE).candidates == TokenTree.chain(7, [4, 6])


@pytest.mark.parametrize(("scope", "is_kept"), [("prompt", False), ("run", True)])
def test_state_lives_as_long_as_its_scope(scope, is_kept):
    drafter = learned(state_scope=scope)
    drafter.reset([2])
    assert (drafter.propose([7], WIDE).candidates.num_drafted > 0) == is_kept


def test_a_prompts_bigrams_come_before_what_is_known_the_last_time_first():
    drafter = learned(prompt_bigrams=True, state_scope="run", top_k=3)
    drafter.reset([7, 5, 7, 4, 7, 5, 8])
    # 7 was followed by 5, then 4, then 5; known of it were 3, 5, 9. 5 was followed by 7, then 8.
    assert drafter.propose([7], DraftBudget(9, 1)).candidates == TokenTree((7, 5, 4), (-1, 0, 0))
    assert drafter._successors == {7: (5, 4, 3), 5: (8, 7, 2), 4: (7,), 3: [5, 7, 2]}


def test_rankings_replace_a_prompts_bigrams():
    drafter = learned(prompt_bigrams=True)
    drafter.reset([7, 5])
    assert drafter._successors == {7: (5,)}
    drafter.observe(StepOutcome(None, (), (0,), (7,), [[1, 2]]))
    assert drafter.propose([7], WIDE).candidates == TokenTree((7, 1, 2), (-1, 0, 0))


def test_prompts_are_not_learned_from_unless_asked_for():
    drafter = learned()
    drafter.reset([7, 5, 7])
    assert drafter.propose([7], WIDE).candidates == TokenTree.root_only(7)


def test_needs_follow_the_options():
    needs = make_drafter(TokenRecycling(top_k=4, num_nodes=12, update="path")).needs
    assert (needs.max_nodes, needs.rows, needs.top_k) == (12, "path", 4)


def test_the_papers_budget_has_the_papers_depth_counts():
    assert depth_counts(recycling_tree(8, 80, 6)) == (8, 21, 25, 15, 8, 3)
    # With more successors the first depth still holds the eight best.
    assert recycling_tree(16, 80, 6) == recycling_tree(8, 80, 6)


def test_the_rank_chances_give_nearly_the_papers_shape_by_themselves():
    # 81 nodes is not the paper's budget, so the best tree is built.
    profile = depth_counts(recycling_tree(8, 81, 6))
    assert sum(profile) == 81
    assert sum(abs(a - b) for a, b in zip(profile, (8, 21, 25, 15, 8, 3), strict=True)) <= 9


@pytest.mark.parametrize("num_nodes", [1, 4, 12, 40, 79, 256])
@pytest.mark.parametrize("top_k", [1, 3, 8])
@pytest.mark.parametrize("max_depth", [1, 6])
def test_other_budgets_are_used_up_as_far_as_there_are_nodes(num_nodes, top_k, max_depth):
    tree = recycling_tree(top_k, num_nodes, max_depth)
    available = sum(top_k**depth for depth in range(1, max_depth + 1))
    assert len(tree.parents) - 1 == min(num_nodes, available)
    assert max(tree.depths) <= max_depth
    assert max(tree.ranks) < top_k
    assert list(tree.depths) == sorted(tree.depths)
    assert all(parent < node for node, parent in enumerate(tree.parents))
