"""Chains merged into a tree, against the plain definition."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.tree import TokenTree
from specdec_core.tree.merging import merge_chains
from tests.doubles import path_tokens

CHAINS = [(1, 2, 3), (1, 2, 4), (5, 2), (1, 2, 3), ()]


def merge(chains, max_nodes=99, max_depth=99):
    return merge_chains(9, chains, max_nodes=max_nodes, max_depth=max_depth)


def test_chains_share_the_nodes_they_begin_with_and_no_others():
    assert merge(CHAINS) == TokenTree((9, 1, 2, 3, 4, 5, 2), (-1, 0, 1, 2, 2, 0, 5))


def test_no_chains_are_the_root_alone():
    assert merge([]) == TokenTree.root_only(9)


def test_the_budget_cuts_the_later_chains_and_the_ends():
    assert merge(CHAINS, max_nodes=4) == TokenTree((9, 1, 2, 3, 4), (-1, 0, 1, 2, 2))
    assert merge(CHAINS, max_depth=1) == TokenTree((9, 1, 5), (-1, 0, 0))
    assert merge(CHAINS, max_nodes=0) == TokenTree.root_only(9)


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=8), st.integers(0, 5))
def test_the_paths_are_the_prefixes_of_the_chains(chains, max_depth):
    tree = merge(chains, max_depth=max_depth)
    tree.validate(10)
    paths = {tuple(path_tokens(tree, node)[1:]) for node in range(len(tree))}
    cut = [chain[:max_depth] for chain in chains]
    assert paths == {()} | {tuple(c[:n]) for c in cut for n in range(len(c) + 1)}
