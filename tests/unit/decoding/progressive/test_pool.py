"""The draft pool: the merge operator on the worked examples, bounds, and confirmation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.decoding.progressive.pool import DraftPool
from tests.unit.decoding.progressive.notation import (
    merged,
    paths,
    read,
    show,
    sub_trees,
    write,
)


def pool_of(*trees, **bounds):
    """Return a pool with the paths of these trees merged in, one tree after the other."""
    pool = DraftPool(**bounds)
    for tree in trees:
        add(pool, read(tree))
    return pool


def add(pool, tree):
    for path in paths(tree):
        if len(path) > 1:
            pool.add(path)


def shown(pool, token):
    node = pool.find([token])
    return None if node is None else show(node)


A, B = "7(3(9) 5)", "7(3(2) 8(1))"


def test_the_worked_merges():
    assert shown(pool_of(A, B), 7) == "7(3(9 2) 5 8(1))"
    assert shown(pool_of(B, A), 7) == "7(3(2 9) 8(1) 5)"
    assert write(merged(read(A), read(B))) == "7(3(9 2) 5 8(1))"
    assert len(pool_of(A, B)) == 6


def test_all_sub_trees_of_the_worked_example():
    pool = DraftPool()
    for path in paths(read("7(3(9(4) 7(3(2))))")):
        if len(path) > 1:
            pool.add_suffixes(path)
    assert shown(pool, 7) == "7(3(9(4) 7(3(2)) 2))"
    assert shown(pool, 3) == "3(9(4) 7(3(2)) 2)"
    assert shown(pool, 9) == "9(4)"
    assert shown(pool, 4) is shown(pool, 2) is None
    assert len(pool) == 7 + 6 + 1


@st.composite
def trees(draw, root=0):
    tree = (root, [])
    for path in draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=6)):
        chain = (path[-1], [])
        for token in path[-2::-1]:
            chain = (token, [chain])
        tree = merged(tree, (root, [chain]))
    return tree


@given(trees(), trees(), trees())
def test_merging_is_idempotent_associative_and_as_paths_commutative(a, b, c):
    assert merged(a, a) == a
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert set(paths(merged(a, b))) == set(paths(merged(b, a))) == {*paths(a), *paths(b)}


@given(st.lists(trees(), min_size=1, max_size=3))
def test_adding_paths_is_the_merge_of_their_trees_in_the_same_order(several):
    pool, expected = DraftPool(), (0, [])
    for tree in several:
        add(pool, tree)
        expected = merged(expected, tree)
    node = pool.find([0])
    assert (show(node) if node else "0") == write(expected)
    assert len(pool) == sum(1 for _ in paths(expected)) - 1


@given(trees())
def test_suffixes_of_all_paths_are_the_merge_of_all_sub_trees(tree):
    pool, expected = DraftPool(), {}
    for path in paths(tree):
        pool.add_suffixes(path)
    for sub_tree in sub_trees(tree):
        token = sub_tree[0]
        expected[token] = merged(expected.get(token, (token, [])), sub_tree)
    for token, wanted in expected.items():
        node = pool.find([token])
        found = {(token,)} if node is None else set(paths(read(show(node))))
        assert found == set(paths(wanted))


def test_a_tree_above_its_bound_loses_its_oldest_branches():
    pool = pool_of("7(1(2 3) 4 5)", key_nodes=5)
    assert shown(pool, 7) == "7(1(2 3) 4 5)"
    pool.add([7, 4, 6])
    assert shown(pool, 7) == "7(4(6) 5)"
    assert len(pool) == 3


def test_one_branch_may_not_be_enough():
    # Ten nodes at once: the path is one branch, the older ones are all in its way.
    pool = pool_of("7(1 2 3)", key_nodes=5)
    pool.add([7, 4, 4, 4])
    assert shown(pool, 7) == "7(2 3 4(4(4)))"
    pool.add([7, 5, 5, 5])
    assert shown(pool, 7) == "7(5(5(5)))"


def test_a_single_branch_loses_what_is_oldest_inside_it():
    pool = pool_of("7(1(2 3))", key_nodes=3)
    pool.add([7, 1, 4])
    assert shown(pool, 7) == "7(1(3 4))"
    chain = pool_of("7(1(2(3)))", key_nodes=3)
    chain.add([7, 1, 2, 3, 4])
    assert shown(chain, 7) == "7(1(2(3)))"


def test_the_release_drops_one_branch_per_merge():
    pool = pool_of("7(1 2 3)", key_nodes=3, is_single_drop=True)
    pool.add([7, 4, 4, 4])
    assert shown(pool, 7) == "7(2 3 4(4(4)))"
    assert len(pool) == 5
    single = pool_of("7(1(2))", key_nodes=2, is_single_drop=True)
    single.add([7, 1, 3])
    assert len(single) == 0
    assert shown(single, 7) == "7"


def test_the_trees_not_added_to_for_longest_go_first():
    pool = pool_of("1(2)", "3(4)", "5(6)", pool_nodes=3)
    pool.add([1, 7])
    assert (shown(pool, 1), shown(pool, 3), shown(pool, 5)) == ("1(2 7)", None, "5(6)")
    assert len(pool) == 3
    pool.confirm([5, 8])
    assert (shown(pool, 1), shown(pool, 5)) == (None, "5(6 8)")


def test_clearing_forgets_everything():
    pool = pool_of(A)
    pool.clear()
    assert (len(pool), shown(pool, 7)) == (0, None)


def test_confirmed_text_moves_behind_its_siblings_and_counts():
    pool = pool_of("7(3(9) 5)")
    pool.confirm([4, 7, 3])
    assert shown(pool, 7) == "7(5 3(9))"
    assert shown(pool, 4) == "4(7(3))"
    root, hit, miss = pool.find([7]), pool.find([7, 3]), pool.find([7, 5])
    assert (root.tries, hit.hits, miss.hits) == (1, 1, 0)
    assert (hit.stamp, miss.stamp) == (1, 0)
    pool.confirm([7, 3, 2])
    # The edge 7 to 3 was counted when 3 was the last token.
    assert (root.tries, hit.hits, hit.tries) == (1, 1, 1)
    assert pool.find([7, 3, 2]).born == 0
    pool.confirm([7, 6])
    assert (root.tries, pool.find([7, 6]).born, pool.find([7, 6]).hits) == (2, 1, 1)


@pytest.mark.parametrize("path", [[7, 9], [8], [7, 3, 9, 9, 9]])
def test_absent_paths_are_none(path):
    assert pool_of(A).find(path) is None


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), min_size=2, max_size=5))),
    st.integers(0, 6),
    st.integers(0, 12),
    st.booleans(),
)
def test_the_pool_counts_its_nodes_and_keeps_its_bounds(ops, key_nodes, pool_nodes, is_single):
    pool = DraftPool(key_nodes, pool_nodes, is_single_drop=is_single)
    for is_confirmed, path in ops:
        (pool.confirm if is_confirmed else pool.add_suffixes)(path)
    sizes = [node.size() for node in map(pool.find, ([token] for token in range(4))) if node]
    assert len(pool) == sum(sizes)
    if key_nodes and not is_single:
        assert max(sizes, default=0) <= key_nodes
    if pool_nodes:
        assert len(pool) <= pool_nodes
