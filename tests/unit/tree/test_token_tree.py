"""Token trees: shape, lookup and what is refused."""

import numpy as np
import pytest

from specdec_core.errors import ConfigError
from specdec_core.tree import TokenTree

TREE = TokenTree((10, 11, 12, 13, 14, 15, 16), (-1, 0, 0, 1, 1, 2, 3))


def test_depths_children_and_ancestors_of_the_worked_example():
    assert TREE.depths == (0, 1, 1, 2, 2, 2, 3)
    assert dict(TREE.children(0)) == {11: 1, 12: 2}
    assert dict(TREE.children(1)) == {13: 3, 14: 4}
    assert dict(TREE.children(6)) == {}
    rows = ["1000000", "1100000", "1010000", "1101000", "1100100", "1010010", "1101001"]
    expected = np.array([[int(cell) for cell in row] for row in rows], dtype=bool)
    assert TREE.ancestors().dtype == np.bool_
    assert np.array_equal(TREE.ancestors(), expected)
    assert (len(TREE), TREE.num_drafted, TREE.max_depth) == (7, 6, 3)


def test_a_chain_is_a_tree_with_one_child_per_node():
    chain = TokenTree.chain(7, [3, 5, 3])
    assert chain == TokenTree((7, 3, 5, 3), (-1, 0, 1, 2))
    assert chain.depths == (0, 1, 2, 3)
    assert np.array_equal(chain.ancestors(), np.tri(4, dtype=bool))


def test_the_root_alone_proposes_nothing():
    root = TokenTree.root_only(4)
    assert root == TokenTree.chain(4, [])
    assert (root.num_drafted, root.max_depth) == (0, 0)
    assert root.ancestors().tolist() == [[True]]


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [((), ()), ((1, 2), (-1,)), ((1,), (0,)), ((1, 2), (-1, 1)), ((1, 2), (-1, -1))],
)
def test_malformed_arrays_are_refused(tokens, parents):
    with pytest.raises(ConfigError, match="parent"):
        TokenTree(tokens, parents)


def test_ids_outside_the_vocabulary_are_refused_and_not_clamped():
    TokenTree.chain(0, [4]).validate(5)
    with pytest.raises(ConfigError, match=r"Foo proposed token id 5, .* ids 0 to 4: use"):
        TokenTree.chain(0, [4, 5]).validate(5, author="Foo")
    with pytest.raises(ConfigError, match="token id -1"):
        TokenTree.chain(0, [-1]).validate(5)


def test_siblings_with_one_token_are_refused_but_cousins_are_fine():
    TokenTree((0, 1, 2, 3, 3), (-1, 0, 0, 1, 2)).validate(5)
    with pytest.raises(ConfigError, match="Foo proposed siblings with the same token"):
        TokenTree((0, 1, 1), (-1, 0, 0)).validate(5, author="Foo")
