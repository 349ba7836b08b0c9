"""The draft forest on the worked example, its bounds, refill, and everything after random steps."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.config.ptd import growing_tree_size
from specdec_core.decoding.progressive.forest import DraftForest
from specdec_core.tree import TokenTree
from tests.unit.decoding.progressive.notation import show


def planted(chains, *, width=4, depth=6, num_trees=1, **options):
    forest = DraftForest(width, depth, num_trees, **options)
    forest.plant(chains)
    return forest


def shown(forest):
    return [show(top) for top in forest.tops]


def grow(forest, choices):
    """Grow every node by what `choices` has for its token; tokens must be distinct."""
    tokens = forest.tree(99).tokens[1:]
    assert len(set(tokens)) == len(tokens)
    return forest.grow([choices[token] for token in tokens])


def test_the_worked_example_of_stepping():
    forest = planted([[7]], width=2, depth=3)
    assert shown(forest) == ["7"]
    table = [
        ({7: 3}, "7(3)", "7(3)"),
        ({7: 5, 3: 9}, "7(3(9) 5)", "7(3(9) 5)"),
        ({7: 3, 3: 2, 9: 4, 5: 6}, "7(3(9(4) 2) 5(6))", "3(9(4) 2)"),
        ({3: 1, 9: 4, 2: 8, 4: 0}, "3(9(4(0)) 2(8))", "9(4(0))"),
    ]
    for choices, grown, pruned in table:
        grow(forest, choices)
        assert shown(forest) == [grown]
        forest.advance(bonus=50)
        assert shown(forest) == [pruned]


def test_edges_are_what_was_drafted_and_no_child_yet_full_nodes_included():
    forest = planted([[7]], width=2, depth=3)
    grow(forest, {7: 3})
    forest.advance(50)
    grow(forest, {7: 5, 3: 9})
    forest.advance(50)
    edges = grow(forest, {7: 8, 3: 9, 9: 4, 5: 6})
    assert [(node.path(), token) for node, token in edges] == [
        ([7], 8),
        ([7, 3, 9], 4),
        ([7, 5], 6),
    ]
    assert shown(forest) == ["7(3(9(4)) 5(6))"]
    forest.advance(50)
    assert shown(forest) == ["3(9(4))"]
    assert [(node.path(), token) for node, token in forest.kept(edges)] == [([3, 9], 4)]


@pytest.mark.parametrize(
    ("width", "depth", "before", "after"),
    [(4, 6, 60, 31), (16, 6, 64, 32), (4, 4, 16, 8), (2, 3, 7, 4)],
)
def test_sizes_where_every_node_finds_a_new_token_every_step(width, depth, before, after):
    forest = planted([[0]], width=width, depth=depth)
    fresh = count(1)
    sizes = []
    for _ in range(3 * depth):
        old = len(forest.tree(0)) - 1
        added = sum(
            token in node.children for node, token in forest.grow([next(fresh) for _ in range(old)])
        )
        forest.advance(bonus=0)
        sizes.append((old + added, len(forest.tree(0)) - 1))
    assert max(grown for grown, _ in sizes) == before
    assert max(pruned for _, pruned in sizes) == after == growing_tree_size(width, depth - 1)
    if (width, depth) == (4, 6):
        assert [grown for grown, _ in sizes[:6]] == [2, 4, 8, 16, 31, 60]


def test_every_top_hangs_below_the_one_before_it():
    forest = planted([[5, 8], [6, 7]], num_trees=2)
    assert forest.tree(9) == TokenTree((9, 5, 8, 6, 7), (-1, 0, 1, 1, 3))
    assert forest.tree(9).depths == (0, 1, 2, 2, 3)
    flat = planted([[5, 8], [6, 7]], num_trees=2, is_staggered=False)
    assert flat.tree(9) == TokenTree((9, 5, 8, 6, 7), (-1, 0, 1, 0, 3))


def test_a_missing_sub_tree_begins_with_what_follows_the_last_top():
    forest = planted([[5], [6, 7]], num_trees=3)
    grow(forest, {5: 8, 6: 9, 7: 4})
    forest.advance(50)
    assert shown(forest) == ["5(8)", "6(7(4))", "9"]
    # It stands where it stood as a child: behind 5 and 6.
    assert forest.tree(1) == TokenTree((1, 5, 8, 6, 7, 4, 9), (-1, 0, 1, 1, 3, 4, 3))


def test_a_refill_takes_the_childs_own_children_along():
    forest = planted([[5, 6, 7]], num_trees=2)
    grow(forest, {5: 6, 6: 8, 7: 4})
    forest.advance(50)
    assert shown(forest) == ["5", "6(7(4) 8)"]


def test_nothing_is_refilled_with_a_token_that_is_a_top_already():
    forest = planted([[5], [6]], num_trees=3)
    grow(forest, {5: 8, 6: 5})
    forest.advance(50)
    assert shown(forest) == ["5(8)", "6(5)"]


def test_an_empty_forest_goes_on_with_the_bonus_token():
    forest = planted([], num_trees=2)
    assert forest.tree(3) == TokenTree.root_only(3)
    forest.grow([])
    forest.advance(bonus=7)
    assert shown(forest) == ["7"]


def test_the_heir_is_the_earliest_child_that_is_no_top_and_moves_to_the_end():
    forest = planted([[5, 6], [6]], depth=2, num_trees=2)
    grow_all = [4, 3, 2]  # after 5, after its child 6, after the top 6
    forest.grow(grow_all)
    assert shown(forest) == ["5(6(3) 4)", "6(2)"]
    forest.advance(50)
    assert shown(forest) == ["6(2)", "4"]


def test_a_sub_tree_whose_children_are_all_tops_ends():
    forest = planted([[5], [6]], depth=1, num_trees=2)
    grow(forest, {5: 6, 6: 6})
    forest.advance(50)
    # 5 could only become 6; 6 goes on as its own child.
    assert shown(forest) == ["6"]


def test_leaves_are_drafted_but_never_enter_the_forest():
    forest = planted([[5]], num_trees=2, leaves={0})
    ((node, token),) = forest.grow([0])
    assert (node.path(), token) == ([5], 0)
    forest.advance(bonus=50)
    assert shown(forest) == ["5"]
    empty = planted([], leaves={0})
    empty.advance(bonus=0)
    assert shown(empty) == []


def test_a_cut_takes_the_branch_with_it():
    forest = planted([[5, 6], [8]], num_trees=2, cut_at={0})
    forest.grow([7, 0, 9])
    forest.advance(50)
    assert shown(forest) == ["8", "9"]  # and 9, which followed the last top, fills up
    deep = planted([[1, 2, 3, 4, 5]], cut_at={0})
    deep.grow([6, 7, 8, 9, 0])
    deep.advance(50)
    # The cut climbs four levels at most: from 0 up to 2.
    assert shown(deep) == ["1(6)"]


def test_seeds_that_begin_alike_share_a_sub_tree():
    forest = planted([[5, 6], [5, 7], [8, 9], [4]], num_trees=2)
    assert shown(forest) == ["5(6 7)", "8(9)"]
    assert shown(planted([[5, 6, 7]], depth=2)) == ["5(6)"]


def levels(node):
    return 1 + max(map(levels, node.children.values()), default=0)


def all_nodes(node):
    yield node
    for child in node.children.values():
        yield from all_nodes(child)


def expected_context(forest, node, is_staggered):
    """Return the tokens a node stands behind, its own last, by following parents and tops."""
    top = node.top()
    place = next(index for index, other in enumerate(forest.tops) if other is top)
    before = [other.token for other in forest.tops[:place]] if is_staggered else []
    return [*before, *node.path()]


def test_a_node_that_seeds_made_wider_than_the_width_gains_nothing():
    forest = DraftForest(1, 3, 1)
    forest.plant([[0, 1], [0, 2]])
    forest.grow([3, 3, 3])
    # Node 0 is full, its two children are not.
    assert list(forest.tops[0].children) == [1, 2]
    assert [list(child.children) for child in forest.tops[0].children.values()] == [[3], [3]]


@given(
    width=st.integers(1, 4),
    depth=st.integers(1, 5),
    num_trees=st.integers(1, 4),
    is_staggered=st.booleans(),
    vocab_size=st.integers(1, 6),
    closed=st.sampled_from([{}, {"leaves": {0}}, {"cut_at": {0}}]),
    data=st.data(),
)
def test_the_forest_keeps_its_bounds_whatever_the_target_says(
    width, depth, num_trees, is_staggered, vocab_size, closed, data
):
    tokens = st.integers(0, vocab_size - 1)
    seeds = data.draw(st.lists(st.lists(tokens, min_size=1, max_size=3), max_size=4))
    forest = DraftForest(width, depth, num_trees, is_staggered=is_staggered, **closed)
    forest.plant(seeds)
    for _ in range(data.draw(st.integers(0, 12))):
        size = len(forest.tree(0)) - 1
        forest.grow(data.draw(st.lists(tokens, min_size=size, max_size=size)))
        forest.advance(data.draw(tokens))
        tree = forest.tree(0)
        assert len(forest.tops) <= num_trees
        assert len({top.token for top in forest.tops}) == len(forest.tops)
        assert tree.num_drafted <= num_trees * growing_tree_size(width, depth - 1)
        contexts = {}
        for top in forest.tops:
            assert levels(top) <= depth
            for node in all_nodes(top):
                assert len(node.children) <= max(width, 2)
                context = tuple(expected_context(forest, node, is_staggered))
                contexts[context] = contexts.get(context, 0) + 1
        # Every forwarded node stands behind the tokens of its ancestors in the drafting tree.
        for index in range(1, len(tree)):
            path, node = [], index
            while node > 0:
                path.insert(0, tree.tokens[node])
                node = tree.parents[node]
            assert tree.depths[index] == len(path)
            contexts[tuple(path)] -= 1
        assert min(contexts.values(), default=0) >= 0
