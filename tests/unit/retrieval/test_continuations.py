"""Continuation trees: the worked example, and a trie built by hand of all continuations."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.retrieval.continuations import continuation_tree
from specdec_core.retrieval.indexed_text import SEPARATOR, index_documents
from specdec_core.tree import TokenTree

STORE = [5, 1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 4, 5]


def tree_of(documents, string, **limits):
    text = index_documents(documents)
    found = text.find(string)
    return continuation_tree(text, found, string[-1], **limits)


def slow_paths(documents, string, max_nodes, max_depth, max_per_depth):
    """Return the chosen paths in order, from a trie with counts."""
    weights = Counter()
    for document in documents:
        for end in range(len(string), len(document) + 1):
            if document[end - len(string) : end] == string:
                following = document[end : end + max_depth]
                weights.update(tuple(following[: n + 1]) for n in range(len(following)))
    chosen, num_at_depth = [], Counter()
    for path in sorted(weights, key=lambda path: (-weights[path], len(path), path)):
        has_parent = len(path) == 1 or path[:-1] in chosen
        if has_parent and num_at_depth[len(path)] < (max_per_depth or len(weights)):
            num_at_depth[len(path)] += 1
            chosen.append(path)
    return chosen[:max_nodes]


def paths_of(tree):
    paths = [()]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def test_the_heaviest_then_shallowest_then_smallest_nodes_are_kept():
    # Continuations of "1 2", three tokens each: 3 9 1, 3 8 1 and 4 5.
    tree = tree_of([STORE], [1, 2], max_nodes=4, max_depth=3)
    assert paths_of(tree) == [(3,), (4,), (3, 8), (3, 9)]
    assert tree == TokenTree((2, 3, 4, 8, 9), (-1, 0, 0, 1, 1))


def test_all_of_it_fits_a_large_budget():
    tree = tree_of([STORE], [1, 2], max_nodes=99, max_depth=3)
    rest = [(4, 5), (3, 8, 1), (3, 9, 1)]
    assert paths_of(tree) == [(3,), (4,), (3, 8), (3, 9), *rest]


def test_a_depth_takes_no_more_nodes_than_it_may():
    tree = tree_of([STORE], [1, 2], max_nodes=99, max_depth=3, max_per_depth=1)
    assert paths_of(tree) == [(3,), (3, 8), (3, 8, 1)]


@pytest.mark.parametrize(("max_nodes", "max_depth"), [(0, 3), (4, 0)])
def test_no_budget_is_no_tree(max_nodes, max_depth):
    tree = tree_of([STORE], [1, 2], max_nodes=max_nodes, max_depth=max_depth)
    assert tree == TokenTree.root_only(2)


def test_continuations_end_with_their_document():
    tree = tree_of([[7, 1], [7, 2, 3], [9, 7]], [7], max_nodes=9, max_depth=9)
    assert paths_of(tree) == [(1,), (2,), (2, 3)]
    assert SEPARATOR not in tree.tokens
    assert tree_of([[1, 7]], [7], max_nodes=9, max_depth=9) == TokenTree.root_only(7)


def test_too_many_occurrences_are_sampled_over_their_whole_order():
    documents = [[7, token] for token in range(100)]
    tree = tree_of(documents, [7], max_nodes=9, max_depth=2, max_occurrences=4)
    assert paths_of(tree) == [(0,), (25,), (50,), (75,)]


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=14), min_size=1, max_size=4),
    st.lists(st.integers(0, 2), min_size=1, max_size=2),
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from([None, 1, 2]),
)
def test_the_tree_is_that_of_counting_every_prefix(
    documents, string, max_nodes, max_depth, max_per_depth
):
    text = index_documents([*documents, [9]])
    found = text.find(string)
    if found is None:
        return
    tree = continuation_tree(
        text,
        found,
        string[-1],
        max_nodes=max_nodes,
        max_depth=max_depth,
        max_per_depth=max_per_depth,
    )
    assert paths_of(tree) == slow_paths(documents, string, max_nodes, max_depth, max_per_depth)
