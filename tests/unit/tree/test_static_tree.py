"""Static tree shapes: optimal for small budgets by brute force, and always closed."""

from itertools import combinations, product

import pytest

from specdec_core.errors import ConfigError
from specdec_core.tree import StaticTree, best_static_tree, profile_static_tree

# Rank 1 at depth 2 is better than rank 0 there: ranks need not fall.
TABLE = [[0.6, 0.3], [0.2, 0.5], [0.9, 0.05]]


def expected_accepted_tokens(tree: StaticTree, acceptance) -> float:
    """Sum over draft nodes of the product of chances along their paths."""
    chances = [1.0]
    for node in range(1, len(tree.parents)):
        chance = acceptance[tree.depths[node] - 1][tree.ranks[node]]
        chances.append(chances[tree.parents[node]] * chance)
    return sum(chances[1:])


def depth_counts(tree: StaticTree) -> tuple[int, ...]:
    return tuple(tree.depths.count(depth) for depth in range(1, max(tree.depths) + 1))


def every_closed_tree(num_ranks: int, max_depth: int, num_nodes: int):
    paths = [p for d in range(1, max_depth + 1) for p in product(range(num_ranks), repeat=d)]
    for chosen in combinations(paths, num_nodes):
        if all(len(path) == 1 or path[:-1] in chosen for path in chosen):
            yield StaticTree.of(chosen)


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 4, 5])
def test_no_closed_tree_of_the_same_size_expects_more(num_nodes):
    best = max(
        expected_accepted_tokens(tree, TABLE)
        for tree in every_closed_tree(2, len(TABLE), num_nodes)
    )
    tree = best_static_tree(TABLE, num_nodes)
    assert len(tree.parents) == num_nodes + 1
    assert expected_accepted_tokens(tree, TABLE) == pytest.approx(best, abs=1e-12)


def test_no_closed_tree_of_eight_nodes_expects_more():
    table = [[0.5, 0.3, 0.2], [0.4, 0.3, 0.1]]
    best = max(expected_accepted_tokens(tree, table) for tree in every_closed_tree(3, 2, 8))
    assert expected_accepted_tokens(best_static_tree(table, 8), table) == pytest.approx(best)


def test_expectation_is_the_sum_of_path_products():
    tree = StaticTree.of([(0,), (1,), (0, 1), (0, 1, 0)])
    # 0.6 + 0.3 + 0.6 * 0.5 + 0.6 * 0.5 * 0.9
    assert expected_accepted_tokens(tree, TABLE) == pytest.approx(1.47)
    assert tree == StaticTree((-1, 0, 0, 1, 3), (-1, 0, 1, 1, 0), (0, 1, 1, 2, 3))
    assert depth_counts(tree) == (2, 1, 1)


def test_a_small_table_gives_all_its_nodes_and_no_more():
    assert depth_counts(best_static_tree([[0.5, 0.5]], 10)) == (2,)
    assert best_static_tree([], 10) == StaticTree((-1,), (-1,), (0,))


def test_certain_children_do_not_come_before_their_parents():
    tree = best_static_tree([[1.0, 1.0]] * 3, 6)
    assert depth_counts(tree) == (2, 4)


def test_a_profile_fixes_the_counts_per_depth():
    tree = profile_static_tree(TABLE, (2, 3, 1))
    assert depth_counts(tree) == (2, 3, 1)
    # Depth 2 products: 01 .30, 11 .15, 00 .12, 10 .06; depth 3: 010 .27 is the largest.
    assert tree == StaticTree.of([(0,), (1,), (0, 1), (1, 1), (0, 0), (0, 1, 0)])


def test_orphans_and_repeats_are_refused():
    with pytest.raises(ConfigError, match="no parent path"):
        StaticTree.of([(0,), (1, 0)])
    with pytest.raises(ConfigError, match="repeats"):
        StaticTree.of([(0,), (0,)])


def test_chances_outside_the_unit_interval_are_refused():
    with pytest.raises(ConfigError, match=r"\[1\.5\]: chances are in"):
        best_static_tree([[1.5]], 1)
    with pytest.raises(ConfigError, match="chances"):
        profile_static_tree([[float("nan")]], (1,))
