"""Retrieval: order, context, and bounds."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.decoding.progressive.pool import DraftPool
from specdec_core.decoding.progressive.retrieval import retrieve
from specdec_core.tree import TokenTree
from tests.unit.decoding.progressive.notation import paths, read


def pool_of(*trees):
    pool = DraftPool()
    for tree in trees:
        for path in paths(read(tree)):
            if len(path) > 1:
                pool.add(path)
    return pool


def found(pool, suffix, *, max_nodes=99, max_depth=99, is_likely_first=False):
    return retrieve(
        pool, suffix, max_nodes=max_nodes, max_depth=max_depth, is_likely_first=is_likely_first
    )


def test_the_papers_retrieval_is_the_tree_of_the_last_token():
    pool = pool_of("7(3(9 2) 5 8(1))")
    assert found(pool, [7]) == TokenTree((7, 3, 5, 8, 9, 2, 1), (-1, 0, 0, 0, 1, 1, 3))
    assert found(pool, [4]) == TokenTree.root_only(4)


def test_bounds_cut_level_by_level():
    pool = pool_of("7(3(9 2) 5 8(1))")
    assert found(pool, [7], max_nodes=4) == TokenTree((7, 3, 5, 8, 9), (-1, 0, 0, 0, 1))
    assert found(pool, [7], max_depth=1) == TokenTree((7, 3, 5, 8), (-1, 0, 0, 0))
    for bounds in ({"max_nodes": 0}, {"max_depth": 0}):
        assert found(pool, [7], **bounds) == TokenTree.root_only(7)


def test_the_likeliest_comes_first_and_the_newest_of_equals():
    pool = pool_of("7(1 2(4) 3)")
    pool.confirm([7, 2])
    pool.confirm([7, 2])
    pool.confirm([7, 3])
    # Of three tries 1 had no hit, 2 had two and 3 one: 1/5, 3/5, 2/5, and 4 half of 3/5.
    tree = found(pool, [7], is_likely_first=True)
    assert tree == TokenTree((7, 2, 3, 4, 1), (-1, 0, 0, 1, 0))
    # A token added after two tries is judged by the third alone: one half, were there none.
    late = pool_of("7(1)")
    late.confirm([7, 1])
    late.confirm([7, 1])
    late.add([7, 5])
    assert found(late, [7], is_likely_first=True).tokens == (7, 1, 5)
    late.confirm([7, 9])
    late.confirm([7, 9])
    # 3/6, 1/4, and 9, added after two tries with two hits: 3/4.
    assert found(late, [7], is_likely_first=True).tokens == (7, 9, 1, 5)


def test_longer_ends_are_looked_up_first_and_share_nodes_with_shorter_ones():
    pool = pool_of("7(3 5(6))", "4(7(5(8) 2))")
    assert found(pool, [4, 7]) == TokenTree((7, 5, 2, 8, 3, 6), (-1, 0, 0, 1, 0, 1))
    assert found(pool, [4, 7], max_nodes=3).tokens == (7, 5, 2, 8)
    assert found(pool, [9, 7]) == found(pool, [7])


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), min_size=2, max_size=5))),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.integers(0, 8),
    st.integers(0, 5),
    st.booleans(),
)
def test_candidates_are_pool_paths_inside_their_bounds(
    ops, suffix, max_nodes, max_depth, is_likely_first
):
    pool = DraftPool()
    for is_confirmed, path in ops:
        (pool.confirm if is_confirmed else pool.add_suffixes)(path)
    bounds = {"max_nodes": max_nodes, "max_depth": max_depth, "is_likely_first": is_likely_first}
    tree = found(pool, suffix, **bounds)
    assert tree.num_drafted <= max_nodes
    assert tree.max_depth <= max_depth
    tree.validate(4)
    # Nothing is left out but for the bounds, and every path followed an end of the suffix.
    ends = [suffix[start:] for start in range(len(suffix))]
    for node in range(1, len(tree)):
        path, above = [], node
        while above > 0:
            path.insert(0, tree.tokens[above])
            above = tree.parents[above]
        assert any(pool.find([*end, *path]) is not None for end in ends)
    whole = found(pool, suffix, **{**bounds, "max_nodes": 9999})
    assert tree.num_drafted == min(max_nodes, whole.num_drafted)
    assert (whole.tokens[: len(tree)], whole.parents[: len(tree)]) == (tree.tokens, tree.parents)
