"""Greedy verification on the worked example."""

from specdec_core.decoding.verify import follow, match_greedy
from specdec_core.tree import TokenTree

TREE = TokenTree((10, 11, 12, 13, 14, 15, 16), (-1, 0, 0, 1, 1, 2, 3))


def test_the_targets_own_path_is_accepted_with_a_bonus():
    choices = {0: 11, 1: 13, 3: 16, 6: 42}
    assert match_greedy(TREE, [choices.get(node, 99) for node in range(7)]) == ((0, 1, 3, 6), 42)


def test_a_choice_that_was_not_drafted_is_the_bonus():
    assert match_greedy(TREE, [99] * 7) == ((0,), 99)


def test_a_token_of_another_branch_is_not_accepted():
    # 15 is a child of 12, not of 11.
    assert match_greedy(TREE, [11, 15, 15, 0, 0, 0, 0]) == ((0, 1), 15)


def test_the_root_alone_commits_the_targets_choice():
    assert match_greedy(TokenTree.root_only(3), [7]) == ((0,), 7)


def test_follow_stops_at_the_end_of_the_continuation_or_the_tree():
    assert follow(TREE, [11, 13]) == (0, 1, 3)
    assert follow(TREE, [11, 13, 16, 42]) == (0, 1, 3, 6)
    assert follow(TREE, [12, 99]) == (0, 2)
    assert follow(TREE, []) == (0,)
